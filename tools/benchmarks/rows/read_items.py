"""`read-items`: how many items are read for the newest 50, at N = 4, 16 and 64."""

from __future__ import annotations

from tools.benchmarks.conversations import PAGE, store_conversations
from tools.benchmarks.measuring import Bar, Measured, Samples
from tools.benchmarks.reading import ReadPage, check_reader, our_reader, sources_reader
from tools.benchmarks.setup import Setup

SHARD_COUNTS = (4, 16, 64)
CONVERSATIONS = 8
MOST = 2.5


def measure(setup: Setup) -> Measured:
    """Count what the stand-in reads; value and ratio are those of N = 64.

    Nothing is timed, so nothing depends on the machine, and one run says it all.
    """
    details: dict[str, float] = {}
    ours: list[float] = []
    rival: list[float] = []
    for shard_count in SHARD_COUNTS:
        conversations = store_conversations(setup, setup.count(CONVERSATIONS), shard_count)

        def count(read: ReadPage, name: str) -> float:
            setup.control("Configure")
            check_reader(read, conversations)  # noqa: B023 - called in this very round
            counts = setup.control("Counts")
            details[f"{name}_queries_{shard_count}"] = counts["requests"] / len(conversations)  # noqa: B023 - as above
            return counts["items_read"] / len(conversations)  # noqa: B023 - as above

        ours.append(count(our_reader(), "our"))
        rival.append(count(sources_reader(threads=16), "rival"))
        details[f"items_{shard_count}"] = ours[-1]
        details[f"rival_items_{shard_count}"] = rival[-1]
    return Measured(
        unit="items read",
        rival="the sources' reader",
        samples=Samples(tuple(ours[-1:]), tuple(rival[-1:])),
        details=details,
        bars=tuple(Bar(f"items_{shard_count}", at_most=MOST * PAGE) for shard_count in SHARD_COUNTS),
        conditions=f"mean of {setup.count(CONVERSATIONS)} conversations for each N; the routing item is counted",
    )
