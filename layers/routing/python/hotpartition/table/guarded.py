"""boto3's client and resource, with calls about items of sharded tables led through those `ShardedTable`s.

A boto3 `Table` has no `batch_get_item` and no transactions: they are called on `table.meta.client`. The client alone
would look for every item at its base key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hotpartition.dynamodb.item_store import BATCH_GET_KEYS
from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.refused import refuse_options, refuse_statements
from hotpartition.table.requests import without
from hotpartition.table.transactions import get_in_transaction, write_in_transaction

if TYPE_CHECKING:
    from hotpartition.table.item_calls import ItemCalls
    from hotpartition.table.sharded_table import Parts, ShardedTable

_OF_ONE_TABLE = frozenset({"put_item", "get_item", "update_item", "delete_item", "query", "scan"})
_OF_STATEMENTS = frozenset({"execute_statement", "batch_execute_statement", "execute_transaction"})


class GuardedClient:
    """A boto3 client that takes and gives Python values. Safe under threads if that is."""

    def __init__(self, client: Any, tables: Iterable[ShardedTable]) -> None:
        """Lead calls about items of these tables through them; everything else passes."""
        self._client = client
        self._tables = {table.name: table for table in tables}

    def __getattr__(self, name: str) -> Any:
        """Return a method, or whatever else the client has."""
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._client, name)
        if name in _OF_ONE_TABLE:
            return partial(self._call, name)
        return partial(self._execute, method) if name in _OF_STATEMENTS else method

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._client)})

    def __repr__(self) -> str:
        return f"GuardedClient({self._client!r}, tables={sorted(self._tables)})"

    def get_paginator(self, operation_name: str) -> Any:
        """Build boto3's paginator, over the methods of this client."""
        paginator = self._client.get_paginator(operation_name)
        paginator._method = getattr(self, operation_name)  # noqa: SLF001 - boto3 has no other way to say which
        return paginator

    def batch_get_item(self, **request: Any) -> Attributes:
        """Read items of any tables, as boto3's `batch_get_item`."""
        ours, others = self._split(request, "BatchGetItem")
        asked = sum(len(wanted.get("Keys", ())) for wanted in (request.get("RequestItems") or {}).values())
        if not ours or asked > BATCH_GET_KEYS:
            passed: Attributes = self._client.batch_get_item(**request)
            if ours:
                raise NotImplementedError(f"batch_get_item() of {asked} keys: should be at most {BATCH_GET_KEYS}")
            return passed
        options = without(request, "RequestItems")
        responses = [parts.items.batch_get(name, {**options, **wanted}) for name, wanted, parts in ours]
        if others:
            responses.append(self._client.batch_get_item(**{**request, "RequestItems": others}))
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
            responses.append(self._client.batch_write_item(**{**request, "RequestItems": others}))
        return _join(responses, "UnprocessedItems")

    def transact_write_items(self, **request: Any) -> Attributes:
        """Change items of any tables in one transaction, as boto3's `transact_write_items`.

        Raises:
            NotImplementedError: naming the call that cannot be honoured.
        """
        return write_in_transaction(self._client, partial(self._find_items, "TransactWriteItems"), request)

    def transact_get_items(self, **request: Any) -> Attributes:
        """Read items of any tables at one moment, as boto3's `transact_get_items`.

        Raises:
            NotImplementedError: the items may lie at more places than one transaction reads.
        """
        return get_in_transaction(self._client, partial(self._find_items, "TransactGetItems"), request)

    def _call(self, method: str, **request: Any) -> Attributes:
        table = self._tables.get(_name_of(request.get("TableName")))
        if table is None:
            response: Attributes = getattr(self._client, method)(**request)
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


class Guarded:
    """Anything of boto3's that has a client, `meta` or a resource: that client is guarded, everything else passes."""

    def __init__(self, subject: Any, **replaced: Any) -> None:
        self._subject = subject
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        """Return what the subject has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._subject, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._subject)})

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
