"""What is done about a hot key: this project, and for comparison what teams do without it.

| name | what it does |
|---|---|
| ours | this project |
| in_band | this project without Redis and consumer: writers find what is hot |
| none | DynamoDB alone: everything on the conversation's own key |
| sources | the sources' design taken literally: 800 writes/s in one environment, a poller once a minute, id % N |
| alarm | an alarm, and a person who spreads the conversation over 16 keys after five minutes |
| static | every key is salted with N = 16, always |

The conditional put, the retries within the request, the fan-out and the merge of pages are the product's. Assumption,
not a measurement: how long a person takes (`ALARM_SECONDS`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

from redis.exceptions import RedisError
from ulid import ULID

from hotpartition.core.backoff import Budget
from hotpartition.core.errors import RetryLaterError
from hotpartition.core.merge import PageMerge
from hotpartition.core.route import EMPTY_ROUTE, Generation, Route, stable_hash
from hotpartition.engine.gatherer import Gatherer
from hotpartition.table.fixed import FixedRoutes
from hotpartition_messages import Message
from hotpartition_messages.cursor import Cursor
from hotpartition_messages.keys import KEY_FORM, position_of
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.reading import PageRequest, PageResult, build_range
from hotpartition_messages.writing import NewMessage, Written
from tools.world.clock import EPOCH_MS, Process
from tools.world.functions import FunctionConfig, NoResponseError, TooManyRequestsError
from tools.world.product import (
    Build,
    Calls,
    World,
    build_consumer,
    build_in_band_jobs,
    build_reader,
    build_write_jobs,
    open_reader_calls,
    open_store,
)
from tools.world.redis import RedisClient
from tools.world.scenario import Scenario

Place = Callable[[str, str], str]
"""Chooses the key of a conversation's message."""
Keys = Callable[[str], tuple[str, ...]]
"""Lists all keys that a conversation's messages can be at."""
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
SOURCES_STREAM = "sources:{stream}"
SOURCES_KEY = "sources:n:{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to deal with a hot key: how one environment of each function is built."""

    name: str
    """What it is called in results."""
    build_writer: Build
    build_reader: Build
    build_changer: Build = lambda *where: build_write_jobs(*where)[1].changer
    start: Callable[[World, Scenario], Calls | None] = lambda _world, _scenario: None
    """Starts what runs beside the requests, and returns the function that watches the load."""
    shard_count: int = 0
    """The N of the hot conversation as long as nothing is raised; 0: its own key only."""
    skipped_seconds: float = 0.0
    """How much of the rush is left out, because nothing changes in it before this strategy acts."""


def ours() -> Strategy:
    """Build the product."""
    return _product("ours", build_write_jobs, build_reader, start=start_consumers)


def in_band() -> Strategy:
    """Build the product without Redis and consumer."""
    return _product("in_band", build_in_band_jobs, partial(build_reader, is_in_band=True))


def _product(name: str, build_jobs: Build, build_reader: Build, **others: Any) -> Strategy:
    return Strategy(
        name=name,
        build_writer=lambda *where: build_jobs(*where)[1].messages,
        build_changer=lambda *where: build_jobs(*where)[1].changer,
        build_reader=build_reader,
        **others,
    )


def start_consumers(world: World, scenario: Scenario) -> Calls:
    """Start the consumer now, and again each period."""
    engine, random = world.engine, world.random("schedule")

    consumers = world.open_calls(FunctionConfig(concurrency=CONSUMERS, warm=1), build_consumer, "consumers")
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


