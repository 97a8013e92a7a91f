"""`guard()`: boto3's resource, with calls about items of sharded tables led through those `ShardedTable`s."""

from __future__ import annotations

from typing import Any

from hotpartition.table.guarded import Guarded, GuardedClient
from hotpartition.table.sharded_table import ShardedTable


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
    guarded: list[Any] = [table.meta.client for table in tables]
    client = GuardedClient(resource.meta.client, {name: each.tables[name] for each in guarded for name in each.tables})
    return Guarded(
        resource,
        meta=Guarded(resource.meta, client=client),
        batch_get_item=client.batch_get_item,
        batch_write_item=client.batch_write_item,
        Table=lambda name: by_name.get(name) or resource.Table(name),
    )
