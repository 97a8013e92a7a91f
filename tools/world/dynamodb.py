"""One DynamoDB in memory: tables, items and the API as JSON. It knows no time, limits or faults: a `Gate` does.

Items keep their size and what they were: a reader sees each as it was at the instant that `seen_until` names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

from hotpartition.core.capacity import item_size_bytes, read_units, write_units
from tools.limits.request_tokens import RequestTokenError, RequestTokens
from tools.world.expressions import (
    ExpressionError,
    Item,
    Names,
    Term,
    apply_update,
    parse_condition,
    parse_key_condition,
    parse_projection,
    parse_update,
    project,
    rank,
)

Response = dict[str, Any]
Request = Mapping[str, Any]
Place = tuple[Any, ...]
"""Where an item lies in its table, or in an index: what its keys are compared by, in the order of `_Order`."""

Keys = str | tuple[str, ...]
"""The names of partition keys, or of sort keys."""
Indexes = Mapping[str, Sequence[Keys]]
"""The keys of indexes by their names."""

ROLES = ("HASH", "RANGE")
PAGE_BYTES = 1_000_000
KEYS_PER_BATCH, ITEMS_PER_BATCH = 100, 25
LONGEST_SORT_KEY_BYTES = 1024
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

    def note(self, what: str) -> None:
        """Something came about that seldom does."""


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


class _Order:
    """The order of a table's items, or of the entries of an index: by its own keys, and then by the table's."""

    def __init__(self, description: Request, table_keys: Sequence[str], types: Mapping[str, str]) -> None:
        schema = [(key["AttributeName"], key["KeyType"]) for key in description["KeySchema"]]
        self.hashes = [name for name, kind in schema if kind == "HASH"]
        self.ranges = [name for name, kind in schema if kind == "RANGE"]
        self.key_names = tuple(dict.fromkeys((*self.hashes, *self.ranges, *table_keys)))
        self.types = types
        self.items: dict[Place, Place] = {}
        """Where in the table the item of each entry lies. It may have other keys by now, and have no entry."""
        self.places: list[Place] = []
        """Of all entries, in order."""

    def place_of(self, item: Item) -> Place | None:
        """Return an item's place; None: it lacks a key.

        Raises:
            DynamoDBError: a key attribute is empty or of another type.
        """
        for name in self.key_names:
            value = item.get(name)
            if value is None:
                return None
            if self.types.get(name, "S") not in value or value == {"S": ""}:
                raise _invalid(f"One or more parameter values are not valid: {name} is empty or mistyped")
        return tuple(rank(item[name]) for name in self.key_names)

    def add(self, item: Item, place_in_table: Place) -> None:
        """Note an item, if it has all keys."""
        place = self.place_of(item)
        if place is not None and place not in self.items:
            self.items[place] = place_in_table
            insort(self.places, place)

    def find(self, key: Place, terms: Mapping[str, Term], values: Item) -> range:
        """Return the part of the order that has these partition keys, and satisfies the term of the first sort key."""
        depth = len(key)
        first = bisect_left(self.places, key)
        last = bisect_right(self.places, key, first, key=lambda place: place[:depth])
        term = terms.get(self.ranges[0]) if self.ranges else None
        if term is None:
            return range(first, last)
        low, *more = [rank(operand({}, values)) for operand in term.operands[1:]]
        high = more[0] if more else low
        if term.operator == "begins_with":
            high = low + (chr(0x10FFFF) if isinstance(low, str) else b"\xff" * LONGEST_SORT_KEY_BYTES)
        from_low = bisect_left(self.places, low, first, last, key=itemgetter(depth))
        behind_high = bisect_right(self.places, high, first, last, key=itemgetter(depth))
        parts = {"<": (first, from_low), "<=": (first, behind_high), ">": (behind_high, last), ">=": (from_low, last)}
        return range(*parts.get(term.operator, (from_low, behind_high)))

    def walk(self, request: Request, part: range) -> Iterator[Place]:
        """Yield a part of the places in the order that a request asks for, from where its page starts."""
        is_forward = request.get("ScanIndexForward", True)
        if "ExclusiveStartKey" in request:
            start: Any = self.place_of(request["ExclusiveStartKey"])
            if start is None:
                raise _invalid("The provided starting key is invalid")
            if is_forward:
                part = range(max(part.start, bisect_right(self.places, start)), part.stop)
            else:
                part = range(part.start, min(part.stop, bisect_left(self.places, start)))
        return (self.places[number] for number in (part if is_forward else reversed(part)))


class Table:
    """One table."""

    def __init__(self, description: Request) -> None:
        """Create it as `CreateTable` describes it."""
        self.description = description
        self.name: str = description["TableName"]
        types = {each["AttributeName"]: each["AttributeType"] for each in description["AttributeDefinitions"]}
        self.own = _Order(description, (), types)
        self.key_names = self.own.key_names
        indexes = [*description.get("GlobalSecondaryIndexes", ()), *description.get("LocalSecondaryIndexes", ())]
        self.orders = {each["IndexName"]: _Order(each, self.key_names, types) for each in indexes} | {None: self.own}
        """That of each index, and under None the table's own."""
        self.versions: dict[Place, Version] = {}

    def place_of(self, item: Item) -> Place:
        """Return where an item lies.

        Raises:
            DynamoDBError: a key attribute is missing, empty or of another type.
        """
        place = self.own.place_of(item)
        if place is None:
            raise _invalid("One or more parameter values were invalid: Missing a key in the item")
        return place

    def check_indexes(self, item: Item) -> None:
        """Refuse an item that an index cannot hold, before anything of its request is written.

        Raises:
            DynamoDBError: a key attribute of an index is empty or of another type.
        """
        for order in self.orders.values():
            order.place_of(item)

    def seen(self, place: Place, until: float = inf) -> Version:
        """Return what is at a place, to a reader that sees what was written until then."""
        return self.versions.get(place, NOTHING).seen(until)

    def keep(self, place: Place, item: Item | None, now: float, size_bytes: int = 0) -> None:
        """Put an item at its place, or take it away, and remember what was there for as long as it can be seen."""
        known = self.versions.get(place)
        if known is not None and known.before is not None and known.before.written_at < now - HISTORY_SECONDS:
            known = known._replace(before=None)
        if item is not None:
            for order in self.orders.values():
                order.add(item, place)
        self.versions[place] = Version(item, size_bytes, now, known)

    def items(self) -> Iterator[Item]:
        """Yield all items, in the order of a scan."""
        items = (self.versions[place].item for place in self.own.places)
        return (item for item in items if item is not None)


