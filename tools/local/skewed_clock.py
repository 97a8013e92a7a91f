"""Runs Lambda's runtime client in a process whose wall clock is wrong: `python -m skewed_clock MS HANDLER`.

Only the clock that the product reads is: by `time.time`, Powertools stamps the metrics that trials count. It stands
alone, beside the runtime client: a function's process imports nothing of this program.
"""

import runpy
import sys
import time

_right_ns = time.time_ns
_skew_ns = int(sys.argv.pop(1)) * 1_000_000


def _skewed_ns() -> int:
    return _right_ns() + _skew_ns


if __name__ == "__main__":
    time.time_ns = _skewed_ns
    runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)
