"""The engine: write, gather, locate, change, count, raise. It reaches the world through `core/ports.py` only."""
