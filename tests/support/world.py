"""One world in memory under the unit tests: the product's adapters on the simulator's DynamoDB and Redis.

Nothing takes time here but what a test lets pass. What is asked of DynamoDB is listed in words, such as `put c#1`,
`query c` or `get c`, which reads a routing item.

It is long because tests look at what is stored, and change it, in the product's own form: each view reads and writes
real items and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from email.utils import formatdate
from random import Random
from typing import Any, Generic, TypeVar

from hotpartition.core.errors import MalformedGenerationError, RegistryUnavailableError, RetryLaterError
from hotpartition.core.ports import JournalEntry, StreamEntry
from hotpartition.core.reports import Report
from hotpartition.core.route import Route
from hotpartition.core.times import StoreClock, format_time
from hotpartition.dynamodb.calls import build_error
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore, decode_cell, describe_counters
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.load_items import DynamoDBLoadItems
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.stored_route import read_entry, routing_partition_of
from hotpartition.dynamodb.table import LOAD_PREFIX
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.redis.cluster import read_hot_key, reports_key, route_key, warm_key
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import RedisReportSink, RedisReportSource
from hotpartition_messages import Message
from hotpartition_messages.keys import ROUTING_SORT_KEY
from support.fakes import FakeClock, FakeTelemetry, InlineBackground
from support.tables import TABLE, TABLE_NAME, TABLE_SCHEMA
from tools.limits.request_tokens import RequestTokens
from tools.world.dynamodb import DynamoDB, DynamoDBError, Gate
from tools.world.redis import RedisServer, SimulatedConnection

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
Place = tuple[str, str]
"""An item's partition key and sort key."""


class View(MutableMapping[KeyT, ValueT], Generic[KeyT, ValueT]):
    """What is stored, as a mapping: `find` finds one value, and `write` writes one; None is no value.

    `names` may list some that have none.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[KeyT]],
        find: Callable[[KeyT], ValueT | None],
        write: Callable[[KeyT, ValueT | None], object],
    ) -> None:
        self._names, self._find, self._write = names, find, write

    def __getitem__(self, key: KeyT) -> ValueT:
        found = self._find(key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        self._write(key, value)

    def __delitem__(self, key: KeyT) -> None:
        self._write(key, None)

    def __iter__(self) -> Iterator[KeyT]:
        return (name for name in self._names() if self._find(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Table(DynamoDBItemStore[Message], Gate):
    """The table of messages, their routing items and counters.

    `failures` are raised by the next requests, one each. `on_call` gets the words of each request before it happens,
    and may change the world, or raise; `cancels` returns an error for what is under way, a transaction under a token
    for instance; `loses` returns one for what has happened.
    """

    def __init__(self, *, binds_cancelled: bool = False) -> None:
        self.dynamodb = DynamoDB(self)
        self.dynamodb.tokens = RequestTokens(binds_cancelled=binds_cancelled)
        self.dynamodb.call("CreateTable", {"TableName": TABLE_NAME, **TABLE_SCHEMA})
        self.calls: list[str] = []
        self.failures: list[RetryLaterError | None] = []
        self.on_call: Callable[[str], None] = lambda _: None
        self._under_way = ""
        """The words of the request that is, until it is about to write."""
        self.cancels: Callable[[str], Exception | None] = lambda _: None
        self.loses: Callable[[str], Exception | None] = lambda _: None
        self.lagging: dict[str, JournalEntry] = {}
        """What an eventually consistent look at a routing item sees instead of it."""
        self.date_ms: Callable[[], int | None] = lambda: None
        """DynamoDB's `Date`."""
        self.now_ms: Callable[[], int] = lambda: 0
        calls = ThreadedCalls(self.send)
        counters = describe_counters(TABLE_NAME, "c", journal=TABLE.journal, keys=TABLE.keys)
        super().__init__(calls, TABLE, Message.from_item)
        self.journal = DynamoDBJournal(calls, TABLE.journal)
        self.routing_items = DynamoDBRoutingItems(calls, TABLE.journal)
        self.counters = DynamoDBCounterStore(calls, counters)
        self.cells = DynamoDBItemStore(calls, counters, decode_cell)
        self.loads = DynamoDBLoadItems(calls, TABLE.journal, StoreClock(), lambda: self.now_ms())  # noqa: PLW0108 - it is set later
        self.routes = View(self._collections, self._find_route, self._write_route)
        self.items = View(lambda: self._places(of_routes=False), self._find, self._write)

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why each route grew last."""
        items = {collection: self._find(_place_of(collection)) or {} for collection in self._collections()}
        return {collection: item["reason"]["S"] for collection, item in items.items() if "reason" in item}

    def send(self, operation: str, request: Mapping[str, Any]) -> Any:
        """Do what a request of the adapters asks for."""
        words = _describe(operation, request)
        self.calls.append(words)
        self.on_call(words)
        _raise(self.failures.pop(0) if self.failures else None)
        try:
            response = self._respond(operation, request, words)
        except DynamoDBError as error:
            raise build_error(error.code, status=error.status, explanation=str(error), facts=error.facts) from error
        _raise(self.loses(words))
        date_ms = self.date_ms()
        headers = {} if date_ms is None else {"date": formatdate(date_ms // 1000, usegmt=True)}
        return {**response, "ResponseMetadata": {"HTTPHeaders": headers}}

    def _respond(self, operation: str, request: Mapping[str, Any], words: str) -> Mapping[str, Any]:
        lagging = self.lagging.get(words.removeprefix("get "))
        if lagging is not None and not request.get("ConsistentRead"):
            return {"Item": item} if (item := _routing_item(words.removeprefix("get "), lagging)) else {}
        self._under_way = words
        try:
            return self.dynamodb.call(operation, request, now=self.now_ms() / 1000)
        finally:
            self._under_way = ""

    def refuse_write(self, partition_key: str, units: float) -> None:
        """Implement `Gate.refuse_write`: raise what cancels the request."""
        del partition_key, units
        words, self._under_way = self._under_way, ""
        if words:
            _raise(self.cancels(words))

    def spoil_route(self, collection: str, *members: str) -> None:
        """Store a routing item that cannot be read."""
        item = _routing_item(collection, JournalEntry(Route.decode(["1@0"]), 1_000)) or {}
        self._write(_place_of(collection), {**item, "generations": {"SS": members or ["x"]}})

    def _places(self, *, of_routes: bool) -> list[Place]:
        places = [(item["pk"]["S"], item["sk"]["S"]) for item in self.dynamodb.tables[TABLE_NAME].items()]
        return [place for place in places if (place[1] == ROUTING_SORT_KEY) is of_routes]

    def _collections(self) -> list[str]:
        return [name for name, _ in self._places(of_routes=True) if not name.startswith(LOAD_PREFIX)]

    def _find(self, place: Place) -> Mapping[str, Any] | None:
        return self.dynamodb.call("GetItem", _request_of(place)).get("Item")

    def _write(self, place: Place, item: Mapping[str, Any] | None) -> None:
        if item is None:
            self.dynamodb.call("DeleteItem", _request_of(place))
        else:
            self.dynamodb.call("PutItem", {"TableName": TABLE_NAME, "Item": item})

    def _find_route(self, collection: str) -> JournalEntry | None:
        item = self._find(_place_of(collection))
        with suppress(MalformedGenerationError):
            return None if item is None else read_entry(item)
        return None

    def _write_route(self, collection: str, entry: JournalEntry | None) -> None:
        place, item = _place_of(collection), _routing_item(collection, entry or JournalEntry())
        self._write(place, item and {**(self._find(place) or {}), **item})


def _place_of(collection: str) -> Place:
    """Say where a collection's routing item lies."""
    return collection, ROUTING_SORT_KEY


