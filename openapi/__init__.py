"""The API's description (OpenAPI), generated from the code of the two HTTP functions."""

import sys
from pathlib import Path

# The layer's folder is an import root, as `/opt/python` is in Lambda.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "layers" / "routing" / "python"))