class PlainWriter:
    """Puts messages at the keys that `place` chooses, with the product's condition and retries."""

    def __init__(self, world: World, index: int, place: Place) -> None:
        random = world.random(f"writer-{index}")
        self._clock, self._random_bits, self._place = world.clock(random), random.getrandbits, place
        self._store = open_store(world.calls("writer"))
        self._budget_ms, self._observer = world.settings.writer.request_budget_ms, world.store.observer

    def write(self, new: NewMessage) -> Written:
        """Put a message, and put it again for as long as the budget lasts."""
        message_id = new.message_id or mint_message_id(self._clock.now_ms(), self._random_bits)
        message = Message(new.conversation_id, message_id, new.sender, new.body, new.attributes.stored)
        item = message.to_item(self._place(new.conversation_id, message.message_id))
        budget = Budget(self._clock, self._budget_ms)
        while True:
            try:
                return Written(message, is_replay=self._store.create(item) is not None)
            except RetryLaterError as error:
                self._observer.waited()
                if not budget.wait():
                    error.sort_key = message.sort_key
                    raise


@dataclass(slots=True)
class _KeysMerge(PageMerge[str, Message]):
    """A merge over keys that are known beforehand."""

    keys: tuple[str, ...] = ()

    def _needed(self, route: Route, edge: str | None) -> tuple[str, ...]:
        del route, edge
        return self.keys


class PlainReader:
    """Reads pages from the keys that `list_keys` names, with the product's fan-out, retries and merge."""

    def __init__(self, world: World, process: Process, index: int, list_keys: Keys) -> None:
        self._list_keys = list_keys
        self._gatherer = Gatherer(
            store=open_store(open_reader_calls(world, process)),
            routes=FixedRoutes(EMPTY_ROUTE, EMPTY_ROUTE),
            telemetry=world.telemetry,
            clock=world.clock(world.random(f"reader-{index}")),
            budget_ms=world.settings.reader.request_budget_ms,
            form=KEY_FORM,
            has_journal=False,
        )

    def read_page(self, request: PageRequest) -> PageResult:
        """Read a page."""
        page_range = build_range(request)
        if page_range is None:
            return PageResult((), None, "")
        merge = _KeysMerge(page_range, KEY_FORM, position_of, keys=self._list_keys(request.conversation_id))
        self._gatherer.run(merge, request.conversation_id, is_strong=request.is_strong)
        page = merge.page()
        cursor = Cursor(page.items[-1].message_id, walk_started_ms=0) if page.has_more else None
        return PageResult(page.items, cursor, "")


def _fixed(name: str, keys: Keys, place: Place | None = None, **others: Any) -> Strategy:
    """Build a strategy whose keys depend on nothing but the conversation and the message."""
    chosen = place or (lambda conversation_id, message_id: _choose(keys(conversation_id), message_id))
    return Strategy(
        name=name,
        build_writer=lambda world, _, index: PlainWriter(world, index, chosen),
        build_reader=lambda world, process, index: PlainReader(world, process, index, keys),
        **others,
    )


def _choose(keys: tuple[str, ...], message_id: str) -> str:
    return keys[stable_hash(message_id) % len(keys)]


def _shards(conversation_id: str, count: int = STATIC_SHARDS) -> tuple[str, ...]:
    return tuple(KEY_FORM.shard_key(conversation_id, shard) for shard in range(count))


def none() -> Strategy:
    """Leave everything on the conversation's own key."""
    return _fixed("none", lambda conversation_id: (conversation_id,))


def static() -> Strategy:
    """Salt every key, always."""
    return _fixed("static", _shards, shard_count=STATIC_SHARDS)


def alarm() -> Strategy:
    """Have a person spread the hot conversation by hand, over as many keys as `static` has."""
    spread: set[str] = set()

    def list_keys(conversation_id: str) -> tuple[str, ...]:
        return (conversation_id, *(_shards(conversation_id) if conversation_id in spread else ()))

    def place(conversation_id: str, message_id: str) -> str:
        return _choose(list_keys(conversation_id)[1:] or (conversation_id,), message_id)

    def start(world: World, scenario: Scenario) -> None:
        """Let the person act, in the simulated part of the rush."""

        def act() -> None:
            spread.add(scenario.hot_conversation)
            generation = Generation(since_ms=world.engine.now_ms(), shard_count=STATIC_SHARDS)
            world.store.observer.raised(scenario.hot_conversation, [generation], "by hand")

        world.engine.at(scenario.onset + HAND_SECONDS, act)

    return _fixed("alarm", list_keys, place, start=start, skipped_seconds=ALARM_SECONDS - HAND_SECONDS)


