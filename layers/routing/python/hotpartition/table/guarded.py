"""boto3's client and resource, with calls about items of sharded tables led through those `ShardedTable`s.

A boto3 `Table` has no `batch_get_item` and no transactions: they are called on `table.meta.client`. The client alone
would look for every item at its base key.

In a transaction, every item is located, then one transaction does it all, if none has moved:

    write: each action where its item lies, on condition that it still does; or where every call would create it, on
           condition that it is not there
    read:  each item where it was found; one that was not, at every place where it can be, and its journal with it

An item that came or went meanwhile starts this anew. Actions on other tables are passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import ClientError

from hotpartition.core.errors import ThrottledError
from hotpartition.core.route import Route, candidate_keys
from hotpartition.dynamodb.item_store import BATCH_GET_KEYS
from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.expressions import project_also, refuse_parameters
from hotpartition.table.item_calls import MAX_RACES, Change, ItemCalls, Prepared, RaceLostError, until_not_lost
from hotpartition.table.item_store import (
    StoredItem,
    attributes_of_ours,
    key_of_journal,
    locate,
    open_locator,
    read_entries,
)
from hotpartition.table.requests import PassingOn, Requests, as_boto3_raises, without
from hotpartition.table.sharding import Target

if TYPE_CHECKING:
    from hotpartition.table.sharded_table import Parts, ShardedTable

_OF_ONE_TABLE = frozenset({"put_item", "get_item", "update_item", "delete_item", "query", "scan"})
_OF_STATEMENTS = frozenset({"execute_statement", "batch_execute_statement", "execute_transaction"})


class GuardedClient(PassingOn):
    """A boto3 client that takes and gives Python values. Safe under threads if that is."""

    def __init__(self, client: Any, tables: Iterable[ShardedTable]) -> None:
        """Lead calls about items of these tables through them; everything else passes."""
        super().__init__(client)
        self._tables = {table.name: table for table in tables}

    def __getattr__(self, name: str) -> Any:
        """Return a method, or whatever else the client has."""
        found = super().__getattr__(name)
        if name in _OF_ONE_TABLE:
            return partial(self._call, name)
        return partial(self._execute, found) if name in _OF_STATEMENTS else found

    def __repr__(self) -> str:
        return f"GuardedClient({self._subject!r}, tables={sorted(self._tables)})"

    def get_paginator(self, operation_name: str) -> Any:
        """Build boto3's paginator, over the methods of this client."""
        paginator = self._subject.get_paginator(operation_name)
        paginator._method = getattr(self, operation_name)  # noqa: SLF001 - boto3 has no other way to say which
        return paginator

    def batch_get_item(self, **request: Any) -> Attributes:
        """Read items of any tables, as boto3's `batch_get_item`."""
        ours, others = self._split(request, "BatchGetItem")
        asked = sum(len(wanted.get("Keys", ())) for wanted in (request.get("RequestItems") or {}).values())
        if not ours or asked > BATCH_GET_KEYS:
            passed: Attributes = self._subject.batch_get_item(**request)
            if ours:
                raise NotImplementedError(f"batch_get_item() of {asked} keys: should be at most {BATCH_GET_KEYS}")
            return passed
        options = without(request, "RequestItems")
        responses = [parts.items.batch_get(name, {**options, **wanted}) for name, wanted, parts in ours]
        if others:
            responses.append(self._subject.batch_get_item(**{**request, "RequestItems": others}))
        return _join(responses, "Responses", "UnprocessedKeys")

    def batch_write_item(self, **request: Any) -> Attributes:
        """Put and delete items of any tables, as boto3's `batch_write_item`.

        Raises:
            NotImplementedError: it asks for the sizes of item collections, which are those of shards.
        """
        ours, others = self._split(request, "BatchWriteItem")
        if ours:
            refuse_options("batch_write_item", request)
        responses = [
            parts.batches.batch_write_item(**{**request, "RequestItems": {name: of_table}})
            for name, of_table, parts in ours
        ]
        if others or not ours:
            responses.append(self._subject.batch_write_item(**{**request, "RequestItems": others}))
        return _join(responses, "UnprocessedItems")

    def transact_write_items(self, **request: Any) -> Attributes:
        """Change items of any tables in one transaction, as boto3's `transact_write_items`.

        Raises:
            NotImplementedError: naming the call that cannot be honoured.
        """
        return write_in_transaction(self._subject, partial(self._find_items, "TransactWriteItems"), request)

    def transact_get_items(self, **request: Any) -> Attributes:
        """Read items of any tables at one moment, as boto3's `transact_get_items`.

        Raises:
            NotImplementedError: the items may lie at more places than one transaction reads.
        """
        return get_in_transaction(self._subject, partial(self._find_items, "TransactGetItems"), request)

    def _call(self, method: str, **request: Any) -> Attributes:
        table = self._tables.get(_name_of(request.get("TableName")))
        if table is None:
            response: Attributes = getattr(self._subject, method)(**request)
        else:
            response = getattr(table, method)(**without(request, "TableName"))
        return response

    def _execute(self, method: Any, **request: Any) -> Attributes:
        refuse_statements(request, self._tables)
        response: Attributes = method(**request)
        return response

    def _split(self, request: Mapping[str, Any], operation: str) -> tuple[list[tuple[str, Any, Parts]], Attributes]:
        """Split a batch into the requests of each sharded table, by the given name, and the rest."""
        others = dict(request.get("RequestItems") or {})
        found = [(name, self._find(name, operation=operation)) for name in others if others[name]]
        return [(name, others.pop(name), parts) for name, parts in found if parts is not None], others

    def _find_items(self, operation: str, table_name: object) -> ItemCalls | None:
        parts = self._find(table_name, operation=operation)
        return None if parts is None else parts.items

    def _find(self, table_name: object, *, operation: str) -> Parts | None:
        """Find the part that carries out calls on a table; None: it is not sharded."""
        table = self._tables.get(_name_of(table_name))
        parts = None if table is None else table._open(operation)  # noqa: SLF001 - of the same room
        return parts if parts is not None and parts.is_sharded else None


