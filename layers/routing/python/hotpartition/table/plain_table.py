"""Carries out the calls on a table without a sort key: each item has a partition key of its own, nothing is sharded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boto3.dynamodb.conditions import Attr
from botocore.exceptions import ClientError

from hotpartition.core.backoff import Budget
from hotpartition.dynamodb.item_store import BatchGet
from hotpartition.dynamodb.python_values import Attributes, load
from hotpartition.table.expressions import project_also
from hotpartition.table.requests import Boto3Table, as_boto3_raises, without
from hotpartition.table.schema import order_of

Request = Mapping[str, Any]


class PlainTable:
    """Passes every call on unchanged. Safe under threads."""

    def __init__(self, table: Boto3Table, partition: str) -> None:
        self._table = table
        self._partition = partition
        self.key = frozenset({partition})

    def change(self, method: str, request: Request) -> Attributes:
        """Carry out `put_item`, `update_item` or `delete_item`."""
        return self._table.pass_on(method, without(request, "Hashed"))

    def create(self, item: Request) -> Attributes | None:
        """Carry out `create_item`."""
        try:
            self._table.pass_on(
                "put_item",
                {
                    "Item": item,
                    "ConditionExpression": Attr(self._partition).not_exists(),
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                },
            )
        except ClientError as error:
            refusal: Any = error.response
            if "Item" not in refusal:
                raise
            return load(refusal["Item"])
        return None

    def get(self, request: Request) -> Attributes:
        """Carry out `get_item`."""
        return self._table.pass_on("get_item", without(request, "Hashed"))

    def query(self, request: Request, *, cache: bool = False) -> Attributes:
        """Carry out `query`; nothing is cached."""
        del cache
        return self._table.pass_on("query", without(request, "Hashed"))

    def scan(self, request: Request) -> Attributes:
        """Carry out `scan`."""
        return self._table.pass_on("scan", request)

    def batch_write_item(self, **request: Any) -> Attributes:
        """Write one batch."""
        written: Attributes = self._table.table.meta.client.batch_write_item(**request)
        return written

    def show_stored(self, stored: Request) -> Attributes | None:
        """Return a stored item unchanged."""
        return dict(stored) if self._partition in stored else None

    def get_items(self, keys: Sequence[Attributes], request: Request) -> list[Attributes | None]:
        """Carry out `get_items`."""
        asked, hidden = project_also(without(request, "ReturnConsumedCapacity"), {self._partition})
        requests = self._table.requests(request)
        name = self._table.name
        unique = {order_of(key.get(self._partition)): (name, key) for key in keys}
        batches = BatchGet(list(unique.values()), {name: asked})
        budget = Budget(self._table.clock, self._table.budget_ms, from_refusal=True)
        while batches.left:
            with as_boto3_raises():
                is_whole = batches.send_next(lambda batch: requests.send_patiently("BatchGetItem", RequestItems=batch))
            if not is_whole and not budget.wait():
                raise requests.unprocessed()
        found = {order_of(item[self._partition]): without(item, *hidden) for _, item in batches.found}
        return [found.get(order_of(key[self._partition])) for key in keys]
