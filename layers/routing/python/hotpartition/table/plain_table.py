"""Carries out the calls on a table without a sort key: each item has a partition key of its own, nothing is sharded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boto3.dynamodb.conditions import Attr
from botocore.exceptions import ClientError

from hotpartition.core.backoff import Budget
from hotpartition.dynamodb.item_store import BatchGet
from hotpartition.dynamodb.python_values import Attributes, load
from hotpartition.table.cached_reads import CachedReads, subject_of
from hotpartition.table.expressions import project_also
from hotpartition.table.requests import Boto3Table, as_boto3_raises, without
from hotpartition.table.schema import SCALARS, order_of

Request = Mapping[str, Any]


class PlainTable:
    """Passes every call on unchanged. Safe under threads."""

    def __init__(self, table: Boto3Table, partition: str, cached: CachedReads | None) -> None:
        self._table = table
        self._partition = partition
        self._cached = cached
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

    def get(self, request: Request, *, cache: bool = False) -> Attributes:
        """Carry out `get_item`; with `cache`, the item may be a cached one."""
        key = request.get("Key")
        return self._read("get_item", request, self.subject_of(key) if cache and self._is_key(key) else None)

    def query(self, request: Request, *, cache: bool = False) -> Attributes:
        """Carry out `query`; with `cache`, its page may be a cached one."""
        return self._read("query", request, str(request.get("IndexName")) if cache else None)

    def _read(self, method: str, request: Request, subject: str | None) -> Attributes:
        """Read, from the cache where a subject is given."""
        asked = without(request, "Hashed")
        if self._cached is None or subject is None:
            return self._table.pass_on(method, asked)
        requests = self._table.requests(request)
        operation, name = {"get_item": "GetItem", "query": "Query"}[method], self._table.name

        def read() -> tuple[Attributes, float]:
            sent = without(asked, "ReturnConsumedCapacity")
            return requests.finish(requests.send_patiently(operation, TableName=name, **sent)), 0.0

        with as_boto3_raises():
            return self._cached.read(None, subject, asked, read)

    def subject_of(self, key: Any) -> str:
        """Name the item that has a key, for the cache."""
        return subject_of(key[self._partition])

    def _is_key(self, key: Any) -> bool:
        is_whole = isinstance(key, Mapping) and key.keys() == self.key
        return is_whole and isinstance(key[self._partition], SCALARS) and not isinstance(key[self._partition], bool)

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

    def get_items(
        self, keys: Sequence[Attributes], request: Request, *, cache: bool = False
    ) -> list[Attributes | None]:
        """Carry out `get_items`; with `cache`, items may be cached ones."""
        cached = self._cached if cache and all(self._is_key(key) for key in keys) else None
        if cached is None:
            return self._read_all(keys, request)

        def read(places: Sequence[int]) -> tuple[list[Attributes | None], float]:
            return self._read_all([keys[place] for place in places], request), 0.0

        return cached.read_items([(None, self.subject_of(key)) for key in keys], request, read)

    def _read_all(self, keys: Sequence[Attributes], request: Request) -> list[Attributes | None]:
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
