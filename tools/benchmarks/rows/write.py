"""`write`: the CPU of a whole write request, against the same function with a bare `put_item`."""

from __future__ import annotations

from tools.benchmarks.functions import WriteFunction, prepare_hot_conversation
from tools.benchmarks.measuring import CPU_CONDITIONS, Bar, Measured, cpu_seconds, interleave, warm_up
from tools.benchmarks.setup import Setup

MICROSECONDS = 1e6
WRITES = 400


def measure(setup: Setup) -> Measured:
    """Serve the same event by both functions."""
    prepare_hot_conversation(setup)
    count = setup.count(WRITES)
    our_function = WriteFunction("write_message")
    rival_function = WriteFunction("write_message", is_rival=True)

    def ours() -> float:
        return cpu_seconds(lambda: our_function.write(count)) / count * MICROSECONDS

    def rival() -> float:
        return cpu_seconds(lambda: rival_function.write(count)) / count * MICROSECONDS

    warm_up(ours, rival)
    return Measured(
        unit="us of CPU",
        rival="the same function with a bare put_item: benchmarks/rivals/write_message",
        samples=interleave(ours, rival, setup.runs),
        bars=(Bar("ratio", at_most=0.5),),
        conditions=CPU_CONDITIONS
        + f"; {count} writes a run of 1 KB of text, to a conversation of 16 shards; reports go to a real Redis",
    )
