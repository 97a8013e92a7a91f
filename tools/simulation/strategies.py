"""Ways to deal with a hot key, behind one interface: each says how its write and read functions are built.

| name | what it does |
|---|---|
| none | DynamoDB alone: everything on the conversation's own key |
| sources | the sources' design taken literally: 800 writes/s in one environment, a poller once a minute, id % N |
| sdk | DynamoDB alone, with boto3's own retries |
| alarm | an alarm, and a person who spreads the conversation over 16 keys after five minutes |
| queue | a queue in front, which is drained at what the table takes |
| static | every key is salted with N = 16, always |
| ours | the product |
| oracle | knows the load in advance: the shards that ours would choose, from before the onset; the bound |

All but the product's own parts (detection, routes, verifying reads) are the same for all: the conditional put, the
retries within the request (but for `sdk` and `queue`), the fan-out and the merge of pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from redis.exceptions import RedisError

from hotpartition.control.consumer import RunSummary
from hotpartition.core.detector import size_route
from hotpartition.core.route import Generation
from hotpartition.redis.cluster import route_key
from hotpartition.runtime.thresholds import build_thresholds
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.writing import NewMessage, Written
from tools.simulation.clients import Lookup, ReadHandler, ReadRequest, ReadResponse, WriteHandler
from tools.simulation.engine import EPOCH_MS, Process
from tools.simulation.functions import Function, FunctionConfig, NoResponseError, TooManyRequestsError
from tools.simulation.plain import PlainReader, PlainWriter, Strategy
from tools.simulation.redis_model import RedisClient
from tools.simulation.rivals import Alarm, Queue, none, sdk, static
from tools.simulation.scenarios import Scenario
from tools.simulation.wiring import TABLE_NAME, World, build_consumer, build_reader, build_writer

CONSUMERS = 3
"""The consumer's reserved concurrency."""
CONSUMER_RUN_SECONDS = 170.0
SOURCES_THRESHOLD_WRITES = 800
SOURCES_POLL_SECONDS = 60.0
SOURCES_STREAM = "sources:{stream}"
SOURCES_KEY = "sources:n:{}"
ORACLE_LEAD_SECONDS = 0.5
"""How long before the onset the oracle's shards begin."""


@dataclass(slots=True)
class Ours(Strategy):
    """The product."""

    name: str = "ours"

    def start(self, world: World, scenario: Scenario) -> None:
        """Start the consumer now, and again each period."""
        engine, random = world.engine, world.random("schedule")

        def build(process: Process, index: int) -> Callable[[float], RunSummary]:
            consumer = build_consumer(world, process, index)
            return lambda run_seconds: consumer.run(run_seconds * 1000)

        config = FunctionConfig(concurrency=CONSUMERS, warm=1)
        consumers = self.watchers = Function(engine, config, build, world.random("consumers"))

        def run() -> None:
            # One that is refused or dies is not missed: the next one begins where it ended.
            with suppress(TooManyRequestsError, NoResponseError):
                consumers.invoke(CONSUMER_RUN_SECONDS, timeout_seconds=CONSUMER_RUN_SECONDS + 10)

        def schedule(index: int) -> None:
            base = index * scenario.schedule.period_seconds
            engine.at(base + random.random() * scenario.schedule.jitter_seconds, lambda: engine.spawn(run))
            engine.at(base + scenario.schedule.period_seconds, lambda: schedule(index + 1))

        engine.spawn(run)
        schedule(1)

    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Implement `Strategy.build_writer`."""
        return build_writer(world, process, index).write

    def build_reader(self, world: World, process: Process, index: int) -> ReadHandler:
        """Implement `Strategy.build_reader`."""
        reader = build_reader(world, process, index)

        def read(request: ReadRequest) -> ReadResponse:
            if isinstance(request, Lookup):
                return reader.read_message(request.conversation_id, request.message_id, is_strong=request.is_strong)
            return reader.read_page(request)

        return read


@dataclass(slots=True)
class Oracle(Ours):
    """The product with a route that somebody put there in advance, and nobody who watches."""

    name: str = "oracle"

    def start(self, world: World, scenario: Scenario) -> None:
        """Put the route where the functions look for it."""
        since_ms = EPOCH_MS + int((scenario.onset - ORACLE_LEAD_SECONDS) * 1000)
        generation = Generation(since_ms=since_ms, shard_count=self.shard_count(scenario))
        world.store.preset(scenario.hot_conversation, [generation], updated_ms=EPOCH_MS)
        key = route_key(TABLE_NAME, scenario.hot_conversation)
        world.redis.node_of(key).change(0.0, lambda data: data.sadd(key, (generation.encode(),)))

    def shard_count(self, scenario: Scenario) -> int:
        """Implement `Strategy.shard_count`."""
        thresholds = build_thresholds(scenario.settings.consumer)
        return min(size_route(scenario.oracle_wcu, thresholds), thresholds.max_shard_count)


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
                    for _, entries in client.xread({SOURCES_STREAM: after}, count=100_000):
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
    return KEY_FORM.shard_key(conversation_id, id_number(message_id) % count)


def id_number(message_id: str) -> int:
    """Read a ULID as the number that it stands for."""
    number = 0
    for character in message_id:
        number = number * 32 + _CROCKFORD.index(character)
    return number


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


STRATEGIES: Mapping[str, Callable[[], Strategy]] = {
    "none": none,
    "sdk": sdk,
    "sources": Sources,
    "alarm": Alarm,
    "queue": Queue,
    "static": static,
    "ours": Ours,
    "oracle": Oracle,
}
