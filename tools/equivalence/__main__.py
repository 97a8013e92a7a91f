"""`python -m tools.equivalence`; the study is a module of its own, since its processes cannot import this one."""

import sys

from tools.equivalence.study import main

sys.exit(main())
