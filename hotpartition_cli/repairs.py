"""Repairs that read or move stored items: with the caller's own credentials, on any table that hotpartition spreads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hotpartition.control.folding import CALL_BUDGET_MS, Folder, FoldForm
from hotpartition.core.backoff import Clock, try_for
from hotpartition.core.capacity import Item
from hotpartition.core.errors import ConditionFailedError, InvalidRequestError, RetryLaterError
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.python_values import load
from hotpartition.dynamodb.table import LOAD_PREFIX
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.runtime.clocks import system_clock
from hotpartition.table.schema import CHANGES, NOTED, SHARDS
from hotpartition.table.sharding import routing_value_of
from hotpartition_cli.errors import FailedError, Status, UsageError
from hotpartition_cli.outcomes import Outcome, Progress
from hotpartition_cli.sdk import Subject, open_client, open_session, translated
from hotpartition_cli.tables import build_place, list_keys, read_settings
from hotpartition_messages.keys import ROUTING_INDEX

_RIGHTS = "dynamodb:DescribeTable, Scan, Query, GetItem, PutItem, UpdateItem, DeleteItem and ConditionCheckItem"


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table that was described, and a client for it."""

    name: str
    calls: DynamoDBCalls
    clock: Clock
    partition_key: str
    sort_key: str
    """Empty: the table has no sort key."""
    indexes: Mapping[str, str]
    """The hash key of each global index."""
    routing_sort_key: Any
    """That of routing items in it, as boto3's `Table` has it; None: they have a table of their own."""
    region: str


def open_table(
    *,
    table: str,
    region: str | None,
    profile: str | None,
    environ: Mapping[str, str],
    sleep: Callable[[float], None],
) -> OwnTable:
    """Describe a table, with the caller's credentials; `environ` as `read_settings` takes it.

    Raises:
        ToolError: there is none, or no shards can be named in its keys.
    """
    client = open_client(open_session(region, profile), "dynamodb")
    described = translated(lambda: client.describe_table(TableName=table), _subject(table), client.meta.region_name)
    keys, indexes = list_keys(described["Table"]), described["Table"].get("GlobalSecondaryIndexes", ())
    place = build_place(read_settings(table, None, environ), keys)
    return OwnTable(
        table,
        ThreadedCalls(Boto3Call(client)),
        replace(system_clock(), sleep=sleep),
        keys[0][0],
        keys[1][0],
        {index["IndexName"]: index["KeySchema"][0]["AttributeName"] for index in indexes},
        None if place.is_apart else routing_value_of(place),
        client.meta.region_name,
    )


def _repaired(table: OwnTable, carry_out: Callable[[], Outcome]) -> Outcome:
    """Carry a repair out.

    Raises:
        ToolError: with the reason and the way out.
    """
    try:
        outcome: Outcome = translated(carry_out, _subject(table.name), table.region)
    except InvalidRequestError as error:
        raise UsageError(str(error), kind="invalid-request") from error
    except RetryLaterError as error:
        raise FailedError(f"DynamoDB refused for a minute ({error}): run it again", kind="retry-later") from error
    return outcome


def fold(
    table: OwnTable, key: str, shard_count: int, progress: Progress, *, items_per_second: float, settle_seconds: float
) -> Outcome:
    """Move a key's items to its base key."""
    if not table.sort_key:
        raise UsageError(f"{table.name} has no sort key, so there is nothing to fold: name another table")
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
        table.calls.call, form, table.clock, items_per_second=items_per_second, settle_seconds=settle_seconds
    )

    def carry_out() -> Outcome:
        moved, left = folder.fold(
            key, shard_count=shard_count, progress=lambda moved: progress(f"{moved:,} items moved")
        )
        document = {"conversation_id": key, "moved": moved, "left": left}
        return Outcome(document, Status.FINDING if left else Status.FINE)

    return _repaired(table, carry_out)


def copy_back(table: OwnTable, source: OwnTable, progress: Progress) -> Outcome:
    """Put into a table the items that only a copy of it, `source`, has: routes first, as in every raise."""
    if (table.partition_key, table.sort_key) != (source.partition_key, source.sort_key):
        raise UsageError(f"{source.name} is no copy of {table.name}: its keys have other names")
    return _repaired(table, lambda: _copy_back(table, source.name, progress))


def _copy_back(table: OwnTable, source: str, progress: Progress) -> Outcome:
    routes = items = 0
    unreadable: list[str] = []
    for item in _scan(table, source):
        if _is_routing_item(table, item):
            if not _has_sets(item):
                unreadable.append(item[table.partition_key]["S"])
            else:
                _add_route(table, item)
                routes += 1
                progress(f"{routes:,} routes copied")
    for looked_at, item in enumerate(_scan(table, source) if table.sort_key else (), 1):
        if not _is_routing_item(table, item):
            items += _put_missing(table, item)
        progress(f"{looked_at:,} items looked at, {items:,} put back")
    document = {"routes": routes, "items": items, "malformed": unreadable}
    return Outcome(document, Status.FINDING if unreadable else Status.FINE)


def _is_routing_item(table: OwnTable, item: Item) -> bool:
    name = table.sort_key
    return not name or load({name: item[name]})[name] == table.routing_sort_key


def _has_sets(item: Item) -> bool:
    return any("SS" in value for value in item.values())


def _add_route(table: OwnTable, item: Item) -> None:
    """Add a routing item to the one of the same key. Load items hold nothing worth it."""
    names = [table.partition_key, *([table.sort_key] if table.sort_key else [])]
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
    try_for(table.clock, CALL_BUDGET_MS, lambda: table.calls.call("UpdateItem", request))


def _put_missing(table: OwnTable, item: Item) -> bool:
    request = {
        "TableName": table.name,
        "Item": item,
        "ConditionExpression": "attribute_not_exists(#p)",
        "ExpressionAttributeNames": {"#p": table.partition_key},
    }
    try:
        try_for(table.clock, CALL_BUDGET_MS, lambda: table.calls.call("PutItem", request))
    except ConditionFailedError:
        return False
    return True


def _scan(table: OwnTable, source: str) -> Iterator[Item]:
    request: dict[str, Any] = {"TableName": source, "ConsistentRead": True}
    while True:
        response = try_for(table.clock, CALL_BUDGET_MS, lambda: table.calls.call("Scan", request))
        for item in response["Items"]:
            if not item[table.partition_key]["S"].startswith(LOAD_PREFIX) or _has_sets(item):
                yield item
        if not (start := response.get("LastEvaluatedKey")):
            return
        request["ExclusiveStartKey"] = start


def _subject(name: str) -> Subject:
    return Subject("DynamoDB", "table", name, _RIGHTS, "--table, --journal-table and --from take names of tables")
