"""One DynamoDB in memory: tables, items and the API as JSON. It knows no time, limits or faults: a `Gate` does.

Items keep their size and what they were: a reader sees each as it was at the instant that `seen_until` names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple
from zlib import crc32

from hotpartition.core.capacity import item_size_bytes, read_units, write_units
from tools.world.expressions import (
    ExpressionError,
    Item,
    Names,
    parse_condition,
    parse_key_condition,
    parse_projection,
    parse_update,
    rank,
)

Response = dict[str, Any]
Request = Mapping[str, Any]

PAGE_BYTES = 1_000_000
KEYS_PER_BATCH, ITEMS_PER_BATCH, ACTIONS_PER_TRANSACTION = 100, 25, 100
TRANSACTION_FACTOR = 2
THROTTLED = "ProvisionedThroughputExceededException"
HISTORY_SECONDS = 10.0
"""How long an item remembers what it was: more than any lag."""
_NO_SORT_KEY = ""


class DynamoDBError(Exception):
    """A request is refused; `facts` stand beside the error in the response."""

    def __init__(self, code: str, message: str = "", *, status: int = 400, **facts: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.facts = code, message, status, facts


class Version(NamedTuple):
    """A state of an item, and the one that it took the place of; `item` None: there was none."""

    item: Item | None
    size_bytes: int
    written_at: float
    before: Version | None = None

    def seen(self, until: float) -> Version | None:
        """Return the state that a reader sees who sees what was written until then."""
        state: Version | None = self
        while state is not None and state.written_at > until:
            state = state.before
        return state if state is not None and state.item is not None else None


@dataclass(slots=True)
class Collection:
    """All items of one partition key, and their sort keys in order."""

    versions: dict[Any, Version] = field(default_factory=dict)
    order: list[Any] = field(default_factory=list)


class Gate:
    """Is asked before anything happens, and hears what was written. This one lets everything pass."""

    def refuse_write(self, partition_key: str, units: float) -> str | None:
        """Return why a write is refused; None: it is admitted, and has taken its units."""
        del partition_key, units
        return None

    def refuse_read(self, partition_key: str, units: float, *, is_query: bool) -> str | None:
        """Return why a read is refused; None: it is admitted, and has taken its units."""
        del partition_key, units, is_query
        return None

    def kept(self, table: Table, old: Item | None, new: Item | None, units: float) -> None:
        """An item was written, for so many units (None: it is, or was, not there)."""


class Table:
    """One table."""

    def __init__(self, description: Request) -> None:
        """Create it as `CreateTable` describes it."""
        self.description = description
        self.name: str = description["TableName"]
        (self.partition_key,), sort = _keys_of(description)
        self.sort_key = sort[0] if sort else _NO_SORT_KEY
        self.key_names = (self.partition_key, *sort)
        listed = [*description.get("GlobalSecondaryIndexes", ()), *description.get("LocalSecondaryIndexes", ())]
        self.indexes = {index["IndexName"]: _keys_of(index) for index in listed}
        self.types = {each["AttributeName"]: each["AttributeType"] for each in description["AttributeDefinitions"]}
        self.collections: dict[Any, Collection] = {}

    def place_of(self, item: Item) -> tuple[Any, Any]:
        """Return where an item lies.

        Raises:
            DynamoDBError: a key attribute is missing, empty or of another type.
        """
        for name in self.key_names:
            value = item.get(name)
            if value is None:
                raise _invalid(f"One or more parameter values were invalid: Missing the key {name} in the item")
            if self.types[name] not in value:
                raise _invalid(f"One or more parameter values were invalid: Type mismatch for key {name}")
            if value == {"S": ""}:
                raise _invalid(f"One or more parameter values are not valid. {name} is an empty string value.")
        return rank(item[self.partition_key]), rank(item[self.sort_key]) if self.sort_key else _NO_SORT_KEY

    def key_of(self, item: Item) -> Response:
        """Return the key attributes of an item."""
        return {name: item[name] for name in self.key_names}

    def latest(self, place: tuple[Any, Any]) -> Version | None:
        """Return what is at a place now."""
        collection = self.collections.get(place[0])
        version = None if collection is None else collection.versions.get(place[1])
        return version if version is not None and version.item is not None else None

    def keep(self, place: tuple[Any, Any], item: Item | None, now: float, size_bytes: int | None = None) -> None:
        """Put an item at its place, or take it away, and remember what was there for as long as it can be seen."""
        key, sort_key = place
        collection = self.collections.setdefault(key, Collection())
        known = collection.versions.get(sort_key)
        if known is None:
            if collection.order and sort_key < collection.order[-1]:
                insort(collection.order, sort_key)
            else:
                collection.order.append(sort_key)
        elif known.before is not None and known.before.written_at < now - HISTORY_SECONDS:
            known = known._replace(before=None)
        if size_bytes is None:
            size_bytes = _size(item)
        collection.versions[sort_key] = Version(item, size_bytes, now, known)

    def versions(self, until: float = inf) -> Iterator[Version]:
        """Yield everything, in the order of a scan."""
        for key in sorted(self.collections):
            collection = self.collections[key]
            for sort_key in collection.order:
                version = collection.versions[sort_key].seen(until)
                if version is not None:
                    yield version

    def items(self) -> Iterator[Item]:
        """Yield all items, in the order of a scan."""
        return (version.item or {} for version in self.versions())


class _Change(NamedTuple):
    """A write that is prepared: where, what was there, what is to be there, and what does not hold."""

    table: Table
    place: tuple[Any, Any]
    old: Version | None
    new: Item | None
    size_bytes: int
    """Of what is to be there."""
    updated: tuple[str, ...]
    failure: Response | None
    """The error's facts, if the condition does not hold."""
    is_check: bool

    @property
    def partition_key(self) -> str:
        return str(self.place[0])

    @property
    def units(self) -> float:
        return float(write_units(max(self.size_bytes, 0 if self.old is None else self.old.size_bytes)))


