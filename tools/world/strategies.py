"""What is done about a hot key: this project, and for comparison what teams do without it.

| name | what it does |
|---|---|
| ours | this project |
| in_band | this project without Redis and consumer: writers find what is hot |
| none | DynamoDB alone: everything on the conversation's own key |
| sources | the sources' design: 800 writes/s in one environment, a poller once a minute |
| alarm | an alarm, and a person who spreads the conversation over 16 keys after five minutes |
| static | every key is salted with N = 16, always |

All else is the product's: the choice of the shard, the conditional put, the retries within the request, the fan-out and
the merge of pages. Assumption, not a measurement: how long a person takes (`ALARM_SECONDS`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import Any

from redis.exceptions import RedisError

from hotpartition.core.ports import JournalEntry, ReadRoute
from hotpartition.core.route import Generation, Route
from hotpartition.engine.route_cache import Routes
from hotpartition.runtime.build import Engine as ProductEngine
from hotpartition.runtime.build import build_fixed_engine
from hotpartition_messages.keys import KEY_FORM
from tools.world.clock import EPOCH_MS
from tools.world.functions import Function, FunctionConfig, NoResponseError, TooManyRequestsError
from tools.world.product import (
    BuildEngine,
    Environment,
    World,
    build_consumer,
    build_in_band_reading,
    build_in_band_writing,
    build_reading,
    build_writing,
)
from tools.world.redis import RedisClient

CONSUMERS = 3
"""The consumer's reserved concurrency."""
CONSUMER_RUN_SECONDS = 170.0
STATIC_SHARDS = 16
ALARM_SECONDS = 300.0
"""From the onset until a person has spread the conversation: an alarm of CloudWatch looks at whole minutes, somebody
reads it, finds the key and changes a setting."""
HAND_SECONDS = 6.0
"""Of a rush that a person ends, so much of the time before is simulated: one second is like the other."""
SOURCES_THRESHOLD_WRITES = 800
SOURCES_POLL_SECONDS = 60.0
SOURCES_KEY = "sources:n:{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to deal with a hot key: the engines of the write and read functions' environments."""

    name: str
    """What it is called in results."""
    writing: BuildEngine
    reading: BuildEngine
    hedges: bool = True
    """Whether a slow query of a page is sent again."""
    start: Callable[[World], Function | None] = lambda _: None
    """Starts what runs beside the requests, and returns the function that watches the load."""
    shard_count: int = 0
    """The N of the hot conversation as long as nothing is raised; 0: its own key only."""
    skipped_seconds: float = 0.0
    """How much of the rush is left out, because nothing changes in it before this strategy acts."""


def ours() -> Strategy:
    """Build the product."""
    return Strategy(name="ours", writing=build_writing, reading=build_reading, start=start_consumers)


def in_band() -> Strategy:
    """Build the product without Redis and consumer."""
    return Strategy(name="in_band", writing=build_in_band_writing, reading=build_in_band_reading)


def start_consumers(world: World) -> Function:
    """Start the consumer now, and again each period."""
    engine, scenario, random = world.engine, world.scenario, world.random("schedule")

    consumers = world.open_function(FunctionConfig(concurrency=CONSUMERS, warm=1), build_consumer, "consumers")
    run_ms = CONSUMER_RUN_SECONDS * 1000

    def run() -> None:
        # One that is refused or dies is not missed: the next one begins where it ended.
        with suppress(TooManyRequestsError, NoResponseError):
            consumers.invoke(lambda consumer: consumer.run(run_ms), timeout_seconds=CONSUMER_RUN_SECONDS + 10)

    def schedule(index: int) -> None:
        base = index * scenario.period_seconds
        engine.at(base + random.random() * scenario.jitter_seconds, lambda: engine.spawn(run))
        engine.at(base + scenario.period_seconds, lambda: schedule(index + 1))

    engine.spawn(run)
    schedule(1)
    return consumers


class SetRoutes:
    """`Routes` that something else than the product sets: as many shards for a conversation as `count_of` says."""

    def __init__(self, count_of: Callable[[str], int]) -> None:
        self._count_of = count_of

    def for_write(self, collection: str) -> Route:
        """Implement `Routes.for_write`."""
        return self._route(collection)

    def for_read(self, collection: str) -> ReadRoute:
        """Implement `Routes.for_read`."""
        return ReadRoute(self._route(collection))

    refused = for_write

    def learn(self, collection: str, shown: JournalEntry, **_: Any) -> Route:
        """Implement `Routes.learn`: there is no journal."""
        del collection
        return shown.route

    def _route(self, collection: str) -> Route:
        return _route_of(self._count_of(collection))


