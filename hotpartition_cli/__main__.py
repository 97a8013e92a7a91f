"""`python -m hotpartition_cli`, the same as `hotpartition`."""

import sys

from hotpartition_cli.main import main

sys.exit(main())