class Guarded(PassingOn):
    """Anything of boto3's that has a client, `meta` or a resource: that client is guarded, everything else passes."""

    def __init__(self, subject: Any, **replaced: Any) -> None:
        super().__init__(subject)
        self.__dict__.update(replaced)

    def __repr__(self) -> str:
        return f"Guarded({self._subject!r})"


def guard(resource: Any, *tables: ShardedTable) -> Any:
    """Lead calls of a boto3 resource about items of sharded tables through them; everything else passes.

    `resource.Table(name)` returns the `ShardedTable` of that name, where there is one. Collections (`resource.tables`)
    return plain ones.

    Args:
        resource: `boto3.resource("dynamodb")`.
        tables: the sharded tables. One client of several takes transactions over them all.

    Raises:
        TypeError: it is not a resource of DynamoDB.

    Example:
        >>> dynamodb = guard(boto3.resource("dynamodb"), ShardedTable(table, shards=fixed(16)))
        >>> put = {"TableName": "readings", "Item": {"PK": "plant-1", "SK": "0001"}}
        >>> dynamodb.meta.client.transact_write_items(TransactItems=[{"Put": put}])
    """
    if not hasattr(resource, "Table"):
        raise TypeError(
            f'guard({resource!r}): should be boto3.resource("dynamodb"). A table has its own: table.meta.client'
        )
    by_name = {table.name: table for table in tables}
    client = GuardedClient(resource.meta.client, tables)
    return Guarded(
        resource,
        meta=Guarded(resource.meta, client=client),
        batch_get_item=client.batch_get_item,
        batch_write_item=client.batch_write_item,
        Table=lambda name: by_name.get(name) or resource.Table(name),
    )


def _name_of(table: object) -> str:
    """Return the name of a table that is given by its name or its ARN; no name for anything else."""
    return table.rpartition(":table/")[2] if isinstance(table, str) else ""


