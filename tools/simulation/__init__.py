"""The whole system on one virtual clock: its faults, its limits, and what they cost."""
