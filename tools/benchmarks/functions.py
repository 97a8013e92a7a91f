"""Our functions and the rivals' as the rows call them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from redis import Redis

from hotpartition.redis.cluster import route_key
from tools.benchmarks.measuring import CPU_CONDITIONS, Bar, Measured, cpu_seconds, interleave, warm_up
from tools.benchmarks.setup import ROOT, TABLE, Context, Setup, load_function, write_event

LAMBDAS = ROOT / "lambdas"
RIVALS = Path(__file__).resolve().parent / "rivals"
BODY = "x" * 1024
"""1 KB of text; with its ids and times the item takes two write units."""
HOT_CONVERSATION = "general"
CREATED = 201
MICROSECONDS = 1e6
WRITES = 400


def prepare_hot_conversation(setup: Setup) -> None:
    """Raise the conversation that is written to, so that the measured writes are those to a shard."""
    setup.control("Configure", keeps_puts=False)
    with Redis(port=setup.redis_port) as redis:
        redis.sadd(route_key(TABLE, HOT_CONVERSATION), "16@1700000000000")


def write_function(folder: Path) -> Callable[[int], None]:
    """Load a write function; what is returned writes so many messages by it, and refuses to time one that fails."""
    handler = load_function(folder)
    event, context = write_event(HOT_CONVERSATION, BODY), Context()

    def write(count: int) -> None:
        for _ in range(count):
            response = handler(event, context)
            if response["statusCode"] != CREATED:
                raise ValueError(f"the write ended with {response}")

    return write


def compare_writes(setup: Setup, rival_write: Callable[[int], None], *, rival: str, at_most: float) -> Measured:
    """Measure the CPU of a write by our whole function, against another way to write so many messages."""
    prepare_hot_conversation(setup)
    count = setup.count(WRITES)
    our_write = write_function(LAMBDAS / "write_message")

    def ours() -> float:
        return cpu_seconds(lambda: our_write(count)) / count * MICROSECONDS

    def theirs() -> float:
        return cpu_seconds(lambda: rival_write(count)) / count * MICROSECONDS

    warm_up(ours, theirs)
    return Measured(
        unit="us of CPU",
        rival=rival,
        samples=interleave(ours, theirs, setup.runs),
        bars=(Bar("ratio", at_most=at_most),),
        conditions=CPU_CONDITIONS
        + f"; {count} writes a run of 1 KB of text, to a conversation of 16 shards; reports go to a real Redis",
    )
