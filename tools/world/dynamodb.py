"""One DynamoDB in memory: tables, items and the API as JSON. It knows no time, limits or faults: a `Gate` does.

Items keep their size and what they were: a reader sees each as it was at the instant that `seen_until` names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple
from zlib import crc32

from hotpartition.core.capacity import item_size_bytes, read_units, write_units
from tools.world.expressions import (
    ExpressionError,
    Item,
    Names,
    Term,
    parse_condition,
    parse_key_condition,
    parse_projection,
    parse_update,
    rank,
)

Response = dict[str, Any]
Request = Mapping[str, Any]
Place = tuple[Any, Any]
"""Where an item lies in its table: what its partition key and its sort key are compared by."""

Keys = str | tuple[str, ...]
"""The names of partition keys, or of sort keys."""
Indexes = Mapping[str, Sequence[Keys]]
"""The keys of indexes by their names."""

ROLES = ("HASH", "RANGE")
PAGE_BYTES = 1_000_000
KEYS_PER_BATCH, ITEMS_PER_BATCH = 100, 25
TRANSACTION_FACTOR = 2
THROTTLED = "ProvisionedThroughputExceededException"
HISTORY_SECONDS = 10.0
"""How long an item remembers what it was: more than any lag."""


class DynamoDBError(Exception):
    """A request is refused; `facts` stand beside the error in the response."""

    def __init__(self, code: str, message: str = "", *, status: int = 400, **facts: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.facts = code, message, status, facts


class Gate:
    """Is asked before anything happens, and hears what was written. This one lets everything pass."""

    def refuse_write(self, partition_key: str, units: float) -> str | None:
        """Return why a write is refused; None: it is admitted, and has taken its units."""

    def refuse_read(self, partition_key: str, units: float, *, is_query: bool) -> str | None:
        """Return why a read is refused; None: it is admitted, and has taken its units."""

    def kept(self, table: Table, old: Item | None, new: Item | None, units: float) -> None:
        """An item was written, for `units`; None: it is, or was, not there."""


class Version(NamedTuple):
    """A state of an item, and the one that it took the place of; `item` None: it is not there."""

    item: Item | None = None
    size_bytes: int = 0
    written_at: float = -inf
    before: Version | None = None

    def seen(self, until: float) -> Version:
        """Return the state that a reader sees who sees what was written until then."""
        state = self
        while state.written_at > until:
            state = state.before or NOTHING
        return state


NOTHING = Version()


@dataclass(slots=True)
class Collection:
    """All items of one partition key, and their sort keys in order."""

    versions: dict[Any, Version] = field(default_factory=dict)
    order: list[Any] = field(default_factory=list)


class _Found(NamedTuple):
    """What a query or a scan looks at: the places in order, what is there, and how an item's place is found."""

    order: Sequence[Any]
    versions: Mapping[Any, Version]
    place_of: Callable[[Item], Any]
    key_names: Sequence[str]
    """Of a page's last key."""


class Table:
    """One table."""

    def __init__(self, description: Request) -> None:
        """Create it as `CreateTable` describes it."""
        self.description = description
        self.name: str = description["TableName"]
        listed = [*description.get("GlobalSecondaryIndexes", ()), *description.get("LocalSecondaryIndexes", ())]
        self.schemas = {each.get("IndexName"): _keys_of(each) for each in (description, *listed)}
        """The names of partition keys and of sort keys: of each index, and under None the table's own."""
        (self.partition_key,), sort_keys = self.schemas[None]
        self.sort_key = sort_keys[0] if sort_keys else ""
        self.key_names = (self.partition_key, *sort_keys)
        indexes = [(name, keys) for name, keys in self.schemas.items() if name is not None]
        self.types = {each["AttributeName"]: each["AttributeType"] for each in description["AttributeDefinitions"]}
        self.collections: dict[Any, Collection] = {}
        self.entries = {index: (frozenset({*hashes, *ranges}), set[Place]()) for index, (hashes, ranges) in indexes}
        """The keys of each index, and the places that ever held an item with all of them."""

    def place_of(self, item: Item) -> Place:
        """Return where an item lies.

        Raises:
            DynamoDBError: a key attribute is missing, empty or of another type.
        """
        for name in self.key_names:
            value = item.get(name, {})
            if self.types[name] not in value or value == {"S": ""}:
                raise _invalid(f"One or more parameter values are not valid: {name} is missing, empty or mistyped")
        return rank(item[self.partition_key]), rank(item[self.sort_key]) if self.sort_key else ""

    def seen(self, place: Place, until: float = inf) -> Version:
        """Return what is at a place, to a reader that sees what was written until then."""
        collection = self.collections.get(place[0])
        return NOTHING if collection is None else collection.versions.get(place[1], NOTHING).seen(until)

    def keep(self, place: Place, item: Item | None, now: float, size_bytes: int | None = None) -> None:
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
        size_bytes = _size(item) if size_bytes is None else size_bytes
        collection.versions[sort_key] = Version(item, size_bytes, now, known)
        for key_names, places in self.entries.values():
            if item is not None and item.keys() >= key_names:
                places.add(place)

    def versions(self, until: float = inf) -> Iterator[tuple[Place, Version]]:
        """Yield everything that is seen, with its place, in the order of a scan."""
        for key in sorted(self.collections):
            collection = self.collections[key]
            for sort_key in collection.order:
                version = collection.versions[sort_key].seen(until)
                if version.item is not None:
                    yield (key, sort_key), version

    def items(self) -> Iterator[Item]:
        """Yield all items, in the order of a scan."""
        return (version.item or {} for _, version in self.versions())


