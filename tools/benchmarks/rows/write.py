"""`write`: the CPU of a whole write request, against the same function with a bare `put_item`."""

from __future__ import annotations

from tools.benchmarks.functions import RIVALS, compare_writes, write_function
from tools.benchmarks.measuring import Measured
from tools.benchmarks.setup import Setup


def measure(setup: Setup) -> Measured:
    """Serve the same event by both functions."""
    rival = "the same function with a bare put_item: benchmarks/rivals/write_message"
    return compare_writes(setup, write_function(RIVALS / "write_message"), rival=rival, at_most=0.5)
