"""Measures what users feel and pay, each as a ratio against what they would pick instead: `make bench`."""

import sys
from pathlib import Path

# The layer's folder is an import root, as `/opt/python` is in Lambda.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "layers" / "routing" / "python"))
