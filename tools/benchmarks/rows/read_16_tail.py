"""`read-16-tail`: the slowest hundredth of reads when a hundredth of the queries is slow, with and without hedging."""

from __future__ import annotations

import time

from tools.benchmarks.conversations import Conversation, store_conversations
from tools.benchmarks.measuring import Bar, Measured, interleave
from tools.benchmarks.reading import MILLISECONDS, SERVICE_MS, ReadPage, check_reader, our_reader
from tools.benchmarks.setup import Setup

CONVERSATIONS = 24
SLOW_MS = 100.0
SLOW_SHARE = 0.01
READS = 300
QUANTILE = 0.99


def measure(setup: Setup) -> Measured:
    """Read every conversation in turn; both sides meet the same delays."""
    conversations = store_conversations(setup, CONVERSATIONS, 16)
    with_hedging, without = our_reader(), our_reader(hedge_quantile=0.0)
    setup.control("Configure", usual_ms=SERVICE_MS)
    for read in (with_hedging, without):
        check_reader(read, conversations)
    count = setup.count(READS)
    seeds = iter(range(1, 1000))

    def slowest_of(read: ReadPage) -> float:
        setup.control("Configure", usual_ms=SERVICE_MS, slow_ms=SLOW_MS, slow_share=SLOW_SHARE, seed=next(seeds))
        times = sorted(_time(read, conversations[index % len(conversations)]) for index in range(count))
        return times[min(len(times) - 1, int(len(times) * QUANTILE))]

    return Measured(
        unit="ms, 99th percentile",
        rival="ours without hedging",
        samples=interleave(lambda: slowest_of(with_hedging), lambda: slowest_of(without), setup.runs),
        bars=(Bar("ratio", at_most=0.3),),
        conditions=f"wall time (time.perf_counter); a response takes {SERVICE_MS:g} ms, "
        f"one in a hundred {SLOW_MS:g} ms; "
        f"99th percentile of {count} pages a run; hedging has seen each conversation once before",
    )


def _time(read: ReadPage, conversation: Conversation) -> float:
    started = time.perf_counter()
    read(conversation)
    return (time.perf_counter() - started) * MILLISECONDS