class _Change(NamedTuple):
    """A write that is prepared; nothing is changed yet."""

    table: Table
    place: Place
    old: Version
    new: Item | None
    """What is to be there; a check leaves what is there."""
    size_bytes: int
    updated: frozenset[str]
    """The attributes that an update changes."""
    failure: Response | None
    """The error's facts, if the condition does not hold."""

    @property
    def units(self) -> float:
        return float(write_units(max(self.size_bytes, self.old.size_bytes)))

    def returned(self, kind: str) -> Response:
        """Return what a write shows of the item, as it was or is: all of it, or what was updated."""
        item = (self.old.item if kind.endswith("OLD") else self.new) or {}
        names = item.keys() if kind.startswith("ALL") else self.updated
        return {} if kind == "NONE" else {name: item[name] for name in item if name in names}


class DynamoDB:
    """All tables. `call` does what one request asks for, at one instant."""

    def __init__(self, gate: Gate | None = None, *, conflict_seconds: float = 0.0) -> None:
        """Start without tables; a transaction keeps others from its items for `conflict_seconds`."""
        self.gate = gate or Gate()
        self.tables: dict[str, Table] = {}
        self.tokens = RequestTokens()
        """What transactions with a token are let happen by."""
        self._conflict_seconds = conflict_seconds
        self._locked_until: dict[tuple[str, Place], float] = {}
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
            "TransactWriteItems": self._write_once,
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

    def _write(self, request: Request, *, in_batch: bool = False) -> Response:
        change = self._prepare(request)
        if not in_batch and self._is_locked(change):
            raise DynamoDBError("TransactionConflictException", "Transaction is ongoing for the item")
        _require(self.gate.refuse_write(str(change.place[0]), change.units))
        if change.failure is not None:
            raise DynamoDBError("ConditionalCheckFailedException", "The conditional request failed", **change.failure)
        self._commit(change, change.units)
        returned = change.returned(request.get("ReturnValues", "NONE"))
        return {**_consumed(request, change.units), **({"Attributes": returned} if returned else {})}

    def _prepare(self, request: Request, *, is_check: bool = False) -> _Change:
        """See what a write would do."""
        table, values = self.table(request), _values(request)
        new: Item | None = dict(request["Item"]) if "Item" in request else None
        place = table.place_of(new or request["Key"])
        old = table.seen(place)
        known, updated = old.item or {}, frozenset[str]()
        failure: Response | None = None
        if not _test(request, "ConditionExpression")(known):
            is_shown = known and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            failure = {"Item": dict(known)} if is_shown else {}
        if "UpdateExpression" in request:
            changes = parse_update(request["UpdateExpression"], _names(request))
            updated = frozenset(changed.path[0] for changed, _ in changes)
            if not updated.isdisjoint(table.key_names):
                raise _invalid("One or more parameter values were invalid: Cannot update attribute of the key")
            new = apply_update(changes, known or request["Key"], values) if failure is None else old.item
        elif is_check:
            new = old.item
        if new is not None and new is not old.item:
            table.check_indexes(new)
        return _Change(table, place, old, new, item_size_bytes(new or {}), updated, failure)

    def _commit(self, change: _Change, units: float) -> None:
        if change.new is not change.old.item:
            change.table.keep(change.place, change.new, self._now, change.size_bytes)
            self.gate.kept(change.table, change.old.item, change.new, units)

    def _write_batch(self, request: Request) -> Response:
        if not 1 <= sum(map(len, request["RequestItems"].values())) <= ITEMS_PER_BATCH:
            raise _invalid("Too many items requested for the BatchWriteItem call")
        left = {}
        for name, actions in request["RequestItems"].items():
            asked = [(action, {**each, "TableName": name}) for action in actions for each in action.values()]
            _, left[name] = _each(partial(self._write, in_batch=True), asked)
        return {"UnprocessedItems": {name: actions for name, actions in left.items() if actions}}

    def _write_once(self, request: Request) -> Response:
        """Write a transaction, unless its token says that it was written."""
        try:
            return self.tokens.once(request, self._now, lambda: self._write_together(request)) or {}
        except RequestTokenError as error:
            self.gate.note(f"answered {error.code}")
            raise DynamoDBError(error.code) from error

    def _write_together(self, request: Request) -> Response:
        asked = [each for action in request["TransactItems"] for each in action.items()]
        changes = [self._prepare(each, is_check=kind == "ConditionCheck") for kind, each in asked]
        if len({(change.table.name, change.place) for change in changes}) < len(changes):
            raise _invalid("Transaction request cannot include multiple operations on one item")
        if any(map(self._is_locked, changes)):
            raise cancelled([{"Code": "TransactionConflict"}])
        for change in changes:
            if self.gate.refuse_write(str(change.place[0]), TRANSACTION_FACTOR * change.units) is not None:
                raise cancelled([{"Code": "ThrottlingError"}])
        if any(change.failure is not None for change in changes):
            raise cancelled([_reason(change.failure) for change in changes])
        for change in changes:
            self._commit(change, TRANSACTION_FACTOR * change.units)
            if self._conflict_seconds:
                self._locked_until[change.table.name, change.place] = self._now + self._conflict_seconds
        if len(changes) > 1:
            self.gate.note("transactions of several items")
        return {}

    def _is_locked(self, change: _Change) -> bool:
        """Say whether a transaction is at work on the item."""
        if self._locked_until.get((change.table.name, change.place), self._now) <= self._now:
            return False
        self.gate.note("transaction conflicts")
        return True

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
            each = {**request, **asked, "TableName": name}
            responses, unread = _each(self._get, [(key, {**each, "Key": key}) for key in asked["Keys"]])
            found[name] = [response["Item"] for response in responses if "Item" in response]
            left |= {name: {**asked, "Keys": unread}} if unread else {}
            units = sum(response.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0) for response in responses)
            consumed += _consumed(each, units).values()
        whole = {"Responses": found, "UnprocessedKeys": left}
        return {**whole, "ConsumedCapacity": consumed} if consumed else whole

    def _get_together(self, request: Request) -> Response:
        asked = [(action, {**action["Get"], "ConsistentRead": True}) for action in request["TransactItems"]]
        responses, unread = _each(partial(self._get, factor=TRANSACTION_FACTOR), asked)
        if unread:
            raise cancelled([{"Code": "ThrottlingError"}])
        return {"Responses": responses}

    def _query(self, request: Request) -> Response:
        table, index = self.table(request), request.get("IndexName")
        if index not in table.orders:
            raise _invalid("The table does not have the specified index")
        order, values = table.orders[index], _values(request)
        terms = parse_key_condition(request["KeyConditionExpression"], _names(request))
        has_partition = all(name in terms and terms[name].operator == "=" for name in order.hashes)
        if not has_partition or terms.keys() - {*order.hashes, *order.ranges}:
            raise _invalid("Query condition missed key schema element or names another attribute")
        key = tuple(rank(terms[name].operands[1]({}, values)) for name in order.hashes)
        tests = [terms[name] for name in order.ranges[1:] if name in terms]
        found = self._seen(request, order, order.walk(request, order.find(key, terms, values)))
        if tests:
            found = ((item, size) for item, size in found if all(test(item, values) for test in tests))
        response, units = self._page(request, order, found)
        if index is None:
            _require(self.gate.refuse_read(str(key[0]), units, is_query=True))
        return response

    def _seen(self, request: Request, order: _Order, places: Iterable[Place]) -> Iterator[tuple[Item, int]]:
        """Yield what is seen at places, and its size; an item that is seen may be elsewhere in an index."""
        table, until = self.table(request), self._until(request)
        for place in places:
            version = table.seen(order.items[place], until)
            if version.item is not None and (order is table.own or order.place_of(version.item) == place):
                yield version.item, version.size_bytes

    def _scan(self, request: Request) -> Response:
        own = self.table(request).own
        segment, total = request.get("Segment", 0), request.get("TotalSegments", 1)
        places = own.walk(request, range(len(own.places)))
        in_segment = (place for place in places if crc32(str(place[0]).encode()) % total == segment)
        return self._page(request, own, self._seen(request, own, in_segment))[0]

    def _page(self, request: Request, order: _Order, found: Iterable[tuple[Item, int]]) -> tuple[Response, float]:
        """Take items up to the limit; return the response, and the units that are taken for it.

        Like DynamoDB, a page that stops at its limit cannot know whether anything follows.
        """
        limit = request.get("Limit", inf)
        if limit < 1:
            raise _invalid("Limit must be greater than or equal to 1")
        keeps = _test(request, "FilterExpression")
        items: list[Item] = []
        last: Response = {}
        size = evaluated = 0
        for item, size_bytes in found:
            evaluated, size = evaluated + 1, size + size_bytes
            if keeps(item):
                items.append(item)
            if evaluated >= limit or size >= PAGE_BYTES:
                last = {"LastEvaluatedKey": {name: item[name] for name in order.key_names}}
                break
        units = read_units(size, is_strong=request.get("ConsistentRead", False))
        shown = {} if request.get("Select") == "COUNT" else {"Items": [_shaped(request, item) for item in items]}
        return {"Count": len(items), "ScannedCount": evaluated, **shown, **last, **_consumed(request, units)}, units