@cache
def _route_of(count: int) -> Route:
    """Build the route of `count` shards once: what is computed from it stays with it."""
    return Route(frozenset({Generation(0, count)} if count else ()))


def _set_by(name: str, open_routes: Callable[[World], Routes], *, has_base: bool = True, **others: Any) -> Strategy:
    """Build a strategy in which a message has one place, by the routes of each environment."""
    form = replace(KEY_FORM, has_base=has_base)

    def build(place: Environment) -> ProductEngine:
        world = place.world
        return build_fixed_engine(
            open_routes(world),
            telemetry=world.meter,
            clock=world.clock(place.random),
            form=form,
            choices=1,
            budget_ms=world.settings["write"].request_budget_ms,
        )

    return Strategy(name=name, writing=build, reading=build, hedges=False, **others)


def none() -> Strategy:
    """Leave everything on the conversation's own key."""
    return _set_by("none", lambda _: SetRoutes(lambda _: 0))


def static() -> Strategy:
    """Salt every key, always."""
    routes = SetRoutes(lambda _: STATIC_SHARDS)
    return _set_by("static", lambda _: routes, has_base=False, shard_count=STATIC_SHARDS)


def alarm() -> Strategy:
    """Have a person spread the hot conversation by hand, over as many keys as `static` has."""
    spread: dict[str, int] = {}

    def start(world: World) -> None:
        """Let the person act, in the simulated part of the rush."""
        hot = world.scenario.hot_conversation

        def act() -> None:
            spread[hot] = STATIC_SHARDS
            generation = Generation(since_ms=world.engine.now_ms(), shard_count=STATIC_SHARDS)
            world.meter.raised(hot, [generation], "by hand")

        world.engine.at(world.scenario.onset + HAND_SECONDS, act)

    routes = SetRoutes(lambda conversation_id: spread.get(conversation_id, 0))
    return _set_by("alarm", lambda _: routes, start=start, skipped_seconds=ALARM_SECONDS - HAND_SECONDS)


def sources() -> Strategy:
    """Take the sources' design.

    Each environment counts its own writes of the last second, repetitions included; past 800 it reports them; a service
    that looks once a minute sets N = ceil(rate / 800) in Redis, which every write and read asks. Reads ask the base key
    as well as the shards, which the sources leave open.
    """
    return _set_by("sources", CountingRoutes)


class CountingRoutes(SetRoutes):
    """Counts an environment's writes of each second, by conversation, and asks Redis for N."""

    def __init__(self, world: World) -> None:
        super().__init__(self._ask)
        self._world, self._client = world, RedisClient(world.redis, timeout_seconds=0.03)
        self._counts: Counter[str] = Counter()
        self._second = -1

    def for_write(self, collection: str) -> Route:
        """Count a write, and report what the last second's counts were: there is no timer, only the next request."""
        second = int(self._world.engine.now)
        if second != self._second:
            ended, self._second, self._counts = self._counts, second, Counter()
            for conversation_id, count in ended.items():
                if count > SOURCES_THRESHOLD_WRITES:
                    self._report(conversation_id, count)
        self._counts[collection] += 1
        return super().for_write(collection)

    def _ask(self, conversation_id: str) -> int:
        """Ask for N; 0 while Redis is away or knows none."""
        key = SOURCES_KEY.format(conversation_id)
        try:
            (count,) = self._client.run_together(key, ("ZSCORE", key, "n"))
            return int(count or 0)
        except RedisError:
            return 0

    def _report(self, conversation_id: str, writes: int) -> None:
        """Have the service set N, when it looks next, if it is larger: an atomic maximum, as the sources' script."""
        world, count = self._world, ceil(writes / SOURCES_THRESHOLD_WRITES)
        generation = Generation(since_ms=EPOCH_MS, shard_count=count)

        def set_count() -> None:
            world.redis.do("ZADD", SOURCES_KEY.format(conversation_id), "GT", count, "n")
            world.meter.raised(conversation_id, [generation], "sources")

        world.engine.at(ceil(world.engine.now / SOURCES_POLL_SECONDS) * SOURCES_POLL_SECONDS, set_count)
