"""The DynamoDB table as its clients see it: items, conditions, pages, consistency, refusals and bad days.

What clients see are DynamoDB's own requests and responses, so the product's own adapters run on it unchanged. How
much a partition takes is `tools.limits`'s business; here are the items, in memory, and what a network does.

Assumptions, not measurements: latencies as in `tools.limits.latency`; eventually consistent reads lag by 20 ms
in the mean. They change how long things take, never what is right.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from math import floor
from random import Random
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import ClientError

from hotpartition.core.capacity import Item, item_size_bytes, read_units, write_units
from hotpartition.core.errors import HotPartitionError, StoreUnavailableError, ThrottledError
from hotpartition.core.route import Generation, decode_member
from hotpartition.core.timestamps import format_time
from hotpartition.dynamodb.calls import READ_TIMEOUT_SECONDS, build_error
from hotpartition.dynamodb.stored_route import routing_partition_of
from hotpartition_messages.keys import ROUTING_SORT_KEY
from tools.limits import READ_PROFILE, WRITE_PROFILE, Latency, Table
from tools.request_tokens import RequestTokenError, RequestTokens
from tools.world.clock import EPOCH_MS, Engine, Process

ResultT = TypeVar("ResultT")

LAG_MEAN_SECONDS = 0.02
READER = "reader"
"""The role of the read function's clients."""
PAGE_BYTES = 1_000_000
KEYS_PER_BATCH = 100
TRANSACTION_FACTOR = 2
REMOVAL_SECONDS = 10.0
"""Longest time after its expiry that an item stays. DynamoDB says days; here all of it happens within a run."""
LATE_SECONDS = 3.0
HOT_SECONDS = 0.5
"""How long a key that refuses goes on refusing."""
CONFLICT_SECONDS = 0.005
"""How long a transaction keeps others from its item: an assumption, DynamoDB names no figure."""
HISTORY_SECONDS = 10.0
"""How long an item of a counter remembers what it was: more than any lag."""
_EXISTS = "attribute_exists("


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """Odds, for each request, of what can go wrong; all 0 in good times."""

    server_error: float = 0.0
    """Answered with a server error, half of the times after it was done."""
    lost_request: float = 0.0
    lost_answer: float = 0.0
    load_lost: float = 0.0
    """A load item is gone when it is added to."""
    slow: float = 0.0
    slow_seconds: float = 0.2
    short_page: float = 0.0
    """A query's response ends before its limit though more follows."""
    unprocessed: float = 0.0
    """A key of a batch is left unprocessed."""
    late: float = 0.0
    """It happens after all, up to `LATE_SECONDS` after its client gave up waiting."""
    throttled: float = 0.0
    """Refused for the table's limit, whatever it takes."""
    long_lag: float = 0.0
    long_lag_seconds: float = 1.5
    date_skew_seconds: float = 0.0
    """How far the `Date` of a response may be off, either way."""
    hot_keys: float = 0.0
    """Share of all keys, at any time, whose partitions have no more to give: their writes are refused for a while."""


class _Stored(NamedTuple):
    """A state of an item, and the one that it took the place of."""

    written_at: float
    size_bytes: int
    item: Item
    before: _Stored | None = None


class _Collection:
    """All items of one partition key."""

    __slots__ = ("items", "order")

    def __init__(self) -> None:
        self.items: dict[str, _Stored] = {}
        self.order: list[str] = []
        """Sort keys, ascending."""


@dataclass(slots=True)
class StoreCounts:
    """What the table was asked to do by clients of one role, and what it took."""

    role: str
    operations: int = 0
    queries: int = 0
    items_read: int = 0
    wcu: float = 0.0
    rcu: float = 0.0
    throttles: int = 0


