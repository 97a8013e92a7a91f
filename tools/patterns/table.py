"""The table that `ShardedTable` is given here: boto3's `Table` and its client in one, over the partition model.

It takes and gives Python values, as the client of a boto3 resource does, knows as much of the interface as a
`ShardedTable` with `append_only=True` asks for, and responds on the engine's clock. Routing items lie in a table of
their own, that of the simulated world.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder
from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ClientError

from hotpartition.core.capacity import read_units
from tools.partition_model import (
    READ_PROFILE,
    REFUSAL_PROFILE,
    WRITE_PROFILE,
    IndexConfig,
    Kind,
    Latency,
    OnDemand,
    Partitions,
    Resource,
    Table,
    TableConfig,
)
from tools.partition_model.throttles import Throttle
from tools.patterns.model import (
    INDEX_BACKLOG_SECONDS,
    INDEX_LAG_SECONDS,
    ITEM_BYTES,
    TABLE_PARTITIONS,
    TRANSFER_SECONDS_PER_MB,
    Buckets,
    Pattern,
)
from tools.simulation.wiring import TABLE, World

TABLE_NAME = "events"
INDEX = "by-time"
INDEX_KEY = "bucket"
PAGE_ITEMS = 1_000_000 // ITEM_BYTES
CONNECTIONS = 128
COARSE_SECONDS = 1.0
"""In the middle of a run a put stands for many, evenly in the course of the second before it."""

_CONDITION = re.compile(r"\(?([#\w]+) = (:\w+)(?: AND [#\w]+ BETWEEN (:\w+) AND (:\w+))?\)?")
_ASSIGNMENT = re.compile(r"(#\w+) = (:\w+)")
_WARM = OnDemand(warm_wcu=1_000.0 * TABLE_PARTITIONS)
INDEX_PARTITIONS = Partitions(count=TABLE_PARTITIONS)


class Stored(NamedTuple):
    """An item of one partition key of the table or the index, and when it is there to be read."""

    sort_key: str
    visible_at: float
    item: dict[str, Any]


@dataclass(slots=True)
class Lump:
    """A put that stands for many: how much of it is left, and how many places it may still be offered."""

    left: float
    choices: int


@dataclass(slots=True)
class Counts:
    """What was asked of the table."""

    attempts: int = 0
    refused: int = 0
    refused_by_index: int = 0
    index_refusals: list[tuple[float, float]] = field(default_factory=list)
    """When, and how many writes it stood for."""
    stored: float = 0.0
    lag_seconds: list[float] = field(default_factory=list)


class Server:
    """DynamoDB's side: one table, its index if the pattern has one, and what is stored."""

    def __init__(
        self, world: World, pattern: Pattern, seed: int, index_partitions: Partitions = INDEX_PARTITIONS
    ) -> None:
        self.engine = world.engine
        indexes = (
            {INDEX: IndexConfig(throughput=_WARM, partitions=index_partitions)}
            if pattern.buckets is not Buckets.NONE
            else {}
        )
        config = TableConfig(throughput=_WARM, partitions=INDEX_PARTITIONS, indexes=indexes)
        self.table = Table(config, Random(f"patterns/{seed}/table"))
        self.index: Resource | None = self.table.indexes.get(INDEX)
        self.journal = world.store.client("table")
        self.random = random = Random(f"patterns/{seed}/server")
        self.read_latency = Latency(READ_PROFILE, random)
        self.write_latency = Latency(WRITE_PROFILE, random)
        self.refusal_latency = Latency(REFUSAL_PROFILE, random)
        self.counts = Counts()
        self.lumps: dict[str, Lump] = {}
        """By sort key: puts that stand for many."""
        self.refused_keys: set[str] = set()
        """The sort keys of writes that were refused at least once."""
        self.keeps_items = False
        self.stored: dict[str, list[Stored]] = {}
        self.indexed: dict[str, list[Stored]] = {}

    @property
    def wcu_per_write(self) -> float:
        """Write units for each item that was stored, those of the index included."""
        resources = [self.table, *self.table.indexes.values()]
        return sum(each.consumed(Kind.WRITE) for each in resources) / max(1.0, self.counts.stored)

    def put(self, item: dict[str, Any]) -> Throttle | None:
        """Store an item, now, or say what refuses it."""
        lump = self.lumps.get(item["SK"])
        if lump is not None:
            return self._put_many(item, lump)
        now, key, index_key = self.engine.now, item["PK"], item.get(INDEX_KEY)
        self.counts.attempts += 1
        throttle = self._refused_by_index(index_key, now) or self.table.write(key, 1.0, now)
        if throttle is not None:
            self.counts.refused += 1
            self.refused_keys.add(item["SK"])
            return throttle
        self.counts.stored += 1
        lag = 0.0
        if self.index is not None and index_key is not None:
            self.index.charge(Kind.WRITE, index_key, 1.0, now)
            behind = max(bucket.spent - now for bucket in self.index.buckets(Kind.WRITE, index_key, now))
            lag = max(0.0, behind) + self.random.expovariate(1 / INDEX_LAG_SECONDS)
            self.counts.lag_seconds.append(lag)
        if self.keeps_items:
            insort(self.stored.setdefault(key, []), Stored(item["SK"], now, item))
            if index_key is not None:
                insort(self.indexed.setdefault(index_key, []), Stored(item["SK"], now + lag, item))
        return None

    def _refused_by_index(self, index_key: str | None, now: float) -> Throttle | None:
        """Ask the index first, which refuses once it has fallen behind."""
        if self.index is None or index_key is None:
            return None
        bucket = max(self.index.buckets(Kind.WRITE, index_key, now), key=lambda each: each.spent)
        if bucket.spent - now <= INDEX_BACKLOG_SECONDS:
            return None
        self.counts.refused_by_index += 1
        self.counts.index_refusals.append((now, 1.0))
        return self.index.note_refusal(bucket, index_key, 1.0)

    def _put_many(self, item: dict[str, Any], lump: Lump) -> Throttle | None:
        """Take as much of a lump as goes; what is left after its last choice has failed."""
        now, units = self.engine.now, lump.left
        throttle: Throttle | None = None
        if self.index is not None and INDEX_KEY in item:
            units, throttle = self.index.write_many(item[INDEX_KEY], units, now, COARSE_SECONDS)
            if units < lump.left:
                self.counts.index_refusals.append((now, lump.left - units))
        admission = self.table.write_many(item["PK"], units, now, COARSE_SECONDS)
        self.counts.stored += admission.units
        lump.left -= admission.units
        lump.choices -= 1
        return (admission.throttle or throttle) if lump.left > 0 and lump.choices else None

    def find(self, request: Mapping[str, Any]) -> tuple[Resource, str, list[Stored], bool]:
        """Find what a query reads: where, under which key, the items in its order, and whether more may follow."""
        values, start = _read_condition(request, "KeyConditionExpression"), request.get("ExclusiveStartKey")
        key, *bounds = values.operands
        index = self.index if "IndexName" in request else None
        stored = (self.stored if index is None else self.indexed).get(key, [])
        first, last = 0, len(stored)
        if bounds:
            first, last = bisect_left(stored, (bounds[0],)), bisect_left(stored, (bounds[1] + "\0",))
        is_forward = request.get("ScanIndexForward", True)
        if start is not None and is_forward:
            first = bisect_left(stored, (start["SK"] + "\0",))
        elif start is not None:
            last = bisect_left(stored, (start["SK"],))
        limit = min(request.get("Limit", PAGE_ITEMS), PAGE_ITEMS)
        found: list[Stored] = []
        for place in range(first, last) if is_forward else range(last - 1, first - 1, -1):
            if stored[place].visible_at <= self.engine.now:
                found.append(stored[place])
                if len(found) == limit:
                    return index or self.table, key, found, True
        return index or self.table, key, found, False


