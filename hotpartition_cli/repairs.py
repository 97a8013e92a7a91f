"""Repairs that read or move stored items: with the caller's own credentials, on any table that hotpartition spreads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hotpartition.control.folding import Folder, FoldForm
from hotpartition.core.capacity import Item
from hotpartition.core.errors import ConditionFailedError
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.python_values import load
from hotpartition.dynamodb.table import LOAD_PREFIX
from hotpartition.table.schema import CHANGES, NOTED, SHARDS
from hotpartition.table.sharding import routing_value_of
from hotpartition_cli.errors import Status, UsageError
from hotpartition_cli.outcomes import Outcome, Progress
from hotpartition_cli.tables import OwnTable
from hotpartition_messages.keys import ROUTING_INDEX

_RIGHTS = "dynamodb:DescribeTable, Scan, Query, GetItem, PutItem, UpdateItem, DeleteItem and ConditionCheckItem"
open_table = partial(OwnTable.open, rights=_RIGHTS)
"""Describes a table for a repair."""


def fold(
    table: OwnTable, key: str, shard_count: int, progress: Progress, *, items_per_second: float, settle_seconds: float
) -> Outcome:
    """Move a key's items to its base key."""
    table.check_sort_key()
    if ROUTING_INDEX in table.indexes:
        raise UsageError(f"{table.name} holds messages, whose keys are not folded: `hotpartition close` lowers N")
    form = FoldForm(
        table.name,
        table.partition_key,
        table.sort_key,
        KeyForm(),
        CHANGES,
        NOTED,
        dropped=(SHARDS,),
        index_keys=tuple(table.indexes.values()),
    )
    folder = Folder(
        Boto3Call(table.client), form, table.clock, items_per_second=items_per_second, settle_seconds=settle_seconds
    )

    def carry_out() -> Outcome:
        moved, left = folder.fold(
            key, shard_count=shard_count, progress=lambda moved: progress(f"{moved:,} items moved")
        )
        document = {"conversation_id": key, "moved": moved, "left": left}
        return Outcome(document, Status.FINDING if left else Status.FINE)

    return table.carry_out(carry_out)


def copy_back(table: OwnTable, source: OwnTable, progress: Progress) -> Outcome:
    """Put into a table the items that only a copy of it, `source`, has: routes first, as in every raise."""
    if (table.partition_key, table.sort_key) != (source.partition_key, source.sort_key):
        raise UsageError(f"{source.name} is no copy of {table.name}: its keys have other names")
    return table.carry_out(lambda: _copy_back(table, source, progress))


def _copy_back(table: OwnTable, source: OwnTable, progress: Progress) -> Outcome:
    routes = items = 0
    unreadable: list[str] = []
    for item in _list_items(source, are_routing=True):
        if not _has_sets(item):
            unreadable.append(item[table.partition_key]["S"])
            continue
        _add_route(table, item)
        routes += 1
        progress(f"{routes:,} routes copied")
    # A table of routes holds nothing else.
    for looked_at, item in enumerate(_list_items(source, are_routing=False) if table.sort_key else (), 1):
        items += _put_missing(table, item)
        progress(f"{looked_at:,} items looked at, {items:,} put back")
    document = {"routes": routes, "items": items, "malformed": unreadable}
    return Outcome(document, Status.FINDING if unreadable else Status.FINE)


def _list_items(source: OwnTable, *, are_routing: bool) -> Iterator[Item]:
    """List routing items, or all others. Load items hold nothing worth it."""
    name, place = source.sort_key, source.place
    routing_sort_key = None if place.is_apart else routing_value_of(place)
    for item in (item for page in source.scan(ConsistentRead=True) for item in page["Items"]):
        is_load = item[source.partition_key]["S"].startswith(LOAD_PREFIX) and not _has_sets(item)
        is_routing = not name or load({name: item[name]})[name] == routing_sort_key
        if not is_load and is_routing is are_routing:
            yield item


def _has_sets(item: Item) -> bool:
    return any("SS" in value for value in item.values())


def _add_route(table: OwnTable, item: Item) -> None:
    """Add a routing item to the one of the same key."""
    names = [name for name in (table.partition_key, table.sort_key) if name]
    added = {name: value for name, value in item.items() if "SS" in value}
    replaced = {name: value for name, value in item.items() if "S" in value and name not in names}
    aliases = {name: f"n{index}" for index, name in enumerate([*added, *replaced])}
    update = "ADD " + ", ".join(f"#{aliases[name]} :{aliases[name]}" for name in added)
    if replaced:
        update += " SET " + ", ".join(f"#{aliases[name]} = :{aliases[name]}" for name in replaced)
    request = {
        "TableName": table.name,
        "Key": {name: item[name] for name in names},
        "UpdateExpression": update,
        "ExpressionAttributeNames": {f"#{alias}": name for name, alias in aliases.items()},
        "ExpressionAttributeValues": {f":{alias}": item[name] for name, alias in aliases.items()},
    }
    table.call("UpdateItem", request)


def _put_missing(table: OwnTable, item: Item) -> bool:
    request = {
        "TableName": table.name,
        "Item": item,
        "ConditionExpression": "attribute_not_exists(#p)",
        "ExpressionAttributeNames": {"#p": table.partition_key},
    }
    try:
        table.call("PutItem", request)
    except ConditionFailedError:
        return False
    return True
