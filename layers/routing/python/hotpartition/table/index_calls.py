"""Queries of the indexes that a `ShardedTable` keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hotpartition.table.expressions import (
    Comparison,
    UnreadableExpressionError,
    names_in,
    read_key_condition,
    without_key_condition,
)
from hotpartition.table.gathering import REACHED, PageReader
from hotpartition.table.indexes import BucketIndex, HashIndex
from hotpartition.table.item_store import Query, Ties
from hotpartition.table.requests import Boto3Table, Requests, as_boto3_raises, without
from hotpartition.table.schema import Attributes, Schema
from hotpartition.table.sharding import Sharding

_OF_THE_PAGE = ("Hashed", "Limit", "ExclusiveStartKey", "ReturnConsumedCapacity")


def open_kept(table: Boto3Table, sharding: Sharding, reader: PageReader) -> Iterator[BucketCalls | ValueCalls]:
    """Open what queries each index of a table."""
    for index in sharding.indexes:
        if isinstance(index, BucketIndex):
            yield BucketCalls(table, sharding.schema, index, reader)
        elif isinstance(index, HashIndex):
            yield ValueCalls(table, sharding, index, reader)


class ValueCalls:
    """Queries of a `ShardedIndex`: all shards of a value, merged by the index's range key. Safe under threads.

    `LastEvaluatedKey` says how far each shard was read: items with the same range key come in no order that a single
    key could name. It is for going on, not for reading.
    """

    def __init__(self, table: Boto3Table, sharding: Sharding, index: HashIndex, reader: PageReader) -> None:
        self._table = table
        self._index = index
        self._schema = index.build_schema(sharding.schema)
        routes = index.build_routes(self._schema, sharding.clock, sharding.budget_ms)
        of_index = replace(sharding, schema=self._schema, routes=routes, position=None, indexes=())
        self._reader = PageReader(of_index, reader.executor)
        self._form = self._schema.form

    @property
    def index_name(self) -> str:
        """The name of the index."""
        return self._index.index.index

    def query(self, request: Mapping[str, Any], hashed: str | None) -> Any:
        """Read a page of one value's items.

        Raises:
            ValueError: `ExclusiveStartKey` is no `LastEvaluatedKey` of such a query.
        """
        del hashed  # it tells shards of the table
        names, hash_name = self._index.names, self._index.index.hash
        asked_by = replace(self._schema, partition=hash_name)
        try:
            condition = read_key_condition(request, asked_by, names.sort or "")
        except UnreadableExpressionError as error:
            return self._table.let_refuse("query", request, error)
        limit = request.get("Limit", 1)
        if not self._schema.is_partition_value(condition.partition) or not isinstance(limit, int) or limit < 1:
            return self._table.let_refuse("query", request)
        newest_first = not request.get("ScanIndexForward", True)
        ties = Ties(names, self._index.schema, newest_first=newest_first)
        wanted = Query(
            collection=self._form.check(condition.partition),
            condition=condition.sort,
            names=names,
            request=without(without_key_condition(request), *_OF_THE_PAGE),
            limit=request.get("Limit"),
            newest_first=newest_first,
            start=None,
            hashed=None,
            ties=ties,
        )
        if "ProjectionExpression" in request and hash_name not in names_in(request, "ProjectionExpression"):
            wanted = replace(wanted, hidden=frozenset({hash_name}))
        ties.starts |= self._starts(wanted.collection, request.get("ExclusiveStartKey"))
        with self._table.in_owners_words("query", request), as_boto3_raises():
            page = self._reader.read(self._table.requests(request), wanted)
        if "LastEvaluatedKey" in page:
            page["LastEvaluatedKey"] = {hash_name: wanted.collection, names.partition: self._told(page)}
        return page

    def _starts(self, collection: str, start: Any) -> dict[str, Attributes]:
        """Read how far each shard was read; DynamoDB itself checks the keys."""
        if start is None:
            return {}
        told = start.get(self._index.names.partition) if isinstance(start, Mapping) else None
        if not isinstance(told, Mapping) or start.get(self._index.index.hash) != collection:
            raise ValueError(f"ExclusiveStartKey should be a LastEvaluatedKey of this query, not {start!r}")
        starts: dict[str, Attributes] = {}
        for shard, key in told.items():
            partition_key = self._form.shard_key(collection, int(shard))
            starts[partition_key] = {**key, self._index.names.partition: partition_key}
        return starts

    def _told(self, page: Attributes) -> Attributes:
        """Say how far each shard was read, by its number."""
        name = self._index.names.partition
        return {
            str(self._form.parse(partition_key)[1]): without(key, name)
            for partition_key, key in page["LastEvaluatedKey"].items()
        }


class BucketCalls:
    """Queries of `TimeBuckets`, bucket by bucket. Safe under threads."""

    def __init__(self, table: Boto3Table, schema: Schema, index: BucketIndex, reader: PageReader) -> None:
        self._table = table
        self._schema = schema
        self._index = index
        self._reader = reader

    @property
    def index_name(self) -> str:
        """The name of the index."""
        return self._index.buckets.index

    def query(self, request: Mapping[str, Any], hashed: str | None) -> Any:
        """Read a page of a range of time, across the edges of buckets; `ConsistentRead` in it says False.

        A page ends where `Limit` ends it. Without one, it ends with the first bucket that has something.

        Raises:
            NotImplementedError: it asks for consistency, or leaves an end open.
            ValueError: the range has too many buckets.
        """
        name = self.index_name
        if request.get("ConsistentRead"):
            raise NotImplementedError(
                f"query(IndexName={name!r}, ConsistentRead=True): an index is filled a moment after its table. Query "
                "the table"
            )
        collection, first, last = self._read_range(request)
        newest_first = not request.get("ScanIndexForward", True)
        start = request.get("ExclusiveStartKey")
        if start is not None and start.keys() != self._schema.key:
            raise ValueError(
                f"ExclusiveStartKey should have {' and '.join(sorted(self._schema.key))}, as LastEvaluatedKey"
            )
        cursor = None if start is None else start[self._schema.sort]
        wanted = Query(
            collection=self._schema.form.check(collection),
            condition=Comparison(self._index.names.sort or "", "BETWEEN", (first, last)),
            names=self._index.names,
            request=without(without_key_condition(request), *_OF_THE_PAGE),
            limit=request.get("Limit"),
            newest_first=newest_first,
            start=None,
            hashed=hashed,
        )
        buckets = self._buckets(first, last, cursor, newest_first=newest_first)
        with as_boto3_raises():
            return self._gather(self._table.requests(request), wanted, buckets, cursor)

    def _read_range(self, request: Mapping[str, Any]) -> tuple[str, Any, Any]:
        try:
            condition = read_key_condition(request, self._schema, self._schema.sort)
        except UnreadableExpressionError:
            condition = None
        if condition is None or condition.sort is None or condition.sort.operator not in {"BETWEEN", "="}:
            partition, sort = self._schema.partition, self._schema.sort
            raise NotImplementedError(
                f"query(IndexName={self.index_name!r}): without both ends of the time, nobody knows which "
                f"buckets to ask. Use Key({partition!r}).eq(…) & Key({sort!r}).between(…, …)"
            )
        return condition.partition, condition.sort.operands[0], condition.sort.operands[-1]

    def _buckets(self, first: Any, last: Any, cursor: Any, *, newest_first: bool) -> list[str]:
        """List the buckets that are left to ask, in the order of the page."""
        if cursor is not None and newest_first:
            last = min(last, cursor)
        elif cursor is not None:
            first = max(first, cursor)
        buckets = self._index.buckets.list_between(first, last)
        return buckets[::-1] if newest_first else buckets

    def _gather(self, requests: Requests, wanted: Query, buckets: Sequence[str], cursor: Any) -> Attributes:
        """Read bucket after bucket until the page is full, or one has more than it returned."""
        items: list[Any] = []
        total = {"Count": 0, "ScannedCount": 0}
        response: Attributes = {}
        reached, is_more = cursor, False
        for position, bucket in enumerate(buckets):
            start = self._start(cursor) if position == 0 else None
            part = replace(wanted, limit=self._left(wanted, total), bucket=self._bucket(bucket), start=start)
            response = self._reader.read(requests, part)
            items += response.get("Items", ())
            total = {name: value + response[name] for name, value in total.items()}
            in_bucket = response.pop(REACHED)
            reached = in_bucket.sort_value if in_bucket.sort_value is not None else reached
            is_more = in_bucket.is_more or position + 1 < len(buckets)
            if in_bucket.is_more or (reached != cursor and self._is_full(wanted, total)):
                break
        listed = {"Items": items} if wanted.request.get("Select") != "COUNT" else {}
        page: Attributes = {**listed, **total, "ConsistentRead": False}
        page["ResponseMetadata"] = response.get("ResponseMetadata", {})
        if is_more and reached is not None:
            page["LastEvaluatedKey"] = {self._schema.partition: wanted.collection, self._schema.sort: reached}
        return requests.finish(page)

    def _left(self, wanted: Query, total: Mapping[str, int]) -> int | None:
        return None if wanted.limit is None else max(1, wanted.limit - total["ScannedCount"])

    def _is_full(self, wanted: Query, total: Mapping[str, int]) -> bool:
        return wanted.limit is None or total["ScannedCount"] >= wanted.limit

    def _start(self, cursor: Any) -> Attributes | None:
        return None if cursor is None else {self._index.names.sort or "": cursor, self._schema.sort: cursor}

    def _bucket(self, name: str) -> Callable[[str], Attributes]:
        """Return what builds the index's hash key of a bucket, for the place with a partition key."""
        return lambda partition_key: {self._index.names.partition: self._index.key_for(partition_key, name)}