class DynamoDB:
    """All tables. `call` does what one request asks for, at one instant."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.gate = gate or Gate()
        self.tables: dict[str, Table] = {}
        self._now, self._seen_until = 0.0, inf
        """Of the request that happens."""
        self._operations: Mapping[str, Callable[[Request], Response]] = {
            "CreateTable": self._create_table,
            "DescribeTable": self._describe_table,
            "DeleteTable": self._delete_table,
            "PutItem": self._write,
            "UpdateItem": self._write,
            "DeleteItem": self._write,
            "GetItem": self._get,
            "Query": self._query,
            "Scan": self._scan,
            "BatchGetItem": self._get_batch,
            "BatchWriteItem": self._write_batch,
            "TransactWriteItems": self._write_together,
            "TransactGetItems": self._get_together,
        }

    def call(self, operation: str, request: Request, *, now: float = 0.0, seen_until: float = inf) -> Response:
        """Do what a request asks for; eventually consistent reads see what was written until `seen_until`.

        Raises:
            DynamoDBError: it is refused.
        """
        self._now, self._seen_until = now, seen_until
        try:
            return self._operations[operation](request)
        except ExpressionError as error:
            raise _invalid(str(error)) from error

    def table(self, request: Request) -> Table:
        """Find the table that a request names."""
        table = self.tables.get(request["TableName"])
        if table is None:
            raise DynamoDBError("ResourceNotFoundException", "Requested resource not found")
        return table

    # Tables.

    def _create_table(self, request: Request) -> Response:
        self.tables[request["TableName"]] = Table(request)
        return {"TableDescription": self._describe_table(request)["Table"]}

    def _describe_table(self, request: Request) -> Response:
        return {"Table": {**self.table(request).description, "TableStatus": "ACTIVE"}}

    def _delete_table(self, request: Request) -> Response:
        return {"TableDescription": dict(self.tables.pop(self.table(request).name).description)}

    # Writes.

    def _write(self, request: Request) -> Response:
        change = self._prepare(request)
        self._admit(change)
        if change.failure is not None:
            raise DynamoDBError("ConditionalCheckFailedException", "The conditional request failed", **change.failure)
        self._commit(change)
        response = _consumed(request, change.units)
        old = {} if change.old is None else change.old.item or {}
        returned = {
            "ALL_OLD": old,
            "ALL_NEW": change.new or {},
            "UPDATED_OLD": _part(old, change.updated),
            "UPDATED_NEW": _part(change.new or {}, change.updated),
        }.get(request.get("ReturnValues", "NONE"))
        return {**response, "Attributes": dict(returned)} if returned else response

    def _prepare(self, request: Request, *, is_check: bool = False) -> _Change:
        """See what a write would do; nothing is changed yet."""
        table, names, values = self.table(request), _names(request), request.get("ExpressionAttributeValues", {})
        place = table.place_of(request.get("Item") or request["Key"])
        old = table.latest(place)
        known: Item = {} if old is None or old.item is None else old.item
        failure: Response | None = None
        condition = request.get("ConditionExpression")
        if condition is not None and not parse_condition(condition, names)(known, values):
            is_shown = known and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            failure = {"Item": dict(known)} if is_shown else {}
        new: Item | None = request.get("Item")
        updated: tuple[str, ...] = ()
        if "UpdateExpression" in request:
            update = parse_update(request["UpdateExpression"], names)
            updated = update.names
            if not set(updated).isdisjoint(table.key_names):
                raise _invalid("One or more parameter values were invalid: Cannot update attribute of the key")
            new = update.apply(known or request["Key"], values) if failure is None else known or None
        if is_check:
            new = known or None
        return _Change(table, place, old, new, _size(new), updated, failure, is_check)

    def _admit(self, change: _Change) -> None:
        reason = self.gate.refuse_write(change.partition_key, change.units)
        if reason is not None:
            raise throttled(reason)

    def _commit(self, change: _Change, factor: float = 1.0) -> None:
        if change.is_check or (change.old is None and change.new is None):
            return
        change.table.keep(change.place, change.new, self._now, change.size_bytes)
        self.gate.kept(change.table, None if change.old is None else change.old.item, change.new, factor * change.units)

    def _write_batch(self, request: Request) -> Response:
        if not 1 <= sum(map(len, request["RequestItems"].values())) <= ITEMS_PER_BATCH:
            raise _invalid("Too many items requested for the BatchWriteItem call")
        left: dict[str, list[Any]] = {}
        for name, actions in request["RequestItems"].items():
            for action in actions:
                ((_, asked),) = action.items()
                change = self._prepare({**asked, "TableName": name})
                try:
                    self._admit(change)
                except DynamoDBError:
                    left.setdefault(name, []).append(action)
                else:
                    self._commit(change)
        return {"UnprocessedItems": left}

    def _write_together(self, request: Request) -> Response:
        changes = []
        for action in request["TransactItems"]:
            ((kind, asked),) = action.items()
            changes.append(self._prepare(asked, is_check=kind == "ConditionCheck"))
        if len({(change.table.name, change.place) for change in changes}) < len(changes):
            raise _invalid("Transaction request cannot include multiple operations on one item")
        for change in changes:
            if self.gate.refuse_write(change.partition_key, TRANSACTION_FACTOR * change.units) is not None:
                raise cancelled([{"Code": "ThrottlingError"}])
        if any(change.failure is not None for change in changes):
            raise cancelled([_reason(change.failure) for change in changes])
        for change in changes:
            self._commit(change, TRANSACTION_FACTOR)
        return {}

    # Reads.

    def _until(self, request: Request) -> float:
        """Return up to when a read sees what was written."""
        return inf if request.get("ConsistentRead", False) else self._seen_until

    def _get(self, request: Request) -> Response:
        item, units = self._read_one(request)
        response = _consumed(request, units)
        return response if item is None else {"Item": item, **response}

    def _read_one(self, request: Request, factor: float = 1.0) -> tuple[Response | None, float]:
        """Read an item that is asked for; return it, and the units that were taken for it.

        Raises:
            DynamoDBError: there is no such key, or it is throttled.
        """
        table = self.table(request)
        if request["Key"].keys() != set(table.key_names):
            raise _invalid("The provided key element does not match the schema")
        key, sort_key = table.place_of(request["Key"])
        collection = table.collections.get(key)
        version = None if collection is None else collection.versions.get(sort_key)
        seen = None if version is None else version.seen(self._until(request))
        size_bytes = 0 if seen is None else seen.size_bytes
        units = factor * read_units(size_bytes, is_strong=request.get("ConsistentRead", False))
        self._admit_read(str(key), units, is_query=False)
        return None if seen is None else _shaped(request, seen.item or {}), units

    def _admit_read(self, partition_key: str, units: float, *, is_query: bool) -> None:
        reason = self.gate.refuse_read(partition_key, units, is_query=is_query)
        if reason is not None:
            raise throttled(reason)

    def _get_batch(self, request: Request) -> Response:
        if not 1 <= sum(len(asked["Keys"]) for asked in request["RequestItems"].values()) <= KEYS_PER_BATCH:
            raise _invalid("Too many items requested for the BatchGetItem call")
        found: dict[str, list[Any]] = {}
        left: dict[str, Any] = {}
        consumed: list[Response] = []
        for name, asked in request["RequestItems"].items():
            found[name] = []
            total = 0.0
            for key in asked["Keys"]:
                try:
                    item, units = self._read_one({**asked, "TableName": name, "Key": key})
                except DynamoDBError as error:
                    if error.code != THROTTLED:
                        raise
                    left.setdefault(name, {**asked, "Keys": []})["Keys"].append(key)
                    continue
                total += units
                if item is not None:
                    found[name].append(item)
            consumed += _consumed({**request, "TableName": name}, total).values()
        response: Response = {"Responses": found, "UnprocessedKeys": left}
        return {**response, "ConsumedCapacity": consumed} if consumed else response

    def _get_together(self, request: Request) -> Response:
        responses = []
        for action in request["TransactItems"]:
            try:
                item, _ = self._read_one({**action["Get"], "ConsistentRead": True}, TRANSACTION_FACTOR)
            except DynamoDBError as error:
                if error.code != THROTTLED:
                    raise
                raise cancelled([{"Code": "ThrottlingError"}]) from error
            responses.append({} if item is None else {"Item": item})
        return {"Responses": responses}

    def _query(self, request: Request) -> Response:
        table, values = self.table(request), request.get("ExpressionAttributeValues", {})
        if request.get("Limit", 1) < 1:
            raise _invalid("Limit must be greater than or equal to 1")
        terms = parse_key_condition(request["KeyConditionExpression"], _names(request))
        bounds = {name: (operator, [rank(each({}, values)) for each in given]) for name, operator, given in terms}
        if "IndexName" in request:
            return self._query_index(table, request, bounds)
        operator, (key, *_) = bounds.pop(table.partition_key, ("", [None]))
        if operator != "=" or bounds.keys() - {table.sort_key}:
            raise _invalid("Query condition missed key schema element or names another attribute")
        collection = table.collections.get(key) or Collection()
        first, last = _range(collection.order, *bounds.get(table.sort_key, ("", [])))
        is_forward = request.get("ScanIndexForward", True)
        if "ExclusiveStartKey" in request:
            start = table.place_of(request["ExclusiveStartKey"])[1]
            if is_forward:
                first = max(first, bisect_right(collection.order, start))
            else:
                last = min(last, bisect_left(collection.order, start))
        places, until = range(first, last) if is_forward else range(last - 1, first - 1, -1), self._until(request)
        seen = (collection.versions[collection.order[place]].seen(until) for place in places)
        response, units = _page(request, (version for version in seen if version is not None), table.key_names)
        self._admit_read(str(key), units, is_query=True)
        return response

    def _query_index(self, table: Table, request: Request, bounds: Mapping[str, Any]) -> Response:
        """Query an index: whatever has all its keys is in it."""
        if request["IndexName"] not in table.indexes:
            raise _invalid("The table does not have the specified index")
        hashes, ranges = table.indexes[request["IndexName"]]
        keys = (*hashes, *ranges)
        if any(bounds.get(name, ("",))[0] != "=" for name in hashes) or bounds.keys() - set(keys):
            raise _invalid("Query condition missed key schema element or names another attribute")

        def place(item: Item | None) -> tuple[Any, ...]:
            return tuple(rank((item or {})[name]) for name in (*ranges, *table.key_names))

        until, is_forward = self._until(request), request.get("ScanIndexForward", True)
        items = ((version, version.item or {}) for version in table.versions(until))
        found = [each for each, item in items if all(name in item for name in keys) and _is_within(item, bounds)]
        found.sort(key=lambda version: place(version.item), reverse=not is_forward)
        if "ExclusiveStartKey" in request:
            start = place(request["ExclusiveStartKey"])
            found = [each for each in found if (place(each.item) > start if is_forward else place(each.item) < start)]
        return _page(request, found, tuple(dict.fromkeys((*table.key_names, *keys))))[0]

    def _scan(self, request: Request) -> Response:
        table = self.table(request)
        start = table.place_of(request["ExclusiveStartKey"]) if "ExclusiveStartKey" in request else None
        segment, total = request.get("Segment", 0), request.get("TotalSegments", 1)

        def is_asked(version: Version) -> bool:
            place = table.place_of(version.item or {})
            return (start is None or place > start) and crc32(str(place[0]).encode()) % total == segment

        return _page(request, filter(is_asked, table.versions(self._until(request))), table.key_names)[0]


def _page(request: Request, versions: Iterable[Version], key_names: Sequence[str]) -> tuple[Response, float]:
    """Take items up to the limit; return the response, and the units that were taken for it.

    Like DynamoDB, a page that stops at its limit cannot know whether anything follows.
    """
    limit, size, evaluated = request.get("Limit", inf), 0, 0
    items: list[Item] = []
    last: Item | None = None
    values = request.get("ExpressionAttributeValues", {})
    text = request.get("FilterExpression")
    keeps = None if text is None else parse_condition(text, _names(request))
    for version in versions:
        if evaluated >= limit or size >= PAGE_BYTES:
            break
        item = version.item or {}
        evaluated, last = evaluated + 1, item
        size += version.size_bytes
        if keeps is None or keeps(item, values):
            items.append(item)
    units = read_units(size, is_strong=request.get("ConsistentRead", False))
    response: Response = {"Count": len(items), "ScannedCount": evaluated, **_consumed(request, units)}
    if request.get("Select") != "COUNT":
        response["Items"] = [_shaped(request, item) for item in items]
    if last is not None and (evaluated >= limit or size >= PAGE_BYTES):
        response["LastEvaluatedKey"] = {name: last[name] for name in key_names}
    return response, units


def _range(order: Sequence[Any], operator: str, values: Sequence[Any]) -> tuple[int, int]:
    """Return from where to where sort keys satisfy a comparison."""
    if not operator:
        return 0, len(order)
    first, last, end = bisect_left(order, values[0]), bisect_right(order, values[0]), len(order)
    if operator == "begins_with":
        return first, next((place for place in range(first, end) if not order[place].startswith(values[0])), end)
    ranges = {
        "=": (first, last),
        "<": (0, first),
        "<=": (0, last),
        ">": (last, end),
        ">=": (first, end),
        "BETWEEN": (first, bisect_right(order, values[-1])),
    }
    if operator not in ranges:
        raise _invalid(f"Invalid operator used in KeyConditionExpression: {operator}")
    return ranges[operator]


def _is_within(item: Item, bounds: Mapping[str, tuple[str, Sequence[Any]]]) -> bool:
    """Say whether the keys of an index satisfy a key condition."""
    return all(_range([rank(item[name])], *bound) == (0, 1) for name, bound in bounds.items())


def described(name: str, **keys: str) -> Response:
    """Describe a table as `CreateTable` does; `keys`: the kind of each, HASH or RANGE. All are texts."""
    return {
        "TableName": name,
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for key in keys],
        "KeySchema": [{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
    }


def throttled(reason: str) -> DynamoDBError:
    """Build the refusal of a request that takes more than there is."""
    return DynamoDBError(
        THROTTLED,
        "The level of configured provisioned throughput for the table was exceeded",
        ThrottlingReasons=[{"reason": reason, "resource": "arn"}],
    )


def cancelled(reasons: list[Response]) -> DynamoDBError:
    """Build the refusal of a transaction."""
    codes = ", ".join(reason["Code"] for reason in reasons)
    return DynamoDBError(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        CancellationReasons=reasons,
    )


def _reason(failure: Response | None) -> Response:
    if failure is None:
        return {"Code": "None"}
    return {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", **failure}


def _invalid(message: str) -> DynamoDBError:
    return DynamoDBError("ValidationException", message)


def _size(item: Item | None) -> int:
    return 0 if item is None else item_size_bytes(item)


def _keys_of(description: Request) -> tuple[tuple[str, ...], tuple[str, ...]]:
    hashes = tuple(key["AttributeName"] for key in description["KeySchema"] if key["KeyType"] == "HASH")
    return hashes, tuple(key["AttributeName"] for key in description["KeySchema"] if key["KeyType"] == "RANGE")


def _names(request: Request) -> Names:
    names = request.get("ExpressionAttributeNames")
    return tuple(names.items()) if names else ()


def _shaped(request: Request, item: Item) -> Response:
    projection = request.get("ProjectionExpression")
    return dict(item) if projection is None else parse_projection(projection, _names(request))(item)


def _part(item: Item, names: Sequence[str]) -> Response:
    return {name: item[name] for name in names if name in item}


def _consumed(request: Request, units: float) -> Response:
    if request.get("ReturnConsumedCapacity", "NONE") == "NONE":
        return {}
    return {"ConsumedCapacity": {"TableName": request["TableName"], "CapacityUnits": units}}