def sources() -> Strategy:
    """Take the sources' design literally.

    Each environment counts its own writes of the last second; past 800 it tells the stream; a service that looks at the
    stream once a minute sets N = ceil(rate / 800) in Redis, which every write and read asks. The suffix is the message
    id modulo N. Reads ask the base key as well as the shards, which the sources leave open.
    """

    def build_reader(world: World, process: Process, index: int) -> PlainReader:
        client = RedisClient(world.redis, timeout_seconds=0.03)

        def list_keys(conversation_id: str) -> tuple[str, ...]:
            count = _shards_in_redis(client, conversation_id)
            return (conversation_id, *_shards(conversation_id, count if count > 1 else 0))

        return PlainReader(world, process, index, list_keys)

    return Strategy(name="sources", build_writer=CountingWriter, build_reader=build_reader, start=_start_polling)


class CountingWriter(PlainWriter):
    """Counts its writes of each second, by conversation, and chooses keys by what Redis says."""

    def __init__(self, world: World, _: Process, index: int) -> None:
        super().__init__(world, index, self._choose_key)
        self._engine, self._client = world.engine, RedisClient(world.redis, timeout_seconds=0.03)
        self._counts: Counter[str] = Counter()
        self._second = -1

    def write(self, new: NewMessage) -> Written:
        """Count a write, and report what the last second's counts were: there is no timer, only the next request."""
        second = int(self._engine.now)
        if second != self._second:
            ended, self._second, self._counts = self._counts, second, Counter()
            for conversation_id, count in ended.items():
                said: Any = {"c": conversation_id, "v": str(count)}
                with suppress(RedisError):
                    if count > SOURCES_THRESHOLD_WRITES:
                        self._client.xadd(SOURCES_STREAM, said, minid=0, approximate=True)
        self._counts[new.conversation_id] += 1
        return super().write(new)

    def _choose_key(self, conversation_id: str, message_id: str) -> str:
        """Choose a key as the sources do: the id itself, as the number it is, modulo N."""
        count = _shards_in_redis(self._client, conversation_id)
        if count <= 1:
            return conversation_id
        return KEY_FORM.shard_key(conversation_id, int(ULID.from_str(message_id)) % count)


def _start_polling(world: World, scenario: Scenario) -> None:
    """Start the sources' service."""
    del scenario
    client, random = RedisClient(world.redis, timeout_seconds=1.0), world.random("poller")

    def poll() -> None:
        after = "0-0"
        world.engine.sleep(random.random() * SOURCES_POLL_SECONDS)
        while True:
            with suppress(RedisError):
                read: Any = client.xread({SOURCES_STREAM: after}, count=100_000)
                for _, entries in read:
                    after = entries[-1][0]
                    for _, fields in entries:
                        _raise_in_redis(world, client, fields["c"], int(fields["v"]))
            world.engine.sleep(SOURCES_POLL_SECONDS)

    world.engine.spawn(poll)


def _shards_in_redis(client: RedisClient, conversation_id: str) -> int:
    """Ask for N; 1 while Redis is away or knows none."""
    try:
        score = client.zscore(SOURCES_KEY.format(conversation_id), "n")
    except RedisError:
        return 1
    return int(score or 1)


def _raise_in_redis(world: World, client: RedisClient, conversation_id: str, writes: int) -> None:
    """Set N if it is larger: an atomic maximum, as the sources' script."""
    count = ceil(writes / SOURCES_THRESHOLD_WRITES)
    client.zadd(SOURCES_KEY.format(conversation_id), {"n": count}, gt=True)
    generation = Generation(since_ms=EPOCH_MS, shard_count=count)
    world.store.observer.raised(conversation_id, [generation], "sources")