def _require(reason: str | None) -> None:
    """Raise what refuses a request, if anything does."""
    if reason is not None:
        raise throttled(reason)


def _each(do: Callable[[Request], Response], parts: Iterable[tuple[Any, Request]]) -> tuple[list[Response], list[Any]]:
    """Do all parts of a request, each with a request of its own; return the responses, and the parts throttled."""
    responses, left = [], []
    for part, request in parts:
        try:
            responses.append(do(request))
        except DynamoDBError as error:
            if error.code != THROTTLED:
                raise
            left.append(part)
    return responses, left


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


def _names(request: Request) -> Names:
    names = request.get("ExpressionAttributeNames")
    return tuple(names.items()) if names else ()


def _values(request: Request) -> Item:
    values: Item = request.get("ExpressionAttributeValues", {})
    return values


def _test(request: Request, parameter: str) -> Callable[[Item], bool]:
    """Build the test that a request makes of an item; without one, any passes."""
    if parameter not in request:
        return lambda _: True
    condition, values = parse_condition(request[parameter], _names(request)), _values(request)
    return lambda item: bool(condition(item, values))


def _shaped(request: Request, item: Item) -> Response:
    projection = request.get("ProjectionExpression")
    return dict(item) if projection is None else project(parse_projection(projection, _names(request)), item)


def _consumed(request: Request, units: float) -> Response:
    if request.get("ReturnConsumedCapacity", "NONE") == "NONE":
        return {}
    return {"ConsumedCapacity": {"TableName": request["TableName"], "CapacityUnits": units}}
