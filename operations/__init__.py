"""The command-line tool `hotpartition`: asks the operations function, of a stack on AWS or of the local run."""

import sys
from pathlib import Path

# In a checkout the layer's folder is an import root, as `/opt/python` is in Lambda; installed, the package is there.
_LAYER = Path(__file__).resolve().parent.parent / "layers" / "routing" / "python"
if _LAYER.is_dir():
    sys.path.insert(0, str(_LAYER))
