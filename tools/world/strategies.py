"""What teams do about a hot key without this project, for comparison.

| name | what it does |
|---|---|
| none | DynamoDB alone: everything on the conversation's own key |
| sources | the sources' design taken literally: 800 writes/s in one environment, a poller once a minute, id % N |
| alarm | an alarm, and a person who spreads the conversation over 16 keys after five minutes |
| static | every key is salted with N = 16, always |

The conditional put, the retries within the request, the fan-out and the merge of pages are the product's. Assumption,
not a measurement: how long a person takes (`ALARM_SECONDS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import Any

from redis.exceptions import RedisError
from ulid import ULID

from hotpartition.core.backoff import Budget
from hotpartition.core.errors import RetryLaterError
from hotpartition.core.merge import KeyQuery, PageMerge, QueryResponse
from hotpartition.core.route import EMPTY_ROUTE, Generation, Route, stable_hash
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition_messages import Message
from hotpartition_messages.cursor import Cursor
from hotpartition_messages.errors import MessageNotFoundError
from hotpartition_messages.keys import KEY_FORM, build_sort_key, position_of
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.reading import PageResult, build_range
from hotpartition_messages.writing import NewMessage, Written
from tools.world.clients import Lookup, ReadHandler, ReadRequest, ReadResponse, WriteHandler
from tools.world.clock import EPOCH_MS, Process
from tools.world.product import TABLE, World, open_reader_calls
from tools.world.redis import RedisClient
from tools.world.run import HAND_SECONDS
from tools.world.scenario import Scenario
from tools.world.strategy import Strategy

Place = Callable[[str, str], str]
"""Chooses the key of a conversation's message."""
Keys = Callable[[str], tuple[str, ...]]
"""Lists all keys that a conversation's messages can be at."""
STATIC_SHARDS = 16
ALARM_SECONDS = 300.0
"""From the onset until a person has spread the conversation: an alarm of CloudWatch looks at whole minutes, somebody
reads it, finds the key and changes a setting."""
SOURCES_THRESHOLD_WRITES = 800
SOURCES_POLL_SECONDS = 60.0
SOURCES_STREAM = "sources:{stream}"
SOURCES_KEY = "sources:n:{}"


class PlainWriter:
    """Puts messages at the keys that it is told, with the product's condition and retries."""

    def __init__(self, world: World, index: int, place: Place) -> None:
        random = world.random(f"writer-{index}")
        self._clock = world.clock(random)
        self._store = DynamoDBItemStore(ThreadedCalls(world.store.client("writer").call), TABLE, Message.from_item)
        self._random_bits = random.getrandbits
        self._budget_ms = world.settings.writer.request_budget_ms
        self._place = place
        self._observer = world.store.observer

    def write(self, new: NewMessage) -> Written:
        """Put a message, and put it again for as long as the budget lasts."""
        message = self.name_message(new)
        item = message.to_item(self._place(new.conversation_id, message.message_id))
        budget = Budget(self._clock, self._budget_ms)
        while True:
            try:
                existing = self._store.create(item)
            except RetryLaterError as error:
                self._observer.waited()
                if not budget.wait():
                    error.sort_key = message.sort_key
                    raise
                continue
            return Written(message, is_replay=existing is not None)

    def name_message(self, new: NewMessage) -> Message:
        """Build the message, with an id if the client gave none."""
        message_id = new.message_id or mint_message_id(self._clock.now_ms(), self._random_bits)
        return Message(new.conversation_id, message_id, new.sender, new.body, new.attributes.stored)


@dataclass(slots=True)
class _KeysMerge(PageMerge[str, Message]):
    """A merge over keys that are known beforehand."""

    keys: tuple[str, ...] = ()

    def _needed(self, route: Route, edge: str | None) -> tuple[str, ...]:
        del route, edge
        return self.keys