class Observer:
    """Told what happens to the table, at the moment when it does. This one takes no notice."""

    def stored(self, partition_key: str, wcu: float) -> None:
        """A message was stored."""

    def refused(self, partition_key: str, wcu: float) -> None:
        """A write was throttled."""

    def page_read(self, partition_key: str, rcu: float, *, is_query: bool) -> None:
        """A reader's request was served."""

    def waited(self) -> None:
        """A write was refused wherever it could go, and has to wait."""

    def put_off(self, partition_key: str) -> None:
        """A write will happen late, after its client gave up waiting."""

    def raised(self, conversation_id: str, generations: Sequence[Generation], reason: str) -> None:
        """Generations were added to a routing item."""


class Network:
    """What lies between clients and a table: time, losses, delays, refusals; the same for whatever keeps the items."""

    def __init__(self, engine: Engine, *, random: Random, observer: Observer, seed: str = "") -> None:
        self.engine = engine
        self.random = random
        self.observer = observer
        self.faults = StoreFaults()
        self.struck: Counter[str] = Counter()
        """How often each fault struck."""
        self.counts: dict[str, StoreCounts] = {}
        self.write_latency = Latency(WRITE_PROFILE, random)
        self.read_latency = Latency(READ_PROFILE, random)
        self.after_update: Callable[[Process], None] = lambda _: None
        """Called when a process has written a routing item, before it hears of that."""
        self.tokens = RequestTokens(lambda: engine.now)
        """What transactions with a token are let happen by."""
        self._seed = seed

    def error(self, code: str, status: int = 400, **facts: Any) -> Exception:
        """Build what a refused or failed request is answered with."""
        return build_error(code, status=status, explanation="simulated", facts=facts)

    def no_response(self) -> Exception:
        """Build what a client raises after it has waited in vain."""
        return StoreUnavailableError("DynamoDB did not respond (simulated)")

    def throttle(self, reason: str) -> Exception:
        """Build the refusal of a request that takes more than there is."""
        return self.error("ProvisionedThroughputExceededException", ThrottlingReasons=[{"reason": reason}])

    def counts_of(self, role: str) -> StoreCounts:
        """Return what clients of a role asked for, as far as it is counted."""
        return self.counts.setdefault(role, StoreCounts(role))

    @property
    def page_counts(self) -> StoreCounts:
        """What the read function asked for."""
        return self.counts_of(READER)

    def strikes(self, fault: str) -> bool:
        """Say whether a fault strikes now."""
        odds: float = getattr(self.faults, fault)
        if odds and self.random.random() < odds:
            self.struck[fault] += 1
            return True
        return False

    def all_struck(self) -> Counter[str]:
        """Name how often each fault struck."""
        return Counter({f"dynamodb {name.replace('_', ' ')}": count for name, count in self.struck.items()})

    @property
    def date(self) -> str:
        """What a response says of the time, by the clock of one of many servers."""
        skew_seconds = self.faults.date_skew_seconds
        now = self.engine.now + (self.random.uniform(-skew_seconds, skew_seconds) if skew_seconds else 0.0)
        return formatdate(EPOCH_MS // 1000 + floor(now), usegmt=True)

    def horizon(self, *, is_strong: bool) -> float:
        """Up to when what was written is seen."""
        if is_strong:
            return self.engine.now
        if self.strikes("long_lag"):
            return self.engine.now - self.random.random() * self.faults.long_lag_seconds
        return self.engine.now - self.random.expovariate(1 / LAG_MEAN_SECONDS)

    def perform(
        self,
        latency: Latency,
        effect: Callable[[], ResultT],
        counts: StoreCounts,
        *,
        written: str = "",
        may_be_late: bool = True,
    ) -> ResultT:
        """Send a request, let it happen, and wait for the response, with all that can go wrong.

        Raises:
            RetryLaterError: DynamoDB refused or failed, or no response came.
            StoreRefusedError: the request is wrong, or its condition does not hold.
        """
        counts.operations += 1
        seconds = latency.draw()
        faults = self.faults
        if faults.slow and self.strikes("slow"):
            seconds += self.random.random() * faults.slow_seconds
        if faults.lost_request and self.strikes("lost_request"):
            self.engine.sleep(READ_TIMEOUT_SECONDS)
            raise self.no_response()
        if faults.lost_answer and self.strikes("lost_answer"):
            self.engine.after(seconds / 2, lambda: _quietly(effect))
            self.engine.sleep(READ_TIMEOUT_SECONDS)
            raise self.no_response()
        if faults.late and may_be_late and self.strikes("late"):
            late_seconds = READ_TIMEOUT_SECONDS + self.random.random() * LATE_SECONDS
            self.observer.put_off(written)
            self.engine.after(late_seconds, lambda: _quietly(effect))
            self.engine.sleep(READ_TIMEOUT_SECONDS)
            raise self.no_response()
        if faults.hot_keys and written and self._is_hot(written):
            self.engine.sleep(seconds)
            raise self.throttle("TableWriteKeyRangeThroughputExceeded")
        if faults.throttled and self.strikes("throttled"):
            self.engine.sleep(seconds)
            raise self.throttle("TableWriteAccountLimitExceeded")
        if faults.server_error and self.strikes("server_error"):
            self.engine.call(seconds / 2, lambda: self._fail(effect), seconds / 2)
        return self.engine.call(seconds / 2, effect, seconds / 2)

    def _is_hot(self, key: str) -> bool:
        spell = int(self.engine.now / HOT_SECONDS)
        is_hot = Random(f"{self._seed}/{key}/{spell}").random() < self.faults.hot_keys
        self.struck["refused_key"] += is_hot
        return is_hot

    def _fail(self, effect: Callable[[], object]) -> None:
        if self.random.random() < 0.5:
            _quietly(effect)
        raise self.error("InternalServerError", 500)


class Store(Network):
    """The table itself, on DynamoDB's side, with its items in memory."""

    def __init__(
        self, engine: Engine, throughput: Table, *, table_name: str, random: Random, observer: Observer
    ) -> None:
        super().__init__(engine, random=random, observer=observer)
        self.throughput = throughput
        self.table_name = table_name
        self._collections: dict[str, _Collection] = {}
        self._locked_until: dict[tuple[str, str], float] = {}

    def client(self, role: str, owner: Process | None = None) -> Any:
        """Open a client. What it asks for is counted by its role."""
        return StoreClient(self, self.counts_of(role), owner)

    # Seeding and inspection, outside of time.

    def preset(self, conversation_id: str, generation: Generation) -> None:
        """Put a generation into a routing item as if it had always been there."""
        texts = {
            "updated_at": format_time(EPOCH_MS),
            "reason": "preset",
            "routing_partition": routing_partition_of(conversation_id),
        }
        self._update(conversation_id, {"generations": {generation.encode()}}, texts, float("-inf"))

    # Effects: each happens at one instant.

    def put(self, item: Item, counts: StoreCounts) -> None:
        """Store a message unless its key is taken."""
        key = item["pk"]["S"]
        wcu = float(write_units(item_size_bytes(item)))
        self._admit_write(key, wcu, counts)
        known = self._known(item)
        if known is not None:
            raise self.error("ConditionalCheckFailedException", Item=known.item)
        self._keep(item, self.engine.now)
        self.observer.stored(key, wcu)

    def _keep(self, item: Item, now: float) -> None:
        """Put an item at its place, and remember what was there for as long as anybody may see it."""
        key, sort_key = item["pk"]["S"], item["sk"]["S"]
        collection = self._collections.setdefault(key, _Collection())
        known = collection.items.get(sort_key)
        if known is None:
            self._plan_expiry(key, sort_key, item)
            if collection.order and sort_key < collection.order[-1]:
                insort(collection.order, sort_key)
            else:
                collection.order.append(sort_key)
        elif known.before is not None and known.before.written_at < now - HISTORY_SECONDS:
            known = known._replace(before=None)
        collection.items[sort_key] = _Stored(now, item_size_bytes(item), item, known)

    def replace(self, puts: Sequence[Mapping[str, Any]], counts: StoreCounts) -> None:
        """Put messages in the place of others, or where nothing is, all or none, if each is still what is expected."""
        for put in puts:
            known = self._known(put["Item"])
            size = max(item_size_bytes(put["Item"]), known.size_bytes if known else 0)
            factor = TRANSACTION_FACTOR if len(puts) > 1 else 1
            self._admit_write(put["Item"]["pk"]["S"], float(factor * write_units(size)), counts)
        if not all(_holds(put, self._known(put["Item"])) for put in puts):
            raise self.error("ConditionalCheckFailedException")
        for put in puts:
            self._keep(put["Item"], self.engine.now)
        self.struck["changes of several copies"] += len(puts) > 1

    def add(self, update: Mapping[str, Any], counts: StoreCounts, *, factor: int = 1) -> None:
        """Add to the number of an item, which is created with it."""
        key, sort_key = update["Key"]["pk"]["S"], update["Key"]["sk"]["S"]
        if self._locked_until.get((key, sort_key), 0.0) > self.engine.now:
            self.struck["transaction conflicts"] += 1
            raise self.error("TransactionConflictException")
        self._admit_write(key, float(factor), counts)
        (value,) = update["ExpressionAttributeValues"].values()
        attribute = update["UpdateExpression"].split()[1]
        known = self._known(update["Key"])
        total = int(value["N"]) + (int(known.item[attribute]["N"]) if known else 0)
        self._keep({**update["Key"], attribute: {"N": str(total)}}, self.engine.now)
        self.observer.stored(key, float(factor))

    def add_once(self, request: Mapping[str, Any], counts: StoreCounts) -> None:
        """Add in a transaction of one action, unless its token says that this was done before."""
        ((update,),) = (action.values() for action in request["TransactItems"])
        try:
            if not self.tokens.begin(request):
                return
        except RequestTokenError as error:
            self.struck[f"answered {error.code}"] += 1
            raise self.error(error.code) from error
        try:
            self.add(update, counts, factor=TRANSACTION_FACTOR)
        except ThrottledError as error:
            self.tokens.end(request, is_done=False)
            code = "TransactionConflict" if "TransactionConflictException" in error.reasons else "ThrottlingError"
            raise self.error("TransactionCanceledException", CancellationReasons=[{"Code": code}]) from error
        self._locked_until[update["Key"]["pk"]["S"], update["Key"]["sk"]["S"]] = self.engine.now + CONFLICT_SECONDS
        self.tokens.end(request, is_done=True)

    def _known(self, key: Item) -> _Stored | None:
        collection = self._collections.get(key["pk"]["S"])
        return None if collection is None else collection.items.get(key["sk"]["S"])

    def _plan_expiry(self, key: str, sort_key: str, item: Item) -> None:
        """Remove an item some time after it has expired, unless it expires no more by then."""
        if "expires_at" not in item:
            return
        due = int(item["expires_at"]["N"]) - EPOCH_MS / 1000 + self.random.random() * REMOVAL_SECONDS

        def remove() -> None:
            collection = self._collections[key]
            if "expires_at" in collection.items[sort_key].item:
                del collection.items[sort_key]
                collection.order.remove(sort_key)
                self.struck["removals of expired items"] += 1

        self.engine.at(max(due, self.engine.now), remove)

    def update(self, request: Mapping[str, Any], counts: StoreCounts, owner: Process | None) -> dict[str, Any]:
        """Add to a routing item, unless it has grown since a time that the request names."""
        key = request["Key"]["pk"]["S"]
        self._admit_write(key, 1.0, counts)
        sets, texts = _parse_update(request)
        known, values = self._known(request["Key"]), request["ExpressionAttributeValues"]
        updated_at = known.item["updated_at"]["S"] if known and "updated_at" in known.item else ""
        is_paused = ":since" in values and values[":since"]["S"] <= updated_at <= texts["updated_at"]
        if is_paused or (":seen" in values and values[":seen"]["S"] != updated_at):
            raise self.error("ConditionalCheckFailedException", Item=known.item if known else {})
        item = self._update(key, sets, texts, self.engine.now)
        if "generations" not in sets:
            return item  # a directory's, of raised keys
        members = [decode_member(text) for text in sorted(sets["generations"])]
        generations = [member for member in members if isinstance(member, Generation)]
        if generations:
            self.observer.raised(key, generations, item["reason"]["S"])
        if owner is not None:
            self.after_update(owner)
        return item

    def sample(self, request: Mapping[str, Any], counts: StoreCounts) -> dict[str, Any]:
        """Add to a cell of a load item, and take others away: `ADD #c :w REMOVE #s0, #s1`."""
        place, names = request["Key"], request["ExpressionAttributeNames"]
        self._admit_write(place["pk"]["S"], 1.0, counts)
        known, cell = None if self.strikes("load_lost") else self._known(place), names["#c"]
        item: dict[str, Any] = {**(known.item if known else place)}
        wcu = float(item.get(cell, {"N": "0"})["N"]) + float(request["ExpressionAttributeValues"][":w"]["N"])
        for name in names.values():
            item.pop(name, None)
        item[cell] = {"N": f"{wcu:g}"}
        self._keep(item, self.engine.now)
        return item

    def get(self, request: Mapping[str, Any], counts: StoreCounts) -> Item | None:
        """Read one item."""
        key = request["Key"]
        self._admit_read(key["pk"]["S"], 1.0 if request["ConsistentRead"] else 0.5, counts)
        return self._item(key["pk"]["S"], key["sk"]["S"], self.horizon(is_strong=request["ConsistentRead"]))

    def get_batch(self, request: Mapping[str, Any], counts: StoreCounts) -> dict[str, Any]:
        """Read items; those whose partition refuses are left unprocessed."""
        asked = request[self.table_name]
        is_strong = asked["ConsistentRead"]
        if not 1 <= len(asked["Keys"]) <= KEYS_PER_BATCH:
            raise self.error("ValidationException")
        items, left = [], []
        for key in asked["Keys"]:
            partition_key = key["pk"]["S"]
            if self.strikes("unprocessed") or self._refuses_read(partition_key, 1.0 if is_strong else 0.5, counts):
                left.append(key)
                continue
            item = self._item(partition_key, key["sk"]["S"], self.horizon(is_strong=is_strong))
            if item is not None:
                items.append(item)
        unprocessed = {self.table_name: {"Keys": left, "ConsistentRead": is_strong}} if left else {}
        return {"Responses": {self.table_name: items}, "UnprocessedKeys": unprocessed}

    def query(self, request: Mapping[str, Any], counts: StoreCounts) -> dict[str, Any]:
        """Read items of one partition key in order."""
        values = request["ExpressionAttributeValues"]
        key, low, high = values[":pk"]["S"], values[":low"]["S"], values[":high"]["S"]
        is_strong, is_forward, limit = request["ConsistentRead"], request["ScanIndexForward"], request["Limit"]
        if "ExclusiveStartKey" in request:
            start = request["ExclusiveStartKey"]["sk"]["S"]
            low, high = (start + "\0", high) if is_forward else (low, start[:-1] + chr(ord(start[-1]) - 1) + "\x7f")
        taken, size, is_cut = self._scan(key, low, high, self.horizon(is_strong=is_strong), is_forward, limit)
        counts.queries += 1
        units = read_units(size, is_strong=is_strong)
        self._admit_read(key, units, counts, is_query=True)
        if len(taken) > 1 and self.strikes("short_page"):
            taken, is_cut = taken[: self.random.randrange(1, len(taken))], True
        counts.items_read += len(taken)
        response: dict[str, Any] = {"Items": taken, "ConsumedCapacity": {"CapacityUnits": units}}
        if is_cut:
            response["LastEvaluatedKey"] = {"pk": {"S": key}, "sk": taken[-1]["sk"]}
        return response

    def routing_items(self, partition: str, counts: StoreCounts) -> list[dict[str, Any]]:
        """List the routing items of one value of the sparse index, as it knows them: it lags."""
        horizon = self.horizon(is_strong=False)
        items = [self._item(key, ROUTING_SORT_KEY, horizon) for key in self._collections]
        found = [dict(item) for item in items if item and item.get("routing_partition") == {"S": partition}]
        counts.rcu += 0.5 * max(1, len(found))
        return found

    def _scan(
        self, key: str, low: str, high: str, horizon: float, is_forward: bool, limit: int
    ) -> tuple[list[Item], int, bool]:
        collection = self._collections.get(key)
        if collection is None:
            return [], 0, False
        order = collection.order
        first, last = bisect_left(order, low), bisect_right(order, high)
        found: list[Item] = []
        size = 0
        for index in range(first, last) if is_forward else range(last - 1, first - 1, -1):
            if len(found) >= limit or size >= PAGE_BYTES:
                return found, size, True
            stored = _state_at(collection.items[order[index]], horizon)
            if stored is not None:
                found.append(stored.item)
                size += stored.size_bytes
        # Like DynamoDB: a query that stops at its limit cannot know that nothing follows.
        return found, size, len(found) >= limit

    def _item(self, key: str, sort_key: str, horizon: float) -> Item | None:
        collection = self._collections.get(key)
        stored = None if collection is None else collection.items.get(sort_key)
        state = None if stored is None else _state_at(stored, horizon)
        return None if state is None else state.item

    def _update(self, key: str, sets: Mapping[str, set[str]], texts: Mapping[str, str], now: float) -> dict[str, Any]:
        """Add to the sets of a routing item, which is created with them, and set its texts."""
        place = {"pk": {"S": key}, "sk": {"S": ROUTING_SORT_KEY}}
        known = self._known(place)
        item: dict[str, Any] = {**(known.item if known else place)}
        for name, members in sets.items():
            item[name] = {"SS": sorted(members.union(item.get(name, {"SS": ()})["SS"]))}
        item |= {name: {"S": text} for name, text in texts.items()}
        self._keep(item, now)
        return item

    def _admit_write(self, key: str, wcu: float, counts: StoreCounts) -> None:
        refusal = self.throughput.write(key, wcu, self.engine.now)
        if refusal is not None:
            self.observer.refused(key, wcu)
            counts.throttles += 1
            raise self.throttle(refusal.reason)
        counts.wcu += wcu

    def _admit_read(self, key: str, rcu: float, counts: StoreCounts, *, is_query: bool = False) -> None:
        refusal = self.throughput.read(key, rcu, self.engine.now)
        if refusal is not None:
            counts.throttles += 1
            raise self.throttle(refusal.reason)
        counts.rcu += rcu
        if counts.role == READER:
            self.observer.page_read(key, rcu, is_query=is_query)

    def _refuses_read(self, key: str, rcu: float, counts: StoreCounts) -> bool:
        if self.throughput.read(key, rcu, self.engine.now) is not None:
            counts.throttles += 1
            return True
        counts.rcu += rcu
        return False


class StoreClient:
    """Sends requests, as `DynamoDBCalls.call` does, as far as the product uses them. Blocks the calling task."""

    def __init__(self, store: Store, counts: StoreCounts, owner: Process | None) -> None:
        self._store = store
        self._counts = counts
        self._owner = owner

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request, and wait for its response."""
        match operation:
            case "UpdateItem" | "TransactWriteItems" if _is_addition(request):
                add = self._store.add if operation == "UpdateItem" else self._store.add_once
                self._write(lambda: add(request, self._counts))
                return {}
            case "PutItem" if request["ConditionExpression"].startswith(_EXISTS):
                self._write(lambda: self._store.replace([request], self._counts))
                return {}
            case "TransactWriteItems":
                puts = [action["Put"] for action in request["TransactItems"]]
                self._write(lambda: self._store.replace(puts, self._counts))
                return {}
            case "PutItem":
                self._write(lambda: self._store.put(request["Item"], self._counts))
                return {}
            case "UpdateItem":
                return self._update(request)
            case "GetItem":
                return self._read(lambda: self._dated(self._store.get(request, self._counts), "Item"))
            case "BatchGetItem":
                return self._read(lambda: self._store.get_batch(request["RequestItems"], self._counts))
            case "Query" if "IndexName" in request:
                partition = request["ExpressionAttributeValues"][":p"]["S"]
                return {"Items": self._read(lambda: self._store.routing_items(partition, self._counts))}
            case "Query":
                return self._read(lambda: self._store.query(request, self._counts))
        raise ValueError(operation)

    def _update(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Add to a load item, or to a routing item."""
        store, counts = self._store, self._counts
        if "#c" not in request.get("ExpressionAttributeNames", ()):
            return self._write(lambda: self._dated(store.update(request, counts, self._owner), "Attributes"))
        return self._write(lambda: self._dated(store.sample(request, counts), "Attributes"))

    def _dated(self, item: Item | None, name: str) -> dict[str, Any]:
        """Build a response with the `Date` of when the request was served."""
        dated: dict[str, Any] = {"ResponseMetadata": {"HTTPHeaders": {"date": self._store.date}}}
        return dated if item is None else {name: item, **dated}

    def _write(self, effect: Callable[[], ResultT]) -> ResultT:
        return self._store.perform(self._store.write_latency, effect, self._counts)

    def _read(self, effect: Callable[[], ResultT]) -> ResultT:
        return self._store.perform(self._store.read_latency, effect, self._counts)


def _is_addition(request: Mapping[str, Any]) -> bool:
    (action,) = request["TransactItems"][0].values() if "TransactItems" in request else (request,)
    return ":amount" in action.get("ExpressionAttributeValues", ())


def _parse_update(request: Mapping[str, Any]) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Read an update of the form `ADD a :a, b :b SET c = :c, d = :d`: string sets and texts."""
    adds, _, assignments = request["UpdateExpression"].removeprefix("ADD ").partition(" SET ")
    values = request["ExpressionAttributeValues"]
    sets = [pair.split(" ") for pair in adds.split(", ")]
    texts = [pair.split(" = ") for pair in assignments.split(", ") if pair]
    return {name: set(values[place]["SS"]) for name, place in sets}, {name: values[place]["S"] for name, place in texts}


def _holds(put: Mapping[str, Any], known: _Stored | None) -> bool:
    """Check `attribute_not_exists(pk)`, or `attribute_exists(pk) AND attribute_not_exists(#n0) AND …`."""
    is_new = put["ConditionExpression"] == "attribute_not_exists(pk)"
    if known is None or is_new:
        return known is None and is_new
    names, values = put.get("ExpressionAttributeNames", {}), put.get("ExpressionAttributeValues", {})
    for part in put["ConditionExpression"].split(" AND ")[1:]:
        name, _, place = part.partition(" = ")
        if place:
            if known.item.get(names[name]) != values[place]:
                return False
        elif names[part.removeprefix("attribute_not_exists(").removesuffix(")")] in known.item:
            return False
    return True


def _state_at(stored: _Stored, horizon: float) -> _Stored | None:
    """Return what a reader sees of an item that sees what was written until then."""
    state: _Stored | None = stored
    while state is not None and state.written_at > horizon:
        state = state.before
    return state


def _quietly(effect: Callable[[], object]) -> None:
    """Let something happen whose caller will not hear how it went."""
    try:
        effect()
    except (HotPartitionError, ClientError):
        return