class Client:
    """One client's side: what a `ShardedTable` takes as its table, and as that table's client."""

    name = TABLE_NAME
    attribute_definitions = tuple({"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK", INDEX_KEY))
    key_schema = ({"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"})
    local_secondary_indexes = None

    def __init__(self, server: Server) -> None:
        self.queries = 0
        self.rcu = 0.0
        self._server = server
        self._deserialize = TypeDeserializer().deserialize
        config = SimpleNamespace(max_pool_connections=CONNECTIONS)
        self.meta = SimpleNamespace(client=self, config=config)
        keys = [{"AttributeName": INDEX_KEY, "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}]
        self.global_secondary_indexes = [] if server.index is None else [{"IndexName": INDEX, "KeySchema": keys}]

    def put_item(self, *, Item: dict[str, Any], **_: Any) -> dict[str, Any]:  # noqa: N803 - boto3's names
        """Put an item."""
        return self._write(Item, "PutItem")

    def update_item(self, *, Key: Mapping[str, str], **request: Any) -> dict[str, Any]:  # noqa: N803
        """Make an update that sets attributes to values."""
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        sets = {names[name]: values[value] for name, value in _ASSIGNMENT.findall(request["UpdateExpression"])}
        return self._write({**Key, **sets}, "UpdateItem")

    def _write(self, item: dict[str, Any], operation: str) -> dict[str, Any]:
        throttle = self._server.put(item)
        if throttle is not None:
            self._refuse(throttle, operation)
        self._wait(self._server.write_latency)
        return {"ConsumedCapacity": {"TableName": TABLE_NAME, "Table": {"CapacityUnits": 1.0}}}

    def query(self, **request: Any) -> dict[str, Any]:
        """Read a page, eventually consistent; its filter is one equality."""
        server = self._server
        resource, key, found, is_cut = server.find(request)
        size = len(found) * ITEM_BYTES
        units = read_units(size, is_strong=False)
        throttle = Resource.read(resource, key, units, server.engine.now)
        if throttle is not None:
            self._refuse(throttle, "Query")
        self.queries += 1
        self.rcu += units
        self._wait(server.read_latency, size / 1e6 * TRANSFER_SECONDS_PER_MB)
        items = [stored.item for stored in found]
        page: dict[str, Any] = {"Items": _filtered(items, request), "ScannedCount": len(found)}
        if is_cut:
            page["LastEvaluatedKey"] = {name: items[-1][name] for name in ("PK", "SK", INDEX_KEY) if name in items[-1]}
        return page | {"Count": len(page["Items"])}

    def get_item(self, *, Key: Mapping[str, str], ConsistentRead: bool, **_: Any) -> dict[str, Any]:  # noqa: N803
        """Read a routing item."""
        self.rcu += 1.0 if ConsistentRead else 0.5
        place = TABLE.journal.key_of(Key["pk"])
        response = self._server.journal.call("GetItem", {"Key": place, "ConsistentRead": ConsistentRead})
        item = {name: self._deserialize(value) for name, value in response.get("Item", {}).items()}
        return {"Item": item} if item else {}

    def _wait(self, latency: Latency, more_seconds: float = 0.0) -> None:
        self._server.engine.sleep(latency.draw() + more_seconds)

    def _refuse(self, throttle: Throttle, operation: str) -> None:
        self._wait(self._server.refusal_latency)
        response: Any = {
            "Error": {"Code": "ProvisionedThroughputExceededException", "Message": throttle.reason},
            "ThrottlingReasons": [{"reason": throttle.reason, "resource": throttle.resource}],
            "ResponseMetadata": {"HTTPStatusCode": 400},
        }
        raise ClientError(response, operation)


class _Condition(NamedTuple):
    """An attribute's name, what it equals, and for a key condition the bounds of the sort key, if there are some."""

    attribute: str
    operands: list[Any]


def _read_condition(request: Mapping[str, Any], parameter: str) -> _Condition:
    """Read an equality, with a BETWEEN beside it or without, as an object of boto3's or as text."""
    expression = request[parameter]
    names, values = request.get("ExpressionAttributeNames") or {}, request.get("ExpressionAttributeValues") or {}
    if isinstance(expression, ConditionBase):
        is_of_key = parameter.startswith("Key")
        expression, names, values = ConditionExpressionBuilder().build_expression(expression, is_of_key)
    match = _CONDITION.fullmatch(expression)
    if match is None:
        raise ValueError(f"{parameter}: {expression}")
    attribute, *places = match.groups()
    return _Condition(str(names.get(attribute, attribute)), [values[place] for place in places if place])


def _filtered(items: list[dict[str, Any]], request: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "FilterExpression" not in request:
        return items
    wanted = _read_condition(request, "FilterExpression")
    return [item for item in items if [item.get(wanted.attribute)] == wanted.operands]