class PlainReader:
    """Reads pages from the keys that it is told, with the product's fan-out, retries and merge."""

    def __init__(self, world: World, process: Process, index: int, keys: Keys) -> None:
        settings = world.settings.reader
        self._clock = world.clock(world.random(f"reader-{index}"))
        calls = open_reader_calls(world, process)
        self._store = DynamoDBItemStore(calls, TABLE, Message.from_item)
        self._budget_ms = settings.request_budget_ms
        self._keys = keys

    def read(self, request: ReadRequest) -> ReadResponse:
        """Read a page, or one message."""
        if isinstance(request, Lookup):
            return self._look_up(request)
        page_range = build_range(request)
        if page_range is None:
            return PageResult((), None, "")
        budget = Budget(self._clock, self._budget_ms)
        merge = _KeysMerge(page_range, KEY_FORM, position_of, keys=self._keys(request.conversation_id))
        while queries := merge.next_queries(EMPTY_ROUTE):
            self._run_round(merge, queries, budget, is_strong=request.is_strong)
        page = merge.page()
        cursor = Cursor(page.items[-1].message_id, walk_started_ms=0) if page.has_more else None
        return PageResult(page.items, cursor, "")

    def _run_round(
        self, merge: PageMerge[str, Message], queries: list[KeyQuery[str]], budget: Budget, *, is_strong: bool
    ) -> None:
        while queries:
            fetched = self._store.fetch(queries, is_strong=is_strong)
            failures: list[tuple[KeyQuery[str], RetryLaterError]] = []
            for query, response in zip(queries, fetched.responses, strict=True):
                if isinstance(response, QueryResponse):
                    merge.add(query, response)
                else:
                    failures.append((query, response))
            if failures and not budget.wait():
                raise failures[0][1]
            queries = [query for query, _ in failures]

    def _look_up(self, lookup: Lookup) -> Message:
        keys = self._keys(lookup.conversation_id)
        places = [(key, build_sort_key(lookup.message_id)) for key in keys]
        found = self._store.get(places, is_strong=True).copies
        if not found:
            raise MessageNotFoundError(lookup.conversation_id, lookup.message_id)
        return found[0].item


@dataclass(slots=True)
class Fixed(Strategy):
    """Keys that depend on nothing but the conversation and the message."""

    keys: Keys
    shards: int = 0

    def shard_count(self, scenario: Scenario) -> int:
        """Implement `Strategy.shard_count`."""
        del scenario
        return self.shards

    def place(self, conversation_id: str, message_id: str) -> str:
        """Choose one of all keys."""
        return _choose(self.keys(conversation_id), message_id)

    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Implement `Strategy.build_writer`."""
        del process
        return PlainWriter(world, index, self.place).write

    def build_reader(self, world: World, process: Process, index: int) -> ReadHandler:
        """Implement `Strategy.build_reader`."""
        return PlainReader(world, process, index, self.keys).read


class Alarm(Fixed):
    """An alarm, and a person who spreads the hot conversation by hand, over as many keys as `static` has."""

    def __init__(self) -> None:
        super().__init__("alarm", self._list_keys, skipped_seconds=ALARM_SECONDS - HAND_SECONDS)
        self._spread: set[str] = set()

    def start(self, world: World, scenario: Scenario) -> None:
        """Let the person act, in the simulated part of the rush."""

        def spread() -> None:
            self._spread.add(scenario.hot_conversation)
            generation = Generation(since_ms=world.engine.now_ms(), shard_count=STATIC_SHARDS)
            world.store.observer.raised(scenario.hot_conversation, [generation], "by hand")

        world.engine.at(scenario.onset + HAND_SECONDS, spread)

    def place(self, conversation_id: str, message_id: str) -> str:
        """Choose one of the shards, once there are any."""
        return _choose(self._list_keys(conversation_id)[1:] or (conversation_id,), message_id)

    def _list_keys(self, conversation_id: str) -> tuple[str, ...]:
        shards = _shards(conversation_id) if conversation_id in self._spread else ()
        return (conversation_id, *shards)


def _choose(keys: tuple[str, ...], message_id: str) -> str:
    return keys[stable_hash(message_id) % len(keys)]


def base_key(conversation_id: str) -> tuple[str, ...]:
    """List the one key of a conversation that is not sharded."""
    return (conversation_id,)


def _shards(conversation_id: str) -> tuple[str, ...]:
    return tuple(KEY_FORM.shard_key(conversation_id, shard) for shard in range(STATIC_SHARDS))


@dataclass(slots=True)
class Sources(Strategy):
    """The sources' design taken literally.

    Each environment counts its own writes of the last second; past 800 it tells the stream; a service that looks at the
    stream once a minute sets N = ceil(rate / 800) in Redis, which every write and read asks. The suffix is the message
    id modulo N. Reads ask the base key as well as the shards, which the sources leave open.
    """

    name: str = "sources"

    def start(self, world: World, scenario: Scenario) -> None:
        """Start the service."""
        del scenario
        client = RedisClient(world.redis, timeout_seconds=1.0)
        random = world.random("poller")

        def poll() -> None:
            after = "0-0"
            world.engine.sleep(random.random() * SOURCES_POLL_SECONDS)
            while True:
                with suppress(RedisError):
                    read: Any = client.xread({SOURCES_STREAM: after}, count=100_000)
                    for _, entries in read:
                        after = entries[-1][0]
                        for _, fields in entries:
                            _raise_in_redis(world, client, fields)
                world.engine.sleep(SOURCES_POLL_SECONDS)

        world.engine.spawn(poll)

    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Implement `Strategy.build_writer`."""
        del process
        counter = _LocalCounter(world)
        writer = PlainWriter(world, index, lambda c, m: _source_key(_shards_in_redis(counter.client, c), c, m))

        def write(new: NewMessage) -> Written:
            counter.record(new.conversation_id)
            return writer.write(new)

        return write

    def build_reader(self, world: World, process: Process, index: int) -> ReadHandler:
        """Implement `Strategy.build_reader`."""
        client = RedisClient(world.redis, timeout_seconds=0.03)

        def keys(conversation_id: str) -> tuple[str, ...]:
            count = _shards_in_redis(client, conversation_id)
            shards = range(count) if count > 1 else ()
            return (conversation_id, *(KEY_FORM.shard_key(conversation_id, shard) for shard in shards))

        return PlainReader(world, process, index, keys).read