class _Change(NamedTuple):
    """A write that is prepared; nothing is changed yet."""

    table: Table
    place: Place
    old: Version
    new: Item | None
    """What is to be there; a check leaves what is there."""
    size_bytes: int
    updated: tuple[str, ...]
    """The attributes that an update names."""
    failure: Response | None
    """The error's facts, if the condition does not hold."""

    @property
    def units(self) -> float:
        return float(write_units(max(self.size_bytes, self.old.size_bytes)))

    def returned(self, kind: str) -> Response:
        """Return what a write shows of the item, as it was or is: all of it, or what was updated."""
        item = (self.old.item if kind.endswith("OLD") else self.new) or {}
        names = item if kind.startswith("ALL") else self.updated
        return {name: item[name] for name in names if name in item}


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
        _require(self.gate.refuse_write(str(change.place[0]), change.units))
        if change.failure is not None:
            raise DynamoDBError("ConditionalCheckFailedException", "The conditional request failed", **change.failure)
        self._commit(change, change.units)
        returned = change.returned(request["ReturnValues"]) if request.get("ReturnValues", "NONE") != "NONE" else {}
        return {**_consumed(request, change.units), **({"Attributes": returned} if returned else {})}

    def _prepare(self, request: Request, *, is_check: bool = False) -> _Change:
        """See what a write would do."""
        table, values = self.table(request), request.get("ExpressionAttributeValues", {})
        new: Item | None = dict(request["Item"]) if "Item" in request else None
        place = table.place_of(new or request["Key"])
        old = table.seen(place)
        known, holds = old.item or {}, _condition(request, "ConditionExpression")
        updated: tuple[str, ...] = ()
        failure: Response | None = None
        if holds is not None and not holds(known, values):
            is_shown = known and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            failure = {"Item": dict(known)} if is_shown else {}
        if "UpdateExpression" in request:
            update = parse_update(request["UpdateExpression"], _names(request))
            updated = update.names
            if not set(updated).isdisjoint(table.key_names):
                raise _invalid("One or more parameter values were invalid: Cannot update attribute of the key")
            new = update.apply(known or request["Key"], values) if failure is None else old.item
        elif is_check:
            new = old.item
        return _Change(table, place, old, new, _size(new), updated, failure)

    def _commit(self, change: _Change, units: float) -> None:
        if change.new is not change.old.item:
            change.table.keep(change.place, change.new, self._now, change.size_bytes)
            self.gate.kept(change.table, change.old.item, change.new, units)

    def _write_batch(self, request: Request) -> Response:
        if not 1 <= sum(map(len, request["RequestItems"].values())) <= ITEMS_PER_BATCH:
            raise _invalid("Too many items requested for the BatchWriteItem call")
        left: dict[str, list[Any]] = {}
        for name, actions in request["RequestItems"].items():
            for action in actions:
                ((_, asked),) = action.items()
                if _unless_throttled(self._write, {**asked, "TableName": name}) is None:
                    left.setdefault(name, []).append(action)
        return {"UnprocessedItems": left}

    def _write_together(self, request: Request) -> Response:
        asked = [each for action in request["TransactItems"] for each in action.items()]
        changes = [self._prepare(each, is_check=kind == "ConditionCheck") for kind, each in asked]
        if len({(change.table.name, change.place) for change in changes}) < len(changes):
            raise _invalid("Transaction request cannot include multiple operations on one item")
        for change in changes:
            if self.gate.refuse_write(str(change.place[0]), TRANSACTION_FACTOR * change.units) is not None:
                raise cancelled([{"Code": "ThrottlingError"}])
        if any(change.failure is not None for change in changes):
            raise cancelled([_reason(change.failure) for change in changes])
        for change in changes:
            self._commit(change, TRANSACTION_FACTOR * change.units)
        return {}

    # Reads.

    def _until(self, request: Request) -> float:
        """Return up to when a read sees what was written."""
        return inf if request.get("ConsistentRead", False) else self._seen_until

    def _get(self, request: Request, factor: float = 1.0) -> Response:
        table = self.table(request)
        if request["Key"].keys() != set(table.key_names):
            raise _invalid("The provided key element does not match the schema")
        place = table.place_of(request["Key"])
        version = table.seen(place, self._until(request))
        units = factor * read_units(version.size_bytes, is_strong=request.get("ConsistentRead", False))
        _require(self.gate.refuse_read(str(place[0]), units, is_query=False))
        found = {} if version.item is None else {"Item": _shaped(request, version.item)}
        return {**found, **_consumed(request, units)}

    def _get_batch(self, request: Request) -> Response:
        if not 1 <= sum(len(asked["Keys"]) for asked in request["RequestItems"].values()) <= KEYS_PER_BATCH:
            raise _invalid("Too many items requested for the BatchGetItem call")
        found: dict[str, list[Any]] = {}
        left: dict[str, Any] = {}
        consumed: list[Response] = []
        for name, asked in request["RequestItems"].items():
            responses = []
            for key in asked["Keys"]:
                response = _unless_throttled(self._get, {**request, **asked, "TableName": name, "Key": key})
                if response is None:
                    left.setdefault(name, {**asked, "Keys": []})["Keys"].append(key)
                else:
                    responses.append(response)
            found[name] = [response["Item"] for response in responses if "Item" in response]
            units = [each["ConsumedCapacity"]["CapacityUnits"] for each in responses if "ConsumedCapacity" in each]
            consumed += _consumed({**request, "TableName": name}, sum(units)).values()
        whole = {"Responses": found, "UnprocessedKeys": left}
        return {**whole, "ConsumedCapacity": consumed} if consumed else whole

    def _get_together(self, request: Request) -> Response:
        responses = []
        for action in request["TransactItems"]:
            asked = {**action["Get"], "ConsistentRead": True}
            response = _unless_throttled(lambda asked: self._get(asked, TRANSACTION_FACTOR), asked)
            if response is None:
                raise cancelled([{"Code": "ThrottlingError"}])
            responses.append(response)
        return {"Responses": responses}

    def _query(self, request: Request) -> Response:
        table, index = self.table(request), request.get("IndexName")
        if index not in table.schemas:
            raise _invalid("The table does not have the specified index")
        hashes, ranges = table.schemas[index]
        terms = parse_key_condition(request["KeyConditionExpression"], _names(request))
        has_partition = all(name in terms and terms[name].operator == "=" for name in hashes)
        if not has_partition or terms.keys() - {*hashes, *ranges}:
            raise _invalid("Query condition missed key schema element or names another attribute")
        if index is not None:
            return self._page(request, self._entries(request, table, (*ranges, *hashes), terms))[0]
        values = request.get("ExpressionAttributeValues", {})
        key = rank(terms[table.partition_key].operands[1]({}, values))
        collection = table.collections.get(key, Collection())
        order = _within(collection.order, terms.get(table.sort_key), values)
        found = _Found(order, collection.versions, lambda item: table.place_of(item)[1], table.key_names)
        response, units = self._page(request, found)
        _require(self.gate.refuse_read(str(key), units, is_query=True))
        return response

    def _entries(self, request: Request, table: Table, keys: Sequence[str], terms: Mapping[str, Term]) -> _Found:
        """Find the entries of an index: whatever has all its keys is in it."""
        key_names = tuple(dict.fromkeys((*keys, *table.key_names)))
        values, found = request.get("ExpressionAttributeValues", {}), {}

        def place_of(item: Item) -> tuple[Any, ...]:
            return tuple(rank(item[name]) for name in key_names)

        wanted, places = table.entries[request["IndexName"]]
        for place in places:
            version = table.seen(place, self._until(request))
            item = version.item or {}
            if item.keys() >= wanted and all(term(item, values) for term in terms.values()):
                found[place_of(item)] = version
        return _Found(sorted(found), found, place_of, key_names)

    def _scan(self, request: Request) -> Response:
        table = self.table(request)
        segment, total = request.get("Segment", 0), request.get("TotalSegments", 1)
        versions = table.versions(self._until(request))
        found = {place: each for place, each in versions if crc32(str(place[0]).encode()) % total == segment}
        return self._page(request, _Found(list(found), found, table.place_of, table.key_names))[0]

    def _page(self, request: Request, found: _Found) -> tuple[Response, float]:
        """Take items up to the limit; return the response, and the units that are taken for it.

        Like DynamoDB, a page that stops at its limit cannot know whether anything follows.
        """
        limit, values = request.get("Limit", inf), request.get("ExpressionAttributeValues", {})
        if limit < 1:
            raise _invalid("Limit must be greater than or equal to 1")
        keeps = _condition(request, "FilterExpression")
        items: list[Item] = []
        last: Response = {}
        size = evaluated = 0
        for item, size_bytes in self._walk(request, found):
            evaluated, size = evaluated + 1, size + size_bytes
            if keeps is None or keeps(item, values):
                items.append(item)
            if evaluated >= limit or size >= PAGE_BYTES:
                last = {"LastEvaluatedKey": {name: item[name] for name in found.key_names}}
                break
        units = read_units(size, is_strong=request.get("ConsistentRead", False))
        shown = {} if request.get("Select") == "COUNT" else {"Items": [_shaped(request, item) for item in items]}
        return {"Count": len(items), "ScannedCount": evaluated, **shown, **last, **_consumed(request, units)}, units

    def _walk(self, request: Request, found: _Found) -> Iterator[tuple[Item, int]]:
        """Yield items with their sizes, in the order that is asked for and from where the page starts."""
        order, until, is_forward = found.order, self._until(request), request.get("ScanIndexForward", True)
        if "ExclusiveStartKey" in request:
            start = found.place_of(request["ExclusiveStartKey"])
            order = order[bisect_right(order, start) :] if is_forward else order[: bisect_left(order, start)]
        for place in order if is_forward else reversed(order):
            version = found.versions[place].seen(until)
            if version.item is not None:
                yield version.item, version.size_bytes


