"""`guard()`: boto3's resource or client, with calls about items of sharded tables led through those tables."""

from __future__ import annotations

from typing import Any

from hotpartition.table.guarded import Guarded, GuardedClient, TypedClient
from hotpartition.table.sharded_table import ShardedTable


def guard(subject: Any, *tables: ShardedTable) -> Any:
    """Lead calls of a boto3 resource or client about items of sharded tables through them; everything else passes.

    A guarded client takes and gives the values that it did before: DynamoDB's own, `{"S": "text"}`. So code that takes
    a client need not know of shards. `Table(name)` of a guarded resource returns the `ShardedTable` of that name, where
    there is one. Collections (`resource.tables`) return plain ones.

    Args:
        subject: `boto3.resource("dynamodb")` or `boto3.client("dynamodb")`.
        tables: the sharded tables. One client of several takes transactions over them all.

    Raises:
        TypeError: it is neither; or a resource's own client, whose values are Python's; or a table is not sharded.

    Example:
        >>> client = guard(boto3.client("dynamodb"), ShardedTable(table, shards=fixed(16)))
        >>> put = {"TableName": "readings", "Item": {"PK": {"S": "plant-1"}, "SK": {"S": "0001"}}}
        >>> client.transact_write_items(TransactItems=[{"Put": put}])
    """
    for table in tables:
        if not isinstance(table, ShardedTable):
            raise TypeError(f"guard(…, {table!r}): should be a ShardedTable")
    guarded: list[Any] = [table.meta.client for table in tables]
    opens = {name: each.tables[name] for each in guarded for name in each.tables}
    if hasattr(subject, "Table"):
        by_name = {table.name: table for table in tables}
        client = GuardedClient(subject.meta.client, opens)
        return Guarded(
            subject,
            meta=Guarded(subject.meta, client=client),
            batch_get_item=client.batch_get_item,
            batch_write_item=client.batch_write_item,
            Table=lambda name: by_name.get(name) or subject.Table(name),
        )
    service = getattr(getattr(subject, "meta", None), "service_model", None)
    is_client = getattr(service, "service_name", None) == "dynamodb"
    if not is_client or not tables or any(each.is_of(subject) for each in guarded):
        raise TypeError(
            f'guard({subject!r}): should be boto3.resource("dynamodb") or boto3.client("dynamodb"), and sharded '
            "tables. A table has a guarded client of its own: table.meta.client"
        )
    return TypedClient(subject, guarded[0].beside(opens))