def _join(responses: list[Attributes], *members: str) -> Attributes:
    """Make one response of those of several tables."""
    joined: Attributes = {name: {} for name in members}
    for response in responses:
        for name in members:
            joined[name].update(response.get(name, {}))
        if response.get("ConsumedCapacity"):
            joined.setdefault("ConsumedCapacity", []).extend(response["ConsumedCapacity"])
    return joined | {"ResponseMetadata": responses[-1].get("ResponseMetadata", {})}


def refuse_options(method: str, request: Mapping[str, Any]) -> None:
    """Refuse what a transaction over sharded tables cannot honour.

    Raises:
        NotImplementedError: naming the parameter, the reason and what to use instead.
    """
    if request.get("ClientRequestToken"):
        raise NotImplementedError(
            f"{method}(ClientRequestToken=…): what is sent depends on where the items lie, so a repetition would be "
            "another request. Leave it out, and let a condition tell whether it was done"
        )
    if request.get("ReturnItemCollectionMetrics", "NONE") != "NONE":
        raise NotImplementedError(f"{method}(ReturnItemCollectionMetrics=…): it describes single shards. Leave it out")


NO_PARTIQL = "a PartiQL statement names partition keys as they are stored. Use the methods of the table"


def refuse_statements(request: Mapping[str, Any], tables: Iterable[str]) -> None:
    """Refuse PartiQL that may be about sharded tables: where it has the name of one anywhere.

    Raises:
        NotImplementedError: naming the table, the reason and what to use instead.
    """
    listed = request.get("Statements") or request.get("TransactStatements") or [request]
    for statement in (str(each.get("Statement", "")) for each in listed):
        for name in tables:
            if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", statement, re.IGNORECASE):
                raise NotImplementedError(f"{statement!r} is about {name}: {NO_PARTIQL}")


Find = Callable[[object], ItemCalls | None]
"""Finds the part that carries out the calls on a sharded table, by its name."""

ACTIONS = 100
"""One transaction has no more."""
_OPERATIONS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheck"}
_CANCELLED = "TransactionCanceledException"


class _Write(NamedTuple):
    """An action on a sharded table: where it stands in the transaction, and what it changes."""

    at: int
    kind: str
    table_name: str
    items: ItemCalls
    change: Change
    target: Target


class _Read(NamedTuple):
    """An item that is read: the reads at each of its places, and whether it was found there before."""

    gets: list[Attributes]
    routing: Attributes | None
    """The read of the journal beside an item that was not found."""
    items: ItemCalls
    route: Route
    target: Target
    hidden: frozenset[str]
    was_found: bool