class _LocalCounter:
    """One environment's writes of the last second, by conversation."""

    def __init__(self, world: World) -> None:
        self.client = RedisClient(world.redis, timeout_seconds=0.03)
        self._world = world
        self._second = -1
        self._counts: dict[str, int] = {}

    def record(self, conversation_id: str) -> None:
        """Count a write, and tell what the last second's counts were: there is no timer, only the next request."""
        second = int(self._world.engine.now)
        if second != self._second:
            hot = {c: count for c, count in self._counts.items() if count > SOURCES_THRESHOLD_WRITES}
            self._second, self._counts = second, {}
            for conversation, count in hot.items():
                with suppress(RedisError):
                    self.client.xadd(SOURCES_STREAM, {"c": conversation, "v": str(count)}, minid=0, approximate=True)
        self._counts[conversation_id] = self._counts.get(conversation_id, 0) + 1


def _shards_in_redis(client: RedisClient, conversation_id: str) -> int:
    """Ask for N; 1 while Redis is away or knows none."""
    try:
        score = client.zscore(SOURCES_KEY.format(conversation_id), "n")
    except RedisError:
        return 1
    return int(score or 1)


def _raise_in_redis(world: World, client: RedisClient, fields: Mapping[str, str]) -> None:
    """Set N if it is larger: an atomic maximum, as the sources' script."""
    count = ceil(int(fields["v"]) / SOURCES_THRESHOLD_WRITES)
    client.zadd(SOURCES_KEY.format(fields["c"]), {"n": count}, gt=True)
    generation = Generation(since_ms=EPOCH_MS, shard_count=count)
    world.store.observer.raised(fields["c"], [generation], "sources")


def _source_key(count: int, conversation_id: str, message_id: str) -> str:
    """Choose a key as the sources do: the id itself, as the number it is, modulo N."""
    if count <= 1:
        return conversation_id
    return KEY_FORM.shard_key(conversation_id, int(ULID.from_str(message_id)) % count)


def static() -> Fixed:
    """Salt every key, always."""
    return Fixed("static", _shards, shards=STATIC_SHARDS)
