"""Writes through the proxy: admitted for the cost that is known, charged for the cost that was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from hotpartition.core.capacity import Item, item_size_bytes, write_units
from tools.local.dynamodb_backend import Backend
from tools.local.dynamodb_costs import Cost, cost_of, write_demands
from tools.local.dynamodb_meter import Meter, ServiceError, service_error, throttling_error, transaction_throttle
from tools.local.dynamodb_reads import charge_transaction
from tools.local.dynamodb_tables import TableShape
from tools.local.partitions import Demand
from tools.partition_model import Kind
from tools.request_tokens import RequestTokenError, RequestTokens

_CONDITION_FAILED = "ConditionalCheckFailedException"
_TRANSACTION_FACTOR = 2
Request = dict[str, Any]


class Writes:
    """PutItem, UpdateItem, DeleteItem, BatchWriteItem and TransactWriteItems."""

    def __init__(self, backend: Backend, meter: Meter) -> None:
        self._backend = backend
        self._meter = meter
        self._tokens = RequestTokens(meter.clock)

    async def put_item(self, request: Request) -> Request:
        """Put an item. The replaced one comes back from the backend with the same call, so that its size is known."""
        table = await self._backend.table(request["TableName"])
        new: Item = request["Item"]
        return await self._replace(request, "PutItem", table, new, write_demands(table, None, new, new), new)

    async def delete_item(self, request: Request) -> Request:
        """Delete an item; an item that is not there costs the minimum."""
        table = await self._backend.table(request["TableName"])
        key: Item = request["Key"]
        return await self._replace(request, "DeleteItem", table, None, write_demands(table, None, None, key), key)

    async def _replace(
        self, request: Request, operation: str, table: TableShape, new: Item | None, known: list[Demand], key: Item
    ) -> Request:
        self._admit(known)
        wants_old = request.get("ReturnValues", "NONE") == "ALL_OLD"
        wants_blocking = request.get("ReturnValuesOnConditionCheckFailure", "NONE") == "ALL_OLD"
        sent = {**request, "ReturnValues": "ALL_OLD"}
        if "ConditionExpression" in request:
            sent["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        try:
            result = await self._backend.call(operation, sent)
        except ServiceError as error:
            blocking = error.body.get("Item") if wants_blocking else error.body.pop("Item", None)
            self._settle_failure(error, table, known, (blocking, new), key)
            raise
        old = result.get("Attributes") or None
        if not wants_old:
            result.pop("Attributes", None)
        return self._settle(table, known, write_demands(table, old, new, key), result)

    async def update_item(self, request: Request) -> Request:
        """Update an item. It is read before and after, since the backend returns one of the two at most."""
        table = await self._backend.table(request["TableName"])
        key: Item = request["Key"]
        old = await self._backend.read_item(table.name, key)
        known = _table_demand(table, (old,), key)
        self._admit(known)
        try:
            result = await self._backend.call("UpdateItem", request)
        except ServiceError as error:
            self._settle_failure(error, table, known, (old,), key)
            raise
        returns_new = request.get("ReturnValues") == "ALL_NEW"
        new = result["Attributes"] if returns_new else await self._backend.read_item(table.name, key)
        return self._settle(table, known, write_demands(table, old, new, key), result)

    async def batch_write_item(self, request: Request) -> Request:
        """Write a batch; what a partition refuses comes back unprocessed, all of it refused is an error."""
        consumed: list[Request] = []
        unprocessed: dict[str, list[Request]] = {}
        accepted: dict[str, list[Request]] = {}
        charges: dict[str, list[list[Demand]]] = {}
        for name, entries in request["RequestItems"].items():
            table = await self._backend.table(name)
            for entry in entries:
                new = entry.get("PutRequest", {}).get("Item")
                key = table.primary_key(new or entry["DeleteRequest"]["Key"])
                actual = write_demands(table, await self._backend.read_item(table.name, key), new, key)
                if self._meter.admit_write(actual) is None:
                    accepted.setdefault(name, []).append(entry)
                    charges.setdefault(name, []).append(actual)
                else:
                    unprocessed.setdefault(name, []).append(entry)
        if unprocessed and not accepted:
            raise throttling_error(())
        try:
            result = await self._backend.call("BatchWriteItem", {"RequestItems": accepted})
        except ServiceError:
            self._refund([demands for charged in charges.values() for demands in charged])
            raise
        for name, charged in charges.items():
            for demands in charged:
                self._meter.settle_write(demands, demands)
            cost = cost_of(await self._backend.table(name), chain.from_iterable(charged))
            consumed.append(cost.describe(name))
        return {**result, "UnprocessedItems": unprocessed, "ConsumedCapacity": consumed}

    async def transact_write_items(self, request: Request) -> Request:
        """Write a transaction, unless its token says that it was written before: then its items are only read."""
        try:
            is_new = self._tokens.begin(request)
        except RequestTokenError as error:
            raise _token_refusal(error.code) from error
        if not is_new:
            return await self._read_again(request)
        is_done = False
        try:
            result = await self._write_transaction(request)
            is_done = True
        finally:
            self._tokens.end(request, is_done=is_done)
        return result

    async def _read_again(self, request: Request) -> Request:
        """Charge a repetition what it consumes: the reading of its items."""
        read = [await self._locate(next(iter(element.values()))) for element in request["TransactItems"]]
        return {"ConsumedCapacity": charge_transaction(self._meter, read)}

    async def _write_transaction(self, request: Request) -> Request:
        """Write a transaction at twice the cost; one refused partition cancels it."""
        actions = [next(iter(element.items())) for element in request["TransactItems"]]
        before = [await self._locate(action) for _, action in actions]
        known = [
            _transaction_demands(kind, action, *place) for (kind, action), place in zip(actions, before, strict=True)
        ]
        throttle = self._meter.admit_write([demand for demands in known for demand in demands])
        if throttle is not None:
            raise _cancelled([throttle.key in [d.key for d in demands] for demands in known])
        try:
            result = await self._backend.call("TransactWriteItems", request)
        except ServiceError as error:
            if error.code == "TransactionCanceledException":
                for demands in known:  # a cancelled transaction costs as well
                    self._meter.settle_write(demands, demands)
            else:
                self._refund(known)
            raise
        costs: dict[str, Cost] = {}
        for (kind, action), (table, key, old), admitted in zip(actions, before, known, strict=True):
            new = old if kind == "ConditionCheck" else await self._backend.read_item(table.name, key)
            if kind == "Put":
                new = action["Item"]
            actual = write_demands(table, old, new, key, factor=_TRANSACTION_FACTOR)
            self._meter.settle_write(admitted, actual)
            costs.setdefault(table.name, Cost()).add(cost_of(table, actual))
        return {**result, "ConsumedCapacity": [c.describe(name, transaction="Write") for name, c in costs.items()]}

    async def _locate(self, action: Mapping[str, Any]) -> tuple[TableShape, Item, Item | None]:
        table = await self._backend.table(action["TableName"])
        key = table.primary_key(action.get("Item") or action["Key"])
        return table, key, await self._backend.read_item(table.name, key)

    def _admit(self, demands: Sequence[Demand]) -> None:
        throttle = self._meter.admit_write(demands)
        if throttle is not None:
            raise throttling_error([throttle])

    def _settle(self, table: TableShape, admitted: list[Demand], actual: list[Demand], result: Request) -> Request:
        self._meter.settle_write(admitted, actual)
        return {**result, "ConsumedCapacity": cost_of(table, actual).describe(table.name)}

    def _settle_failure(
        self, error: ServiceError, table: TableShape, admitted: list[Demand], items: tuple[Item | None, ...], key: Item
    ) -> None:
        """A failed condition is charged for the larger of both items; a request that was refused otherwise, nothing."""
        if error.code == _CONDITION_FAILED:
            self._meter.settle_write(admitted, _table_demand(table, items, key))
        else:
            self._refund([admitted])

    def _refund(self, admitted: Sequence[Sequence[Demand]]) -> None:
        for demands in admitted:
            self._meter.settle_write(demands, [])


def _table_demand(table: TableShape, items: Sequence[Item | None], key: Item) -> list[Demand]:
    size = max((item_size_bytes(item) for item in items if item is not None), default=0)
    return [Demand(table.partition_key(key), Kind.WRITE, write_units(size))]


def _transaction_demands(
    kind: str, action: Mapping[str, Any], table: TableShape, key: Item, old: Item | None
) -> list[Demand]:
    new = action["Item"] if kind == "Put" else old
    if kind == "Delete":
        new = None
    return write_demands(table, old, new, key, factor=_TRANSACTION_FACTOR)


def _cancelled(refused: Sequence[bool]) -> ServiceError:
    codes = ["ThrottlingError" if is_refused else "None" for is_refused in refused]
    return service_error(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]",
        CancellationReasons=[transaction_throttle() if is_refused else {"Code": "None"} for is_refused in refused],
    )


def _token_refusal(code: str) -> ServiceError:
    messages = {
        "IdempotentParameterMismatchException": "The request used the same client token as a previous, but "
        "non-identical request.",
        "TransactionInProgressException": "The transaction with the given request token is already in progress.",
    }
    return service_error(code, messages[code])
