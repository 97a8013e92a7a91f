"""Runs Lambda's runtime client in an altered process: `python -m altered JSON HANDLER`.

`skew_ms`: its wall clock is wrong. Only the clock that the product reads is: by `time.time`, Powertools stamps the
metrics that trials count. `close_times`: margin and pause of closes, in ms, in place of the product's own. It stands
alone, beside the runtime client: a function's process imports nothing else of this program.
"""

import json
import runpy
import sys
import time
from dataclasses import replace
from typing import Any

_right_ns = time.time_ns
_altered: dict[str, Any] = json.loads(sys.argv.pop(1))
_skew_ns: int = _altered["skew_ms"] * 1_000_000


def _skewed_ns() -> int:
    return _right_ns() + _skew_ns


if __name__ == "__main__":
    if _altered["close_times"]:
        from hotpartition.core import closes

        closes.TIMES = replace(closes.TIMES, **_altered["close_times"])
    time.time_ns = _skewed_ns
    runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)
