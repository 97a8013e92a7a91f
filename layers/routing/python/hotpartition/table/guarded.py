"""`guard()`: boto3's clients, with calls about items of sharded tables led through their shards.

A boto3 `Table` has no `batch_get_item` and no transactions: they are called on `table.meta.client`. The client alone
would look for every item at its base key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from decimal import Clamped, Rounded
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from botocore import xform_name
from botocore.exceptions import ClientError

from hotpartition.dynamodb.item_store import BATCH_GET_KEYS
from hotpartition.dynamodb.python_values import Attributes, convert_values, dump, load
from hotpartition.table.item_calls import ItemCalls
from hotpartition.table.parts import Parts, named_in
from hotpartition.table.requests import PassingOn, without
from hotpartition.table.transactions import get_in_transaction, refuse_options, write_in_transaction

if TYPE_CHECKING:
    from hotpartition.table.sharded_table import ShardedTable

_OF_ONE_TABLE = frozenset({"put_item", "get_item", "update_item", "delete_item", "query", "scan"})
"""Calls that name one table, and that a sharded table has as well."""
_OF_STATEMENTS = frozenset({"execute_statement", "batch_execute_statement", "execute_transaction"})


class _Client(PassingOn):
    """A boto3 client in whose place another object stands."""

    def get_paginator(self, operation_name: str) -> Any:
        """Build boto3's paginator, over the methods of this client."""
        paginator = self._subject.get_paginator(operation_name)
        paginator._method = getattr(self, operation_name)  # noqa: SLF001 - boto3 has no other way to say which
        return paginator

    def _is_about_items(self, method: str) -> bool:
        """Say whether a method of the client is about items, by botocore's own model of it."""
        return is_about_items(self._subject.meta.service_model, self._subject.meta.method_to_api_mapping.get(method))


class GuardedClient(_Client):
    """A boto3 client that takes and gives Python values, as that of a resource. Safe under threads if that is."""

    def __init__(self, client: Any, tables: Mapping[str, ShardedTable]) -> None:
        """Lead calls about items of these tables, by their names, through their shards; everything else passes."""
        super().__init__(client)
        self.tables = tables

    def __getattr__(self, name: str) -> Any:
        """Return a method, or whatever else the client has."""
        found = super().__getattr__(name)
        if name in _OF_ONE_TABLE:
            return partial(self._call, name)
        if name in _OF_STATEMENTS:
            return partial(self._execute, found)
        return partial(self._pass_on, name, found) if self._is_about_items(name) else found

    def __repr__(self) -> str:
        return f"GuardedClient({self._subject!r}, tables={sorted(self.tables)})"

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
            parts.batch_write_item(**{**request, "RequestItems": {name: of_table}}) for name, of_table, parts in ours
        ]
        if others or not ours:
            named = [(name, item) for name, writes in others.items() for _, item in named_in(writes or ())]
            with self._changing("BatchWriteItem", named):
                responses.append(self._subject.batch_write_item(**{**request, "RequestItems": others}))
        return _join(responses, "UnprocessedItems")

    def transact_write_items(self, **request: Any) -> Attributes:
        """Change items of any tables in one transaction, as boto3's `transact_write_items`.

        Raises:
            NotImplementedError: naming the call that cannot be honoured.
        """
        with self._changing("TransactWriteItems", named_in(request.get("TransactItems") or ())):
            return write_in_transaction(self._subject, partial(self._find_items, "TransactWriteItems"), request)

    def transact_get_items(self, **request: Any) -> Attributes:
        """Read items of any tables at one moment, as boto3's `transact_get_items`.

        Raises:
            NotImplementedError: the items may lie at more places than one transaction reads.
        """
        return get_in_transaction(self._subject, partial(self._find_items, "TransactGetItems"), request)

    def _call(self, method: str, **request: Any) -> Any:
        table = self.tables.get(_name_of(request.get("TableName")))
        if table is None or "cache" in request:  # a parameter of ShardedTable alone: boto3 refuses it
            return getattr(self._subject, method)(**request)
        return getattr(table, method)(**without(request, "TableName"))

    def leads(self, request: Mapping[str, Any]) -> bool:
        """Say whether a request about items names a sharded table."""
        named = [name for name, _ in named_in(request.get("TransactItems") or ())]
        named += request.get("RequestItems") or ()
        tables = [self._open(name, "DescribeTable") for name in (request.get("TableName"), *named)]
        return any(parts is not None and (parts.is_sharded or parts.cached is not None) for parts in tables)

    def refuse_statements(self, request: Mapping[str, Any]) -> None:
        """Refuse PartiQL that may be about sharded tables: where it has the name of one anywhere.

        Raises:
            NotImplementedError: naming the table, the reason and what to use instead.
        """
        listed = request.get("Statements") or request.get("TransactStatements") or [request]
        for statement in (str(each.get("Statement", "")) for each in listed):
            for name in self.tables:
                is_named = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", statement, re.IGNORECASE)
                if is_named and self._find(name, operation="ExecuteStatement") is not None:
                    raise NotImplementedError(f"{statement!r} is about {name}: {NO_PARTIQL}")

    def _execute(self, method: Any, **request: Any) -> Attributes:
        self.refuse_statements(request)
        response: Attributes = method(**request)
        return response

    def _pass_on(self, name: str, method: Any, **request: Any) -> Attributes:
        """Make a call about items that only boto3 knows, unless it is about those of a sharded table."""
        if self._find(request.get("TableName"), operation=name) is not None:
            raise NotImplementedError(
                f"{name}(TableName={request['TableName']!r}): ShardedTable does not know this call, and its items lie "
                "under keys that only it knows. Use another one"
            )
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
        parts = self._open(table_name, operation)
        return parts if parts is not None and parts.is_sharded else None

    def _open(self, table_name: object, operation: str) -> Parts | None:
        """Find the parts of a table, sharded or not; None: it is not among these."""
        table = self.tables.get(_name_of(table_name))
        return None if table is None else table._open(operation)  # noqa: SLF001 - nothing for its owner

    @contextmanager
    def _changing(self, operation: str, named: Iterable[tuple[object, Any]]) -> Iterator[None]:
        """Drop what the process has cached of items, given by their tables and themselves, around their change."""
        by_table: dict[str, list[Any]] = {}
        for table_name, item in named:
            by_table.setdefault(_name_of(table_name), []).append(item)
        with ExitStack() as stack:
            for table_name, items in by_table.items():
                if (parts := self._open(table_name, operation)) is not None:
                    stack.enter_context(parts.changing(items))
            yield