class _Calls:
    """The requests of one transaction by table, which sum up the capacity that they consume."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._requests: dict[ItemCalls, Requests] = {}

    def of(self, items: ItemCalls) -> Requests:
        """Return the requests of a table."""
        if items not in self._requests:
            self._requests[items] = items.table.requests(self._request)
        return self._requests[items]

    def finish(self, response: Attributes) -> Attributes:
        """Put the consumed capacity that its owner asked for into the response."""
        consumed = [part for requests in self._requests.values() for part in requests.consumed]
        return {**response, "ConsumedCapacity": consumed} if consumed else response


def write_in_transaction(client: Any, find: Find, request: Mapping[str, Any]) -> Attributes:
    """Carry out `transact_write_items`.

    Raises:
        NotImplementedError: naming what cannot be honoured.
        InvalidRequestError: an item does not exist, and nothing says where to create it.
        ClientError: as boto3's, the failure of the owner's conditions among them.
    """
    actions: Sequence[Any] = request.get("TransactItems") or ()
    writes = [write for index, action in enumerate(actions) for write in _read_action(find, index, action)]
    if not writes:
        passed: Attributes = client.transact_write_items(**request)
        return passed
    refuse_options("transact_write_items", request)
    if len({(each.table_name, each.target.collection, each.target.sort_key) for each in writes}) < len(writes):
        # On different shards, DynamoDB would not see it.
        message = "Transaction request cannot include multiple operations on one item"
        raise ClientError({"Error": {"Code": "ValidationException", "Message": message}}, "TransactWriteItems")
    calls = _Calls(request)
    with as_boto3_raises():
        return calls.finish(until_not_lost(partial(_write_once, calls, actions, writes)))


def _read_action(find: Find, index: int, action: Any) -> list[_Write]:
    """Read an action on a sharded table; nothing for any other, and for one that DynamoDB itself refuses."""
    kinds = _OPERATIONS.keys() & action.keys() if isinstance(action, Mapping) else ()
    if len(kinds) != 1:
        return []
    (kind,) = kinds
    body = action[kind]
    items = find(body.get("TableName"))
    if items is None or (kind == "ConditionCheck" and not body.get("ConditionExpression")):
        return []
    understood = items.read_change("transact_write_items", _OPERATIONS[kind], without(body, "TableName"))
    return [_Write(index, kind, body["TableName"], items, *understood)] if understood else []


def _write_once(calls: _Calls, actions: Sequence[Any], writes: Sequence[_Write]) -> Attributes:
    """Locate all items, and send the transaction once.

    Raises:
        RaceLostError: an item came or went meanwhile; nothing was written.
    """
    prepared: dict[int, Prepared] = {}
    for items in dict.fromkeys(write.items for write in writes):
        own = [write for write in writes if write.items is items]
        ready = items.changer.prepare(calls.of(items), [(write.change, write.target) for write in own])
        prepared |= {write.at: each for write, each in zip(own, ready, strict=True)}
    built = list(actions)
    for write in writes:
        built[write.at] = {write.kind: {"TableName": write.table_name, **prepared[write.at].request}}
        write.items.changer.count(write.target, write.change, 2, factor=2)

    def note_refused(error: ThrottledError) -> None:
        for write, reason in _reasons(writes, error.__cause__):
            if reason.get("Code") in {"ThrottlingError", "ProvisionedThroughputExceeded"}:
                write.items.changer.note_refused(prepared[write.at])

    sender = calls.of(writes[0].items)
    try:
        return sender.send_patiently("TransactWriteItems", note_refused, is_counted=False, TransactItems=built)
    except ClientError as error:
        failed = [
            (write, reason)
            for write, reason in _reasons(writes, error)
            if reason.get("Code") == "ConditionalCheckFailed"
        ]
        if any(bool(reason.get("Item")) != prepared[write.at].exists for write, reason in failed):
            raise RaceLostError from error
        for write, reason in failed:
            write.items.changer.show_in_error(reason, write.change)
        raise


def _reasons(writes: Sequence[_Write], error: BaseException | None) -> list[tuple[_Write, Any]]:
    """List why a transaction was cancelled, for each action on a sharded table; nothing for another error."""
    reasons = error.response.get("CancellationReasons", ()) if isinstance(error, ClientError) else ()
    return [(write, reasons[write.at]) for write in writes if write.at < len(reasons)]


def get_in_transaction(client: Any, find: Find, request: Mapping[str, Any]) -> Attributes:
    """Carry out `transact_get_items`.

    Raises:
        NotImplementedError: the items may lie at more places than one transaction reads.
        ClientError: as boto3's.
    """
    actions: Sequence[Any] = request.get("TransactItems") or ()
    ours = {index: items for index, action in enumerate(actions) if (items := _find_read(find, action))}
    if not ours:
        passed: Attributes = client.transact_get_items(**request)
        return passed
    calls = _Calls(request)
    with as_boto3_raises():
        for _ in range(MAX_RACES):
            reads: dict[int, _Read] = {}
            for items in dict.fromkeys(ours.values()):
                own = [index for index, each in ours.items() if each is items]
                sought = _seek(calls, items, [actions[index]["Get"] for index in own])
                reads |= dict(zip(own, sought, strict=True))
            if (response := _read_once(calls, actions, reads)) is not None:
                return calls.finish(response)
    reasons = [{"Code": "TransactionConflict"} for _ in actions]
    facts = {"Error": {"Code": _CANCELLED, "Message": "items came and went"}, "CancellationReasons": reasons}
    raise client.exceptions.TransactionCanceledException(facts, "TransactGetItems")


def _find_read(find: Find, action: Any) -> ItemCalls | None:
    """Find the sharded table of an action, if it names an item; DynamoDB describes the mistakes of others best."""
    body: Any = action.get("Get") if isinstance(action, Mapping) else None
    items = None if body is None else find(body.get("TableName"))
    return items if items is not None and items.sharding.schema.is_key(body.get("Key")) else None


def _seek(calls: _Calls, items: ItemCalls, gets: Sequence[Attributes]) -> list[_Read]:
    """Find out where items of one table are to be read."""
    sharding, schema, journal = items.sharding, items.sharding.schema, items.sharding.routes.journal
    targets = []
    for get in gets:
        refuse_parameters("transact_get_items", get)
        sharding.refuse_reserved(get["Key"])
        targets.append(sharding.target_of_key(get["Key"], get.get("Hashed")))
    unique = list(dict.fromkeys(targets))
    located = dict(zip(unique, locate(open_locator(sharding, calls.of(items)), unique), strict=True))
    reads = []
    for get, target in zip(gets, targets, strict=True):
        copies, confirmed = located[target]
        route = sharding.routes.get(target.collection).union(confirmed.route)
        places = [copy.partition_key for copy in copies]
        if not places:
            places += candidate_keys(route, target, schema.form, choices=sharding.routes.choices)
        options, hidden = project_also(without(get, "Key", "Hashed"), attributes_of_ours(sharding))
        stored = [{"Get": {**options, "Key": {**get["Key"], schema.partition: place}}} for place in places]
        routing = None
        if journal is not None and not copies:
            routing = {"Get": {"TableName": journal.table_name, "Key": key_of_journal(journal, target.collection)}}
        reads.append(_Read(stored, routing, items, route, target, hidden, bool(copies)))
    return reads


def _read_once(calls: _Calls, actions: Sequence[Any], reads: Mapping[int, _Read]) -> Attributes | None:
    """Read all in one transaction; None: an item came or went since it was looked for.

    Raises:
        NotImplementedError: there are more places than one transaction reads.
    """
    built: list[Any] = []
    for index, action in enumerate(actions):
        built += reads[index].gets if index in reads else [action]
    for read in reads.values():
        if read.routing is not None and read.routing not in built:
            built.append(read.routing)
    if len(built) > ACTIONS >= len(actions):
        raise NotImplementedError(
            f"transact_get_items(): these items may lie at {len(built)} places, and a transaction reads {ACTIONS}. "
            "Read fewer at once; or use batch_get_item(), which does not read all at one moment"
        )
    sender = calls.of(next(iter(reads.values())).items)
    response = sender.send_patiently("TransactGetItems", TransactItems=built)
    given = response["Responses"]
    shown: list[Attributes] = []
    for index, action in enumerate(actions):
        if index not in reads:
            shown.append(given[built.index(action)])
        elif (item := _read_item(reads[index], [(get, given[built.index(get)].get("Item")) for get in built])) is None:
            return None
        else:
            shown.append(item)
    return {**response, "Responses": shown}


def _read_item(read: _Read, given: Sequence[tuple[Attributes, Attributes | None]]) -> Attributes | None:
    """Return what a transaction gives of an item; None: it came or went, or its collection was raised meanwhile."""
    schema, collection = read.items.sharding.schema, read.target.collection
    copies = [
        StoredItem.of(item, read.target.sort_key, schema)
        for get, item in given
        if item is not None and get in read.gets
    ]
    if copies:
        valid = min(copies, key=lambda copy: copy.rank)
        return {"Item": schema.show(valid.attributes, read.hidden)}
    if read.was_found:
        return None
    routing = next((item for get, item in given if get == read.routing), None)
    entries = read_entries({} if routing is None else {collection: routing}, [collection])
    return {} if read.route.covers(entries[collection].route) else None
