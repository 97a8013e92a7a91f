"""What lies between clients and DynamoDB: time, losses, lateness, refusals and lag; the same for adapters and boto3.

Each request happens at one instant of the virtual clock, whatever becomes of its sender in the meantime. How much a
partition takes is `tools.limits`'s business; items and conditions are `tools.world.dynamodb`'s.

Assumptions, not measurements: latencies as in `tools.limits`; eventually consistent reads lag by 20 ms in the
mean. They change how long things take, never what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache, partial
from math import floor, inf
from random import Random
from typing import Any

from botocore.exceptions import ReadTimeoutError

from hotpartition.core.counter_items import AMOUNT
from hotpartition.core.errors import StoreUnavailableError
from hotpartition.core.route import Generation, decode_member
from hotpartition.dynamodb.calls import READ_TIMEOUT_SECONDS, build_error
from hotpartition.dynamodb.table import LOAD_PREFIX
from tools.limits import READ_PROFILE, WRITE_PROFILE, Latency, Resource
from tools.world.boto3_calls import take_calls
from tools.world.clock import EPOCH_MS, Engine, Process
from tools.world.dynamodb import DynamoDB, DynamoDBError, Gate, Table, throttled
from tools.world.expressions import Item
from tools.world.meter import Meter

Request = dict[str, Any]
Response = dict[str, Any]
Effect = Callable[[], Response]
Send = Callable[[str, Mapping[str, Any]], Response]

LAG_MEAN_SECONDS = 0.02
READER = "reader"
"""The role of the read function's clients."""
WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"})
REMOVAL_SECONDS = 10.0
"""Longest time after its expiry that an item stays. DynamoDB says days; here all of it happens within a run."""
LATE_SECONDS = 3.0
LONGEST_LATENESS_SECONDS = READ_TIMEOUT_SECONDS + LATE_SECONDS
"""How long after it was sent a late request may still happen."""
HOT_SECONDS = 0.5
"""How long a key that refuses goes on refusing."""
CONFLICT_SECONDS = 0.005
"""How long a transaction keeps others from its items: an assumption, DynamoDB names no figure."""
SHORTEST_PAGES = 5
"""A page that ends early has up to so many items."""
SLOW_SECONDS = 0.2
"""Most that a slow request takes more."""
EXPIRES_AT = "expires_at"
GENERATIONS = "generations"


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
    short_page: float = 0.0
    """A page ends before its limit though more follows."""
    unprocessed: float = 0.0
    """A key or item of a batch is left unprocessed."""
    late: float = 0.0
    """A creation or an addition happens after all, up to `LATE_SECONDS` after its client gave up waiting."""
    throttled: float = 0.0
    """Refused for the table's limit, whatever it takes."""
    long_lag: float = 0.0
    long_lag_seconds: float = 1.5
    date_skew_seconds: float = 0.0
    """How far the `Date` of a response may be off, either way."""
    hot_keys: float = 0.0
    """Share of all keys, at any time, whose partitions have no more to give: their writes are refused for a while."""


@dataclass(slots=True)
class StoreCounts:
    """What DynamoDB was asked to do by clients of one role, and what it took."""

    role: str
    operations: int = 0
    queries: int = 0
    wcu: float = 0.0
    rcu: float = 0.0
    throttles: int = 0


class _LostError(Exception):
    """No response came in time."""