def _request_of(place: Place) -> dict[str, Any]:
    return {"TableName": TABLE_NAME, "Key": {"pk": {"S": place[0]}, "sk": {"S": place[1]}}}


def _routing_item(collection: str, entry: JournalEntry) -> Mapping[str, Any] | None:
    members = sorted(entry.route.encode())
    times = {} if entry.updated_at_ms is None else {"updated_at": {"S": format_time(entry.updated_at_ms)}}
    listed = {"generations": {"SS": members}, "routing_partition": {"S": routing_partition_of(collection)}}
    return {**TABLE.journal.key_of(collection), **listed, **times} if members else None


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


def _describe(operation: str, request: Mapping[str, Any]) -> str:
    """Say in words what a request does."""
    match operation:
        case "Query" if "IndexName" in request:
            return "page" if request["ScanIndexForward"] else "newest"
        case "Query":
            return f"query {request['ExpressionAttributeValues'][':pk']['S']}"
        case "BatchGetItem":
            keys = [key for asked in request["RequestItems"].values() for key in asked["Keys"]]
            return f"batch-get {','.join(key['pk']['S'] for key in keys if key['sk']['S'] != ROUTING_SORT_KEY)}"
        case "PutItem":
            is_new = "ReturnValuesOnConditionCheckFailure" in request
            return f"{'put' if is_new else 'replace'} {request['Item']['pk']['S']}"
        case "TransactWriteItems" if "Update" in request["TransactItems"][0]:
            return f"add {request['TransactItems'][0]['Update']['Key']['pk']['S']}"
        case "TransactWriteItems":
            return f"replace {','.join(action['Put']['Item']['pk']['S'] for action in request['TransactItems'])}"
        case "UpdateItem":
            is_route = request["Key"]["sk"]["S"] == ROUTING_SORT_KEY
            return f"{'update' if is_route else 'add'} {request['Key']['pk']['S']}"
    return f"get {request['Key']['pk']['S']}"


