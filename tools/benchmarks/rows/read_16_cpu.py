"""`read-16-cpu`: the CPU of the newest page of a conversation of 16 shards, against the sources' reader."""

from __future__ import annotations

from tools.benchmarks.conversations import store_conversations
from tools.benchmarks.measuring import CPU_CONDITIONS, Bar, Measured, cpu_seconds, interleave, warm_up
from tools.benchmarks.reading import SERVICE_MS, check_reader, mean_ms, our_reader, sources_reader
from tools.benchmarks.setup import Setup

CONVERSATIONS = 24
ROUNDS = 2


def measure(setup: Setup) -> Measured:
    """Read every conversation in turn."""
    conversations = store_conversations(setup, CONVERSATIONS, 16)
    setup.control("Configure", usual_ms=SERVICE_MS)
    in_turn = conversations * setup.count(ROUNDS)
    our_read, rival_read = our_reader(), sources_reader(threads=16)

    def ours() -> float:
        return mean_ms(cpu_seconds, our_read, in_turn)

    def rival() -> float:
        return mean_ms(cpu_seconds, rival_read, in_turn)

    for read in (our_read, rival_read):
        check_reader(read, conversations)
    warm_up(ours, rival)
    return Measured(
        unit="ms of CPU",
        rival="16 boto3 queries of 50 on 16 threads, sorted",
        samples=interleave(ours, rival, setup.runs),
        bars=(Bar("ratio", at_most=0.08),),
        conditions=CPU_CONDITIONS
        + f"; every response takes {SERVICE_MS:g} ms; mean of {len(in_turn)} pages in {CONVERSATIONS} conversations",
    )
