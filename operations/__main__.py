"""`python -m operations`, the same as `hotpartition`."""

import sys

from operations.main import main

sys.exit(main())
