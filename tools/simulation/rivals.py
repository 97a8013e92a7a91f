"""What teams do about a hot key without this project: nothing, salt everything, wait for an alarm, put a queue first.

Assumptions, not measurements: how long a person takes (`ALARM_SECONDS`), what SQS takes to accept and to hand over, and
that the queue is one for all conversations. Its consumers are patient: they put a message again until it is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hotpartition.core.backoff import Clock
from hotpartition.core.capacity import Item
from hotpartition.core.route import Generation, stable_hash
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.errors import RetryLaterError
from hotpartition_messages import Message
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.writing import NewMessage
from tools.partition_model.latency import READ_PROFILE, WRITE_PROFILE, LatencyProfile
from tools.simulation.clients import Accepted, ReadHandler, WriteHandler
from tools.simulation.engine import Process, SimulatedFuture
from tools.simulation.plain import Keys, Place, PlainReader, PlainWriter, Retries, Strategy
from tools.simulation.scenarios import Scenario
from tools.simulation.wiring import TABLE, World

STATIC_SHARDS = 16

SDK_ATTEMPTS = 10
SDK_BASE_SECONDS = 0.05
FUNCTION_SECONDS = 10.0
"""The write function's timeout."""

ALARM_SECONDS = 300.0
"""From the onset until a person has spread the conversation: an alarm of CloudWatch looks at whole minutes, somebody
reads it, finds the key and changes a setting."""
HAND_SECONDS = 6.0
"""When that happens in the simulated part of the rush; up to then one second is like the other."""

SEND_SECONDS = 0.01
POLL_SECONDS = 0.02
DRAINERS = 5
BATCH = 10
PAUSE_SECONDS = 0.1
"""Longest time before a refused message is put again."""


@dataclass(slots=True)
class Fixed(Strategy):
    """Keys that depend on nothing but the conversation and the message."""

    place: Place
    keys: Keys
    shards: int = 0
    retries: Retries | None = None

    def shard_count(self, scenario: Scenario) -> int:
        """Implement `Strategy.shard_count`."""
        del scenario
        return self.shards

    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Implement `Strategy.build_writer`."""
        del process
        return PlainWriter(world, index, self.place, self.retries).write

    def build_reader(self, world: World, process: Process, index: int) -> ReadHandler:
        """Implement `Strategy.build_reader`."""
        return PlainReader(world, process, index, self.keys).read


def none() -> Fixed:
    """DynamoDB alone."""
    return Fixed("none", _base_key, _only_base_key)


def sdk() -> Fixed:
    """DynamoDB alone, and boto3's own retries."""
    return Fixed("sdk", _base_key, _only_base_key, retries=SdkRetries)


def static() -> Fixed:
    """Every key salted, always."""
    return Fixed("static", _salted, _shards, shards=STATIC_SHARDS)