def _require(reason: str | None) -> None:
    """Raise what refuses a request, if anything does."""
    if reason is not None:
        raise throttled(reason)


def _unless_throttled(do: Callable[[Request], Response], request: Request) -> Response | None:
    """Do one of several things that a request asks for; None: it is throttled."""
    try:
        return do(request)
    except DynamoDBError as error:
        if error.code != THROTTLED:
            raise
        return None


def _within(order: Sequence[Any], term: Term | None, values: Item) -> Sequence[Any]:
    """Return the sort keys, which are in order, that satisfy a term of a key condition."""
    if term is None:
        return order
    low, *more = [rank(operand({}, values)) for operand in term.operands[1:]]
    first, last = bisect_left(order, low), bisect_right(order, more[0] if more else low)
    if term.operator == "begins_with":
        return list(takewhile(lambda key: key.startswith(low), order[first:]))
    parts = {
        "<": slice(first),
        "<=": slice(last),
        ">": slice(last, None),
        ">=": slice(first, None),
    }
    return order[parts.get(term.operator, slice(first, last))]


def define_table(
    *keys: Keys, indexes: Indexes | None = None, local: Indexes | None = None, types: Mapping[str, str] | None = None
) -> Response:
    """Define a table for `CreateTable`: its keys, the partition key first, and those of its indexes, global and local.

    A tuple stands for several keys of one kind. Keys are texts unless `types` says otherwise.
    """
    defined: Response = {"KeySchema": _schema_of(keys), "BillingMode": "PAY_PER_REQUEST"}
    schemas = [defined["KeySchema"]]
    for parameter, given in (("GlobalSecondaryIndexes", indexes), ("LocalSecondaryIndexes", local)):
        projected = {"Projection": {"ProjectionType": "ALL"}}
        listed = [{"IndexName": name, "KeySchema": _schema_of(own), **projected} for name, own in (given or {}).items()]
        defined |= {parameter: listed} if listed else {}
        schemas += [index["KeySchema"] for index in listed]
    names = dict.fromkeys(key["AttributeName"] for schema in schemas for key in schema)
    of_type = types or {}
    defined["AttributeDefinitions"] = [{"AttributeName": n, "AttributeType": of_type.get(n, "S")} for n in names]
    return defined


def _schema_of(keys: Sequence[Keys]) -> list[dict[str, str]]:
    roles = [([each] if isinstance(each, str) else each, role) for each, role in zip(keys, ROLES, strict=False)]
    return [{"AttributeName": name, "KeyType": role} for names, role in roles for name in names]


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


def _condition(request: Request, parameter: str) -> Term | None:
    text = request.get(parameter)
    return None if text is None else parse_condition(text, _names(request))


def _shaped(request: Request, item: Item) -> Response:
    projection = request.get("ProjectionExpression")
    return dict(item) if projection is None else parse_projection(projection, _names(request))(item)


def _consumed(request: Request, units: float) -> Response:
    if request.get("ReturnConsumedCapacity", "NONE") == "NONE":
        return {}
    return {"ConsumedCapacity": {"TableName": request["TableName"], "CapacityUnits": units}}
