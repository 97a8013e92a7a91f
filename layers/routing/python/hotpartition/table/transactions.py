"""Transactions over sharded tables.

Every item is located, then one transaction does it all, if none has moved:

    write: each action where its item lies, on condition that it still does; or where every call would create it, on
           condition that it is not there
    read:  each item where it was found; one that was not, at every place where it can be, and its journal with it

An item that came or went meanwhile starts this anew. Actions on other tables are passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from hotpartition.core.errors import ThrottledError
from hotpartition.core.route import Route, candidate_keys
from hotpartition.dynamodb.python_values import Attributes
from hotpartition.engine.changing import RaceLostError, at_most, change_located
from hotpartition.table.expressions import project_also, refuse_parameters
from hotpartition.table.item_calls import MAX_RACES, Change, Changer, ItemCalls, Prepared
from hotpartition.table.requests import Requests, as_boto3_raises, without
from hotpartition.table.sharding import Target
from hotpartition.table.table_store import (
    StoredItem,
    attributes_of_ours,
    key_of_journal,
    locate,
    open_locator,
    read_entries,
)

Find = Callable[[object], ItemCalls | None]
"""Finds the part that carries out the calls on a sharded table, by its name."""
Changers = Mapping[ItemCalls, Changer]
"""What makes the changes of a transaction, and its requests, by table."""

ACTIONS = 100
"""One transaction has no more."""
_OPERATIONS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheck"}
_NEEDED = {"ConditionCheck": "ConditionExpression", "Update": "UpdateExpression"}
"""What boto3 asks for in an action."""
_CANCELLED = "TransactionCanceledException"


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


class _Write(NamedTuple):
    """An action on a sharded table: where it stands in the transaction, and what it changes."""

    at: int
    kind: str
    items: ItemCalls
    change: Change


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


def _options(request: Mapping[str, Any]) -> Attributes:
    """Return the parameters that are passed on: boto3 refuses one that it does not know."""
    return without(request, "TransactItems", "ReturnConsumedCapacity")


def _finish(changers: Changers, response: Attributes) -> Attributes:
    """Put the consumed capacity that its owner asked for into the response."""
    consumed = [part for changer in changers.values() for part in changer.requests.consumed]
    return {**response, "ConsumedCapacity": consumed} if consumed else response


def write_in_transaction(client: Any, find: Find, request: Mapping[str, Any]) -> Attributes:
    """Carry out `transact_write_items`.

    Raises:
        NotImplementedError: naming what cannot be honoured.
        InvalidRequestError: an item does not exist, and nothing says where to create it.
        ClientError: as boto3's, the failure of the owner's conditions among them.
    """
    actions: Sequence[Any] = request.get("TransactItems") or ()
    writes = [write for index, action in enumerate(actions) if (write := _read_action(find, index, action))]
    if not writes:
        passed: Attributes = client.transact_write_items(**request)
        return passed
    refuse_options("transact_write_items", request)
    if len({(each.items, each.change.target[:2]) for each in writes}) < len(writes):
        # On different shards, DynamoDB would not see it.
        message = "Transaction request cannot include multiple operations on one item"
        raise ClientError({"Error": {"Code": "ValidationException", "Message": message}}, "TransactWriteItems")
    changers = {items: items.changer(request) for items in dict.fromkeys(write.items for write in writes)}
    with as_boto3_raises():
        response = change_located(
            lambda: _prepare(changers, writes),
            lambda prepared: partial(_write_once, changers, request, writes, prepared),
            may_repeat=at_most(MAX_RACES),
        )
        return _finish(changers, response)


def _read_action(find: Find, index: int, action: Any) -> _Write | None:
    """Read an action on a sharded table; None for any other, and for one that DynamoDB itself refuses."""
    kinds = _OPERATIONS.keys() & action.keys() if isinstance(action, Mapping) else ()
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    body: Any = action[kind] or {}
    items = find(body.get("TableName"))
    if items is None or not body.get(_NEEDED.get(kind, "TableName")):
        return None
    change = items.read_change("transact_write_items", _OPERATIONS[kind], body)
    return None if change is None else _Write(index, kind, items, change)


def _prepare(changers: Changers, writes: Sequence[_Write]) -> dict[int, Prepared]:
    """Locate all items, and build their actions.

    Raises:
        RaceLostError: a second copy was changed while it was to be removed.
    """
    prepared: dict[int, Prepared] = {}
    for items in dict.fromkeys(write.items for write in writes):
        own = [write for write in writes if write.items is items]
        ready = changers[items].prepare([write.change for write in own])
        prepared |= {write.at: each for write, each in zip(own, ready, strict=True)}
    return prepared


def _write_once(
    changers: Changers, request: Mapping[str, Any], writes: Sequence[_Write], prepared: Mapping[int, Prepared]
) -> Attributes:
    """Send the transaction once.

    Raises:
        RaceLostError: an item came or went meanwhile; nothing was written.
    """
    built = list(request["TransactItems"])
    for write in writes:
        built[write.at] = {write.kind: prepared[write.at].request}
        changers[write.items].count(write.change, 2, factor=2)

    def note_refused(error: ThrottledError) -> None:
        for write, reason in _reasons(writes, error.__cause__):
            if reason.get("Code") in {"ThrottlingError", "ProvisionedThroughputExceeded"}:
                changers[write.items].note_refused(prepared[write.at])

    sender = changers[writes[0].items].requests
    try:
        return sender.send_patiently(
            "TransactWriteItems", note_refused, is_counted=False, **{**_options(request), "TransactItems": built}
        )
    except ClientError as error:
        reasons = _reasons(writes, error)
        failed = [(write, reason) for write, reason in reasons if reason.get("Code") == "ConditionalCheckFailed"]
        if any(bool(reason.get("Item")) != prepared[write.at].exists for write, reason in failed):
            raise RaceLostError(error) from error
        for write, reason in failed:
            changers[write.items].show_in_error(reason, write.change)
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
    changers = {items: items.changer(request) for items in dict.fromkeys(ours.values())}
    with as_boto3_raises():
        for _ in range(MAX_RACES):
            reads: dict[int, _Read] = {}
            for items in dict.fromkeys(ours.values()):
                own = [index for index, each in ours.items() if each is items]
                sought = _seek(changers[items].requests, items, [actions[index]["Get"] for index in own])
                reads |= dict(zip(own, sought, strict=True))
            if (response := _read_once(changers, request, reads)) is not None:
                return _finish(changers, response)
    reasons = [{"Code": "TransactionConflict"} for _ in actions]
    facts = {"Error": {"Code": _CANCELLED, "Message": "items came and went"}, "CancellationReasons": reasons}
    raise client.exceptions.TransactionCanceledException(facts, "TransactGetItems")


def _find_read(find: Find, action: Any) -> ItemCalls | None:
    """Find the sharded table of an action, if it names an item; DynamoDB describes the mistakes of others best."""
    body: Any = action.get("Get") if isinstance(action, Mapping) else None
    items = None if body is None else find(body.get("TableName"))
    return items if items is not None and items.sharding.schema.is_key(body.get("Key")) else None


def _seek(requests: Requests, items: ItemCalls, gets: Sequence[Attributes]) -> list[_Read]:
    """Find out where items of one table are to be read."""
    sharding, schema, journal = items.sharding, items.sharding.schema, items.sharding.routes.journal
    targets = []
    for get in gets:
        refuse_parameters("transact_get_items", get)
        sharding.refuse_reserved(get["Key"])
        targets.append(sharding.target_of_key(get["Key"], get.get("Hashed")))
    unique = list(dict.fromkeys(targets))
    located = dict(zip(unique, locate(open_locator(sharding, requests), unique), strict=True))
    reads = []
    for get, target in zip(gets, targets, strict=True):
        copies, confirmed = located[target]
        route = sharding.routes.get(target.collection).union(confirmed.route)
        places = [copy.partition_key for copy in copies]
        if not places:
            places += candidate_keys(route, target, schema.form, choices=sharding.routes.engine.choices)
        options, hidden = project_also(without(get, "Key", "Hashed"), attributes_of_ours(sharding))
        stored = [{"Get": {**options, "Key": {**get["Key"], schema.partition: place}}} for place in places]
        routing = None
        if journal is not None and not copies:
            routing = {"Get": {"TableName": journal.table_name, "Key": key_of_journal(journal, target.collection)}}
        reads.append(_Read(stored, routing, items, route, target, hidden, bool(copies)))
    return reads


def _read_once(changers: Changers, request: Mapping[str, Any], reads: Mapping[int, _Read]) -> Attributes | None:
    """Read all in one transaction; None: an item came or went since it was looked for.

    Raises:
        NotImplementedError: there are more places than one transaction reads.
    """
    built: list[Any] = []
    actions = request["TransactItems"]
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
    sender = changers[next(iter(reads.values())).items].requests
    response = sender.send_patiently("TransactGetItems", **{**_options(request), "TransactItems": built})
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
