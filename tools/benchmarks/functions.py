"""Our functions and the rivals' as the rows call them."""

from __future__ import annotations

from pathlib import Path

from redis import Redis

from hotpartition.redis.cluster import route_key
from tools.benchmarks.setup import ROOT, TABLE, Context, Setup, load_function, write_event

LAMBDAS = ROOT / "lambdas"
RIVALS = Path(__file__).resolve().parent / "rivals"
BODY = "x" * 1024
"""1 KB of text; with its ids and times the item takes two write units."""
HOT_CONVERSATION = "general"
CREATED = 201


def prepare_hot_conversation(setup: Setup) -> None:
    """Raise the conversation that is written to, so that the measured writes are those to a shard."""
    setup.control("Configure", keeps_puts=False)
    with Redis(port=setup.redis_port) as redis:
        redis.sadd(route_key(TABLE, HOT_CONVERSATION), "16@1700000000000")


class WriteFunction:
    """A write function, called again and again with the same event."""

    def __init__(self, name: str, *, is_rival: bool = False) -> None:
        self._handler = load_function((RIVALS if is_rival else LAMBDAS) / name)
        self._event = write_event(HOT_CONVERSATION, BODY)
        self._context = Context()

    def write(self, count: int) -> None:
        """Write so many messages.

        Raises:
            ValueError: one was not acknowledged.
        """
        for _ in range(count):
            answer = self._handler(self._event, self._context)
            if answer["statusCode"] != CREATED:
                raise ValueError(f"the write was answered with {answer}")
