"""`route`: deciding where a message goes by a cached route, against a dictionary lookup and one BLAKE2b."""

from __future__ import annotations

import hashlib
import time
from random import Random
from typing import Any

from hotpartition.core.route import Generation, Route, choose_placement
from hotpartition.engine.route_cache import RouteCache, RouteSource
from hotpartition_messages.keys import KEY_FORM, build_key
from hotpartition_messages.message_ids import mint_message_id
from tools.benchmarks.measuring import CPU_CONDITIONS, Bar, Measured, cpu_seconds, interleave, warm_up
from tools.benchmarks.setup import Setup, SilentTelemetry

MICROSECONDS = 1e6
DECISIONS = 100_000
CONVERSATIONS = 1000
SHARD_COUNTS = (4, 16)
START_MS = 1_800_000_000_000


class _NoRegistry:
    """`Registry` of which nothing may be asked: the routes are cached."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: the routes are cached")


def measure(setup: Setup) -> Measured:
    """Decide about messages of a thousand raised conversations, twice raised each."""
    random = Random(7)
    count = setup.count(DECISIONS)
    names = [f"conversation-{index}" for index in range(CONVERSATIONS)]
    ids = [mint_message_id(START_MS + i, random.getrandbits) for i in range(count)]
    writes = [build_key(random.choice(names), message_id) for message_id in ids]
    generations = frozenset(Generation(since_ms=START_MS - 60_000 * n, shard_count=n) for n in SHARD_COUNTS)
    cache = RouteCache(ttl_seconds=60, max_entries=10_000, random=random.random)
    source = RouteSource(cache=cache, registry=_NoRegistry(), telemetry=SilentTelemetry(), timer=time.monotonic)
    for name in names:
        source.learn(name, Route(generations), START_MS)
    plain = dict.fromkeys(names, max(SHARD_COUNTS))

    def nothing() -> None:
        for _ in writes:
            pass

    def ours() -> float:
        get_route = source.get_route

        def work() -> None:
            for key in writes:
                choose_placement(get_route(key.collection, START_MS), key, KEY_FORM)

        return (cpu_seconds(work) - cpu_seconds(nothing)) / count * MICROSECONDS

    def rival() -> float:
        def work() -> None:
            for key in writes:
                plain[key.collection]
                hashlib.blake2b((key.hashed or "").encode(), digest_size=8).digest()

        return (cpu_seconds(work) - cpu_seconds(nothing)) / count * MICROSECONDS

    warm_up(ours, rival)
    return Measured(
        unit="us",
        rival="a dictionary lookup and one BLAKE2b",
        samples=interleave(ours, rival, setup.runs),
        bars=(Bar("value", at_most=5.0), Bar("ratio", at_most=3.0)),
        conditions=CPU_CONDITIONS + f"; {count} decisions a run, {CONVERSATIONS} cached routes of two generations; "
        "what an empty loop takes is subtracted on both sides",
    )