class TypedClient(_Client):
    """A boto3 client with DynamoDB's own typed values, such as `{"S": "text"}`. Safe under threads.

    A call about items of a sharded table takes the way of a `GuardedClient`, its values converted; any other is the
    client's own. Errors are of the client's own classes.
    """

    def __init__(self, client: Any, guarded: GuardedClient) -> None:
        """Stand in the place of a client; `guarded` leads to the shards."""
        super().__init__(client)
        self._guarded = guarded

    def __getattr__(self, name: str) -> Any:
        """Return a method, or whatever else the client has: libraries that wrap one look inside."""
        if name.startswith("__") or name in {"_subject", "_guarded"}:
            raise AttributeError(name)
        found = getattr(self._subject, name)
        return partial(self._call, name, found) if self._is_about_items(name) else found

    def __repr__(self) -> str:
        return f"TypedClient({self._subject!r}, tables={sorted(self._guarded.tables)})"

    def _make_api_call(self, operation: str, request: Mapping[str, Any]) -> Attributes:
        """Make a call by DynamoDB's name of it, as libraries do that go past the methods."""
        response: Attributes = getattr(self, xform_name(operation))(**request)
        return response

    def _call(self, name: str, method: Any, **request: Any) -> Attributes:
        if name in _OF_STATEMENTS:
            self._guarded.refuse_statements(request)
        if not self._guarded.leads(request):
            passed: Attributes = method(**request)
            return passed
        try:
            converted = convert_values(request, load)
        except (TypeError, AttributeError, ArithmeticError) as error:
            # DynamoDB takes zeros behind the 38th digit, maybe zero with any exponent; boto3's resource does not.
            if type(error) not in {Clamped, Rounded}:
                method(**request)  # DynamoDB describes the mistake best.
            raise NotImplementedError(f"{name}(): its values are not understood: {error}") from error
        try:
            response: Attributes = convert_values(getattr(self._guarded, name)(**converted), dump)
        except ClientError as error:
            known = self._subject.exceptions.from_code(error.response["Error"]["Code"])
            if isinstance(error, known):
                raise
            raise known(error.response, error.operation_name) from error
        return response


@lru_cache(maxsize=256)
def is_about_items(service: Any, operation: str | None) -> bool:
    """Say whether an operation of a service model takes or gives items: by the shapes in it, or by its name."""
    if operation is None:
        return False
    model = service.operation_model(operation)
    return "Item" in operation or any(_has_values(shape, ()) for shape in (model.input_shape, model.output_shape))


def _has_values(shape: Any, above: tuple[str, ...]) -> bool:
    """Say whether a shape has values of attributes somewhere."""
    if shape is None or shape.name in above:
        return False
    parts: list[Any] = []
    match shape.type_name:
        case "structure":
            parts = [*shape.members.values()]
        case "list":
            parts = [shape.member]
        case "map":
            parts = [shape.value]
    return shape.name == "AttributeValue" or any(_has_values(part, (*above, shape.name)) for part in parts)


class Guarded(PassingOn):
    """Anything of boto3's that has a client, `meta` or a resource: that client is guarded, everything else passes."""

    def __init__(self, subject: Any, **replaced: Any) -> None:
        super().__init__(subject)
        self.__dict__.update(replaced)

    def __repr__(self) -> str:
        return f"Guarded({self._subject!r})"


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
    from hotpartition.table.sharded_table import ShardedTable  # noqa: PLC0415 - which imports this module

    for table in tables:
        if not isinstance(table, ShardedTable):
            raise TypeError(f"guard(…, {table!r}): should be a ShardedTable")
    by_name = {table.name: table for table in tables}
    clients = [table.unwrap()[0].meta.client for table in tables]
    if hasattr(subject, "Table"):
        client = GuardedClient(subject.meta.client, by_name)
        return Guarded(
            subject,
            meta=Guarded(subject.meta, client=client),
            batch_get_item=client.batch_get_item,
            batch_write_item=client.batch_write_item,
            Table=lambda name: by_name.get(name) or subject.Table(name),
        )
    service = getattr(getattr(subject, "meta", None), "service_model", None)
    is_client = getattr(service, "service_name", None) == "dynamodb"
    if not is_client or not tables or any(client is subject for client in clients):
        raise TypeError(
            f'guard({subject!r}): should be boto3.resource("dynamodb") or boto3.client("dynamodb"), and sharded '
            "tables. A table has a guarded client of its own: table.meta.client"
        )
    return TypedClient(subject, GuardedClient(clients[0], by_name))


NO_PARTIQL = "a PartiQL statement names partition keys as they are stored. Use the methods of the table"