class Network(Gate):
    """DynamoDB and the way to it. `limits`: what its partitions take; without, as much as anybody asks for."""

    def __init__(
        self,
        engine: Engine,
        *,
        random: Random,
        meter: Meter,
        seed: str = "",
        limits: Resource | None = None,
    ) -> None:
        self.engine = engine
        self.random = random
        self.meter = meter
        self.faults = StoreFaults()
        self.counts: dict[str, StoreCounts] = {}
        self.after_update: Callable[[Process], None] = lambda _: None
        """Called when a process has written a routing item, before it hears of that."""
        self.dynamodb = DynamoDB(self, conflict_seconds=CONFLICT_SECONDS)
        self.limits = limits
        self._write_latency = Latency(WRITE_PROFILE, random)
        self._read_latency = Latency(READ_PROFILE, random)
        self._seed = seed
        self._asking = StoreCounts("")
        """Whose request happens now."""
        self._raises = False
        """Whether the request that happens now has written a routing item."""
        self._left: list[bool] = []
        """Of the batch that happens now: whether a fault leaves each part that is still to come."""

    # Clients.

    def client(self, role: str, owner: Process | None = None) -> Send:
        """Open a client for adapters, which blocks the calling task: `DynamoDBCalls.call`.

        Its requests are counted by its role; `owner` may die of a raise.
        """
        counts = self.counts_of(role)

        def call(operation: str, request: Mapping[str, Any]) -> Response:
            try:
                return self._send(operation, dict(request), counts, owner)
            except DynamoDBError as error:
                raise build_error(
                    error.code, status=error.status, explanation=error.message, facts=error.facts
                ) from error
            except _LostError:
                raise StoreUnavailableError("DynamoDB did not respond (simulated)") from None

        return call

    def watch(self, client: Any, role: str) -> Callable[[], None]:
        """Have a boto3 client's requests go this way; return what undoes that. REQUIRES: tasks call the client."""
        counts = self.counts_of(role)

        def send(operation: str, request: Request) -> dict[str, Any]:
            try:
                return self._send(operation, request, counts, None)
            except _LostError:
                raise ReadTimeoutError(endpoint_url="simulated") from None

        return take_calls(client, send)

    def counts_of(self, role: str) -> StoreCounts:
        """Return what clients of a role asked for, as far as it is counted."""
        return self.counts.setdefault(role, StoreCounts(role))

    # Faults.

    def strikes(self, fault: str) -> bool:
        """Say whether a fault strikes now."""
        odds: float = getattr(self.faults, fault)
        if odds and self.random.random() < odds:
            self.note(fault.replace("_", " "))
            return True
        return False

    def _refusal(self, written: str) -> str:
        """Say why a request is refused before it comes to anything."""
        if self.faults.hot_keys and written:
            spell = int(self.engine.now / HOT_SECONDS)
            if Random(f"{self._seed}/{written}/{spell}").random() < self.faults.hot_keys:
                self.note("refused key")
                return "TableWriteKeyRangeThroughputExceeded"
        return "TableWriteAccountLimitExceeded" if self.strikes("throttled") else ""

    def _fail(self, effect: Effect) -> Response:
        """Respond with a server error, at times after everything was done."""
        if self.random.random() < 0.5:
            _quietly(effect)
        raise DynamoDBError("InternalServerError", "simulated", status=500)

    def _troubled(self, operation: str, request: Request) -> Request:
        """Change a request as faults do: a load item is lost, a page ends early, parts of a batch are left."""
        self._left = []
        if operation == "UpdateItem" and _key_of(request).startswith(LOAD_PREFIX):
            if self.strikes("load_lost"):
                table = self.dynamodb.table(request)
                table.keep(table.place_of(request["Key"]), None, self.engine.now)
        elif operation in {"Query", "Scan"} and self.strikes("short_page"):
            most = 1 + self.random.randrange(SHORTEST_PAGES)
            return {**request, "Limit": min(request.get("Limit", most), most)}
        elif operation in {"BatchGetItem", "BatchWriteItem"} and self.faults.unprocessed:
            for asked in request["RequestItems"].values():
                entries = asked["Keys"] if isinstance(asked, dict) else asked
                self._left += [False, *(self.strikes("unprocessed") for _ in entries[1:])]
        return request

    # One request.

    def _send(self, operation: str, request: Request, counts: StoreCounts, owner: Process | None) -> Response:
        """Send a request, let it happen, and wait for the response, with all that can go wrong."""
        counts.operations += 1
        seconds = (self._write_latency if operation in WRITES else self._read_latency).draw()
        effect: Effect = partial(self._happen, operation, request, counts, owner)
        if self.strikes("slow"):
            seconds += self.random.random() * SLOW_SECONDS
        if self.strikes("lost_request"):
            self._give_up(None)
        if self.strikes("lost_answer"):
            self._give_up(effect, seconds / 2)
        if self.faults.late and _may_be_late(operation, request) and self.strikes("late"):
            self.meter.put_off(_key_of(request))
            self._give_up(effect, READ_TIMEOUT_SECONDS + self.random.random() * LATE_SECONDS)
        reason = self._refusal(_key_of(request) if operation in WRITES else "")
        if reason:
            self.engine.sleep(seconds)
            raise throttled(reason)
        if self.strikes("server_error"):
            effect = partial(self._fail, effect)
        return self.engine.call(seconds / 2, effect, seconds / 2)

    def _give_up(self, effect: Effect | None, after_seconds: float = 0.0) -> None:
        """Wait in vain; the request happens all the same, if there is an effect."""
        if effect is not None:
            self.engine.after(after_seconds, partial(_quietly, effect))
        self.engine.sleep(READ_TIMEOUT_SECONDS)
        raise _LostError

    def _happen(self, operation: str, request: Request, counts: StoreCounts, owner: Process | None) -> Response:
        """Let a request happen, now."""
        self._asking, self._raises = counts, False
        asked = self._troubled(operation, request)
        until = self._horizon() if _is_lagging(operation, request) else inf
        response = self.dynamodb.call(operation, asked, now=self.engine.now, seen_until=until)
        if self._raises and owner is not None:
            self.after_update(owner)
        headers = {"date": self._date()}
        response["ResponseMetadata"] = {"HTTPStatusCode": 200, "HTTPHeaders": headers, "RetryAttempts": 0}
        return response

    def _horizon(self) -> float:
        """Up to when what was written is seen by an eventually consistent read."""
        if self.strikes("long_lag"):
            return self.engine.now - self.random.random() * self.faults.long_lag_seconds
        return self.engine.now - self.random.expovariate(1 / LAG_MEAN_SECONDS)

    def _date(self) -> str:
        """What a response says of the time, by the clock of one of many servers."""
        skew_seconds = self.faults.date_skew_seconds
        now = self.engine.now + (self.random.uniform(-skew_seconds, skew_seconds) if skew_seconds else 0.0)
        return _http_date(EPOCH_MS // 1000 + floor(now))

    # What the request passes.

    def _is_left(self) -> bool:
        """Say whether the part of a batch that comes now is left; never the first one of a table."""
        return bool(self._left) and self._left.pop(0)

    def refuse_write(self, partition_key: str, units: float) -> str | None:
        """Implement `Gate.refuse_write`."""
        if self._is_left():
            return "TableWriteAccountLimitExceeded"
        refusal = None if self.limits is None else self.limits.write(partition_key, units, self.engine.now)
        if refusal is not None:
            self.meter.refused(partition_key)
            self._asking.throttles += 1
            return refusal.reason
        self._asking.wcu += units
        return None

    def refuse_read(self, partition_key: str, units: float, *, is_query: bool) -> str | None:
        """Implement `Gate.refuse_read`."""
        if self._is_left():
            return "TableReadAccountLimitExceeded"
        self._asking.queries += is_query
        refusal = None if self.limits is None else self.limits.read(partition_key, units, self.engine.now)
        if refusal is not None:
            self._asking.throttles += 1
            return refusal.reason
        self._asking.rcu += units
        if self._asking.role == READER:
            self.meter.page_read(partition_key, units, is_query=is_query)
        return None

    def note(self, what: str) -> None:
        """Implement `Gate.note`: it is counted with what goes wrong."""
        self.meter.struck[f"dynamodb {what}"] += 1

    def kept(self, table: Table, old: Item | None, new: Item | None, units: float) -> None:
        """Implement `Gate.kept`."""
        if new is None:
            return
        key = str(next(iter(new[table.key_names[0]].values())))
        if GENERATIONS in new:
            self._raises = True
            self.meter.routed(key)
            self._note_raise(key, old or {}, new)
        elif (old is None or AMOUNT in new) and not key.startswith(LOAD_PREFIX):
            self.meter.stored(key, units)
        if old is None and EXPIRES_AT in new:
            self._plan_removal(table, new)

    def _note_raise(self, key: str, old: Item, new: Item) -> None:
        known = old.get(GENERATIONS, {}).get("SS", ())
        members = [decode_member(text) for text in new[GENERATIONS]["SS"] if text not in known]
        generations = [member for member in members if isinstance(member, Generation)]
        if generations:
            self.meter.raised(key, generations, new.get("reason", {}).get("S", ""))

    def _plan_removal(self, table: Table, item: Item) -> None:
        """Remove an item some time after it has expired, unless it expires no more by then."""
        place = table.place_of(item)
        due = int(item[EXPIRES_AT]["N"]) - EPOCH_MS / 1000 + self.random.random() * REMOVAL_SECONDS

        def remove() -> None:
            if EXPIRES_AT in (table.seen(place).item or {}):
                table.keep(place, None, self.engine.now)
                self.note("removals of expired items")

        self.engine.at(max(due, self.engine.now), remove)


def _is_lagging(operation: str, request: Mapping[str, Any]) -> bool:
    """Say whether a request may see less than was written."""
    if operation == "BatchGetItem":
        return not all(asked.get("ConsistentRead") for asked in request["RequestItems"].values())
    return not (operation in WRITES or operation == "TransactGetItems" or request.get("ConsistentRead"))


def _may_be_late(operation: str, request: Request) -> bool:
    """Say whether a request may happen late.

    A late overwriting put takes back what was written since with boto3 alone as well; a late creation finds on its
    place that the item is there, and an addition adds whenever it comes.
    """
    if operation == "PutItem":
        return "attribute_not_exists" in request.get("ConditionExpression", "")
    updates = [action.get("Update", {}) for action in request.get("TransactItems", ())] or [request]
    return any(f"ADD {AMOUNT} " in each.get("UpdateExpression", "") for each in updates)


def _key_of(request: Mapping[str, Any]) -> str:
    """Return the partition key of what is written or read; a request for several has none."""
    attributes = request.get("Item") or request.get("Key") or {}
    key: dict[str, str] = attributes.get("pk") or attributes.get("PK") or attributes.get("collection") or {}
    return key.get("S", "")


@lru_cache(maxsize=64)
def _http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _quietly(effect: Callable[[], object]) -> None:
    """Let something happen whose caller will not hear how it went."""
    try:
        effect()
    except DynamoDBError:
        return