class SdkRetries:
    """boto3's default for DynamoDB (mode "legacy"): ten attempts, 50 ms and then twice as long each time.

    Source: `data/_retry.json` of botocore. What still waits when the function's time is up has failed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._attempts = 1
        self._left = FUNCTION_SECONDS

    def wait(self) -> bool:
        """Wait before the next attempt; False when there is to be none."""
        seconds = SDK_BASE_SECONDS * 2 ** (self._attempts - 1)
        self._attempts += 1
        is_in_time = seconds < self._left
        self._clock.sleep(min(seconds, self._left))
        self._left -= seconds
        return is_in_time and self._attempts <= SDK_ATTEMPTS


class Alarm(Fixed):
    """An alarm, and a person who spreads the hot conversation by hand, over as many keys as `static` has."""

    def __init__(self) -> None:
        super().__init__("alarm", self._place, self._list_keys, skipped_seconds=ALARM_SECONDS - HAND_SECONDS)
        self._spread: set[str] = set()

    def start(self, world: World, scenario: Scenario) -> None:
        """Let the person act, in the simulated part of the rush."""

        def spread() -> None:
            self._spread.add(scenario.hot_conversation)
            generation = Generation(since_ms=world.engine.now_ms(), shard_count=STATIC_SHARDS)
            world.store.observer.raised(scenario.hot_conversation, [generation], "by hand")

        world.engine.at(scenario.onset + HAND_SECONDS, spread)

    def _place(self, conversation_id: str, message_id: str) -> str:
        place = _salted if conversation_id in self._spread else _base_key
        return place(conversation_id, message_id)

    def _list_keys(self, conversation_id: str) -> tuple[str, ...]:
        shards = _shards(conversation_id) if conversation_id in self._spread else ()
        return (conversation_id, *shards)


class Queue(Fixed):
    """A queue in front of the table. Its consumers put what they get on the conversation's own key."""

    def __init__(self) -> None:
        super().__init__("queue", _base_key, _only_base_key)
        self._waiting: deque[tuple[Item, SimulatedFuture[None]]] = deque()

    def start(self, world: World, scenario: Scenario) -> None:
        """Start the consumers."""
        del scenario
        for index in range(DRAINERS):
            world.engine.spawn(self._drainer(world, index))

    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Implement `Strategy.build_writer`: a message is accepted when the queue has it."""
        del process
        writer = PlainWriter(world, index, self.place)

        def accept(new: NewMessage) -> Accepted:
            message = writer.name_message(new)
            world.engine.sleep(SEND_SECONDS)
            stored: SimulatedFuture[None] = SimulatedFuture(world.engine)
            self._waiting.append((message.to_item(new.conversation_id), stored))
            return Accepted(message, stored)

        return accept

    def _drainer(self, world: World, index: int) -> Callable[[], None]:
        random = world.random(f"drainer-{index}")
        store = DynamoDBItemStore(ThreadedCalls(world.store.client("writer").call), TABLE, Message.from_item)

        def put(item: Item) -> None:
            while True:
                try:
                    store.create(item)
                except RetryLaterError:
                    world.store.observer.waited()
                    world.engine.sleep(random.random() * PAUSE_SECONDS)
                else:
                    return

        def drain() -> None:
            while True:
                world.engine.sleep(POLL_SECONDS)
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                for item, stored in batch:
                    put(item)
                    stored.set_result(None)

        return drain


def _base_key(conversation_id: str, message_id: str) -> str:
    del message_id
    return conversation_id


def _only_base_key(conversation_id: str) -> tuple[str, ...]:
    return (conversation_id,)


def _salted(conversation_id: str, message_id: str) -> str:
    return KEY_FORM.shard_key(conversation_id, stable_hash(message_id) % STATIC_SHARDS)


def _shards(conversation_id: str) -> tuple[str, ...]:
    return tuple(KEY_FORM.shard_key(conversation_id, shard) for shard in range(STATIC_SHARDS))


def comparison_assumptions(scenario: Scenario) -> tuple[str, ...]:
    """List what is assumed beyond AWS's own words."""
    clients, writers = scenario.clients, scenario.writers
    return (
        "Clients are open-loop: new writes come whether earlier ones are answered or not.",
        (
            f"A refused client repeats after {clients.retry_after_seconds:g} s or up to half as long again, and gives "
            f"up after {clients.attempts} attempts; each is a request that itself tries for "
            f"{scenario.settings.writer.requests.request_budget_ms} ms."
        ),
        f"A write takes {_profile(WRITE_PROFILE)} in DynamoDB, a query {_profile(READ_PROFILE)} (assumed).",
        (
            f"{writers.warm:,} execution environments are warm; each serves one request at a time, and a request goes "
            "to any idle one."
        ),
        (
            "The table's partitions are equal hash ranges with 1,000 write and 3,000 read units a second each, and no "
            "burst above that; none is split during the run."
        ),
        (
            f"{scenario.other_wcu:,.0f} WCU/s of other traffic are charged evenly to all partitions, not request by "
            "request."
        ),
        (
            f"The person whom an alarm calls has spread the conversation {ALARM_SECONDS:.0f} s after the onset; every "
            f"environment follows at once. Of the time before, {HAND_SECONDS:.0f} s are simulated."
        ),
        (
            f"A queue takes {1000 * SEND_SECONDS:.0f} ms to accept a message and up to {1000 * POLL_SECONDS:.0f} ms to "
            f"hand it over; {DRAINERS} consumers write {BATCH} messages each, one after the other, and put one that is "
            f"refused again within {1000 * PAUSE_SECONDS:.0f} ms until it is stored."
        ),
        (
            "Where items are large, a quarter of a second holds few of them: N varies more than with small ones, for "
            "which `make simulate-step` has it."
        ),
        "Redis is up all the time; every strategy that uses it is spared its failures here.",
        (
            "The consumer runs when the rush begins: EventBridge Scheduler starts one each minute, give or take, and "
            "each works until the next is there."
        ),
    )


def _profile(profile: LatencyProfile) -> str:
    at = profile.percentiles_ms
    return f"{at[50]:g} ms (p50), {at[99]:g} ms (p99), {at[99.9]:g} ms (p99.9)"