class Instant:
    """The simulator's engine where nothing takes time, and a test's clock says when it is."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    @property
    def now(self) -> float:
        return self._clock.now_ms / 1000

    def now_ms(self) -> int:
        return self._clock.now_ms

    def sleep(self, seconds: float) -> None:
        """Take no time."""

    def call(self, _: float, effect: Callable[[], ValueT], __: float) -> ValueT:
        return effect()

    def after(self, _: float, effect: Callable[[], None]) -> None:
        effect()


def connect(clock: FakeClock, *, nodes: int = 1, cooldown_ms: int = 0) -> tuple[RedisServer, SimulatedConnection]:
    """Start a Redis, and connect to it."""
    engine: Any = Instant(clock)
    server = RedisServer(engine, nodes=nodes, random=Random(1))
    return server, SimulatedConnection(server, timeout_ms=60_000, cooldown_ms=cooldown_ms)


class OnItsOwn:
    """An adapter on a Redis of its own, which can be down."""

    server: RedisServer

    @property
    def is_down(self) -> bool:
        return self.server.nodes[0].is_down

    @is_down.setter
    def is_down(self, is_down: bool) -> None:
        self.server.nodes[0].is_down = is_down


class Registry(OnItsOwn, RedisRegistry):
    """The registry on a Redis of its own; what it holds can be looked at, and changed."""

    def __init__(self, clock: FakeClock) -> None:
        self.server, connection = connect(clock)
        super().__init__(connection, TABLE_NAME)
        self._clock = clock
        self.reads = 0
        self.routes = View(lambda: self._named(route_key), self._find_route, self._write_route)

    @property
    def read_hot(self) -> list[str]:
        """What is marked read-hot."""
        return [name for name in self._named(read_hot_key) if self.server.do("EXISTS", read_hot_key(TABLE_NAME, name))]

    @property
    def warm_until_ms(self) -> dict[str, int]:
        """Until when keys are marked warm."""
        left_ms = {name: self.server.do("PTTL", warm_key(TABLE_NAME, name)) for name in self._named(warm_key)}
        return {name: self._clock.now_ms + left for name, left in left_ms.items() if left > 0}

    def _read(self, *read: Any) -> Route:
        self.reads += 1
        return super()._read(*read)

    def _named(self, key_of: Callable[[str, str], str]) -> list[str]:
        """List what ever had a key of one kind."""
        before, after = key_of(TABLE_NAME, "\0").split("\0")
        keys = [key for key in self.server.named_keys() if key.startswith(before) and key.endswith(after)]
        return [key.removeprefix(before).removesuffix(after) for key in keys]

    def _find_route(self, collection: str) -> Route | None:
        members = self.server.do("SMEMBERS", route_key(TABLE_NAME, collection))
        return Route.decode([member.decode() for member in members]) if members else None

    def _write_route(self, collection: str, route: Route | None) -> None:
        key = route_key(TABLE_NAME, collection)
        self.server.do("DEL", key)
        if route:
            self.server.do("SADD", key, *route.encode())


class Pages(OnItsOwn, RedisPageStore):
    """The cached pages on a Redis of their own."""

    def __init__(self, clock: FakeClock) -> None:
        self.server, connection = connect(clock)
        super().__init__(connection, TABLE_NAME, FakeTelemetry(), lambda: clock.now_ms / 1000)


class Reports(OnItsOwn, RedisReportSource):
    """The report streams on a Redis of their own, both ends."""

    def __init__(self, clock: FakeClock, partitions: int = 2) -> None:
        self.server, connection = connect(clock)
        super().__init__(connection, TABLE_NAME)
        self.partitions = partitions
        self.sent: list[Report] = []
        self.away: set[int] = set()
        """Streams whose node does not respond."""
        self._sink = RedisReportSink(
            connection,
            TABLE_NAME,
            partitions=partitions,
            background=InlineBackground(),
            now_ms=lambda: clock.now_ms,
        )

    def send(self, report: Report) -> None:
        """Implement `ReportSink.send`."""
        self.sent.append(report)
        self._sink.send(report)

    def take_dropped(self) -> int:
        """Implement `ReportSink.take_dropped`."""
        return self._sink.take_dropped()

    def append(self, partition: int, text: str) -> None:
        """Write any text into a stream."""
        self.server.do("XADD", reports_key(TABLE_NAME, partition), "*", "r", text)

    def read(self, partition: int, after_id: str, limit: int) -> Sequence[StreamEntry]:
        """Implement `ReportSource.read`."""
        if partition in self.away:
            raise RegistryUnavailableError("away")
        return super().read(partition, after_id, limit)
