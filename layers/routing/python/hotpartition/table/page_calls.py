"""The calls that read pages: query, of the table and of the indexes that it keeps, and scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.expressions import (
    Comparison,
    UnreadableExpressionError,
    compares,
    find_equality,
    names_in,
    project_also,
    read_key_condition,
    refuse_parameters,
    without_key_condition,
    write_conditions,
)
from hotpartition.table.gathering import REACHED, read_page
from hotpartition.table.indexes import BucketIndex, HashIndex
from hotpartition.table.item_store import Query, Ties
from hotpartition.table.requests import Boto3Table, Requests, as_boto3_raises, without
from hotpartition.table.schema import CHANGES, SCALARS, SHARDS, Index, text_of
from hotpartition.table.sharding import Sharding

Request = Mapping[str, Any]

NEWEST_PAGE = frozenset(
    {
        "KeyConditionExpression",
        "ScanIndexForward",
        "Limit",
        "ProjectionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
    }
)
"""Parameters of a query that may be served from the cache."""


class PageCalls:
    """Carries them out. Safe under threads."""

    def __init__(self, table: Boto3Table, sharding: Sharding) -> None:
        self._table = table
        self._kept: dict[str, BucketCalls | ValueCalls] = {}
        for index in sharding.indexes:
            if isinstance(index, BucketIndex):
                self._kept[index.buckets.index] = BucketCalls(table, sharding, index)
            else:
                self._kept[index.index.index] = ValueCalls(table, sharding, index)
        self._sharding = sharding
        self._schema = sharding.schema

    def query(self, request: Request, *, cache: bool = False) -> Any:
        """Carry out `query`; with `cache`, a newest page of a read-hot key may be a cached one."""
        refuse_parameters("query", request)
        owners, request = request, write_conditions(request)
        if (kept := self._kept.get(request.get("IndexName", ""))) is not None:
            self._refuse_partition_key("query", request, "FilterExpression")
            return kept.query(owners, request, self._hashed(request))
        index = self._index(request)
        if index.partition != self._schema.partition:
            if self._schema.partition in index.names:
                self._refuse_partition_key("query", request, "KeyConditionExpression")
                self._refuse_partition_key("query", request, "FilterExpression")
            return self._pass_on("query", owners)
        try:
            others = (*index.also_hashed, *index.also_sorted)
            condition = read_key_condition(request, self._schema.partition, index.sort or "", others)
        except UnreadableExpressionError as error:
            return self._table.let_refuse("query", owners, error)
        if not self._is_plain(request, condition.partition, index):
            return self._table.let_refuse("query", owners)
        wanted = _build_query(
            request,
            self._schema.form.check(condition.partition),
            condition.sort,
            index,
            others=condition.others,
            start=request.get("ExclusiveStartKey"),
            hashed=self._hashed(request),
        )
        cached = self._sharding.routes.cached if cache and _is_newest_page(owners, wanted) else None

        def gather() -> tuple[Attributes, float]:
            requests = self._table.requests(request)
            return read_page(self._sharding, requests, wanted), requests.units

        with as_boto3_raises():
            return gather()[0] if cached is None else cached.read(wanted.collection, owners, gather)

    def scan(self, request: Request) -> Any:
        """Carry out `scan`.

        Raises:
            NotImplementedError: its filter looks at the partition key.
        """
        refuse_parameters("scan", request)
        return self._pass_on("scan", request)

    def _refuse_partition_key(self, method: str, request: Request, parameter: str) -> None:
        """Refuse an expression that looks at the partition key."""
        name = self._schema.partition
        if name in names_in(request, parameter):
            raise NotImplementedError(
                f"{method}({parameter}=…): it looks at {name}, which differs on shards. Use query of the table itself"
            )

    def _hashed(self, request: Request) -> str | None:
        """Return the text that chose the shards of all wanted items, where the call gives it."""
        wanted, attribute = request.get("Hashed"), self._sharding.hashing.attribute
        if wanted is None and attribute is not None:
            wanted = find_equality(request, attribute)
            if isinstance(wanted, bool) or not isinstance(wanted, SCALARS):
                return None  # no item that has such a value could be put
        return None if wanted is None else text_of(wanted)

    def _is_plain(self, request: Request, partition: Any, index: Index) -> bool:
        """Say whether a query can be sent to several places; DynamoDB describes the mistakes of others best."""
        start, limit = request.get("ExclusiveStartKey"), request.get("Limit", 1)
        names = {*self._schema.key, *index.names}
        is_start_right = start is None or (start.keys() == names and start[self._schema.partition] == partition)
        is_limit_right = isinstance(limit, int) and limit > 0
        return self._schema.is_partition_value(partition) and is_start_right and is_limit_right

    def _index(self, request: Request) -> Index:
        """Return the keys of the query's table or index; DynamoDB refuses an unknown index."""
        own = Index(self._schema.partition, self._schema.sort)
        name = request.get("IndexName")
        return own if name is None else self._schema.indexes.get(name, Index("", None))

    def _pass_on(self, method: str, request: Request) -> Attributes:
        """Read a page that is not of one partition key, and show its items as their owner knows them."""
        name = self._schema.partition
        if compares(write_conditions(request), "FilterExpression", name):
            raise NotImplementedError(
                f"{method}(FilterExpression=…): it looks at {name}, which differs on shards. Use query of the table "
                "itself"
            )
        journal = self._sharding.routes.journal
        is_seen = journal is not None and not journal.is_apart
        is_counted = is_seen and request.get("Select") == "COUNT" and "ProjectionExpression" not in request
        wide = dict(request)
        if is_counted:
            names = {**(wide.get("ExpressionAttributeNames") or {}), "#hpt": name}
            wide = {**without(wide, "Select"), "ProjectionExpression": "#hpt", "ExpressionAttributeNames": names}
        # An index may hold no more than its keys.
        counted = () if "IndexName" in request else (CHANGES, SHARDS)
        projected, hidden = project_also(wide, {*self._schema.key, *counted})
        response = self._table.pass_on(method, projected)
        if "Items" not in response:
            return response
        self._sharding.routes.meet(response["Items"])
        items = [item for item in response["Items"] if not self._sharding.is_journal(item)]
        response["ScannedCount"] -= len(response["Items"]) - len(items)
        response |= {"Items": [self._schema.show(item, hidden) for item in items], "Count": len(items)}
        return without(response, "Items") if is_counted else response


class ValueCalls:
    """Queries of a `ShardedIndex`: all shards of a value, merged by the index's range key. Safe under threads.

    `LastEvaluatedKey` says how far each shard was read: items with the same range key come in no order that a single
    key could name. It is for going on, not for reading.
    """

    def __init__(self, table: Boto3Table, sharding: Sharding, index: HashIndex) -> None:
        self._table = table
        self._index = index
        self._schema = index.build_schema(sharding.schema)
        routes = index.build_routes(self._schema, sharding.clock, sharding.budget_ms)
        self._sharding = replace(sharding, schema=self._schema, routes=routes, position=None, indexes=())
        self._form = self._schema.form

    def query(self, owners: Request, request: Request, hashed: str | None) -> Any:
        """Read a page of one value's items; `request` is the owner's with its conditions as text.

        Raises:
            ValueError: `ExclusiveStartKey` is not a `LastEvaluatedKey` of such a query.
        """
        del hashed  # it selects shards of the table
        names, hash_name = self._index.names, self._index.index.hash
        try:
            condition = read_key_condition(request, hash_name, names.sort or "")
        except UnreadableExpressionError as error:
            return self._table.let_refuse("query", owners, error)
        limit = request.get("Limit", 1)
        if not self._schema.is_partition_value(condition.partition) or not isinstance(limit, int) or limit < 1:
            return self._table.let_refuse("query", owners)
        ties = Ties(names, self._index.schema, newest_first=not request.get("ScanIndexForward", True))
        wanted = _build_query(request, self._form.check(condition.partition), condition.sort, names, ties=ties)
        if "ProjectionExpression" in request and hash_name not in names_in(request, "ProjectionExpression"):
            wanted = replace(wanted, hidden=frozenset({hash_name}))
        ties.starts |= self._starts(wanted.collection, request.get("ExclusiveStartKey"))
        with as_boto3_raises():
            page = read_page(self._sharding, self._table.requests(request), wanted)
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

    def __init__(self, table: Boto3Table, sharding: Sharding, index: BucketIndex) -> None:
        self._table = table
        self._sharding = sharding
        self._schema = sharding.schema
        self._index = index

    def query(self, owners: Request, request: Request, hashed: str | None) -> Any:
        """Read a page of a range of time, across the edges of buckets; `ConsistentRead` in it says False.

        A page ends where `Limit` ends it. Without one, it ends with the first bucket that has something.

        Raises:
            NotImplementedError: it asks for consistency, or leaves an end open.
            ValueError: the range has too many buckets.
        """
        del owners
        name = self._index.buckets.index
        if request.get("ConsistentRead"):
            raise NotImplementedError(
                f"query(IndexName={name!r}, ConsistentRead=True): an index is filled a moment after its table. Query "
                "the table"
            )
        collection, first, last = self._read_range(request)
        start = request.get("ExclusiveStartKey")
        if start is not None and start.keys() != self._schema.key:
            raise ValueError(
                f"ExclusiveStartKey should have {' and '.join(sorted(self._schema.key))}, as LastEvaluatedKey"
            )
        cursor = None if start is None else start[self._schema.sort]
        between = Comparison(self._index.names.sort or "", "BETWEEN", (first, last))
        wanted = _build_query(request, self._schema.form.check(collection), between, self._index.names, hashed=hashed)
        buckets = self._buckets(first, last, cursor, newest_first=wanted.newest_first)
        with as_boto3_raises():
            return self._gather(self._table.requests(request), wanted, buckets, cursor)

    def _read_range(self, request: Mapping[str, Any]) -> tuple[str, Any, Any]:
        try:
            condition = read_key_condition(request, self._schema.partition, self._schema.sort)
        except UnreadableExpressionError:
            condition = None
        if condition is None or condition.sort is None or condition.sort.operator not in {"BETWEEN", "="}:
            partition, sort = self._schema.partition, self._schema.sort
            raise NotImplementedError(
                f"query(IndexName={self._index.buckets.index!r}): both ends of the time are needed: they say which "
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
            response = read_page(self._sharding, requests, part)
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


_OF_THE_PAGE = ("Hashed", "Limit", "ExclusiveStartKey", "ReturnConsumedCapacity")


def _build_query(request: Request, collection: str, condition: Comparison | None, names: Index, **more: Any) -> Query:
    """Build the gathered query; `more` as of `Query`."""
    return Query(
        collection=collection,
        condition=condition,
        names=names,
        request=without(without_key_condition(request), *_OF_THE_PAGE),
        limit=request.get("Limit"),
        newest_first=not request.get("ScanIndexForward", True),
        **more,
    )


def _is_newest_page(request: Request, wanted: Query) -> bool:
    """Say whether a query asks for the newest items of a partition key, and for nothing else."""
    is_bounded = wanted.limit is None or wanted.condition is not None
    return wanted.newest_first and not is_bounded and request.keys() <= NEWEST_PAGE


def read_pages(read: Callable[..., Any], request: Request) -> Iterator[Any]:
    """Read all pages of a query or scan, one after the other."""
    page = read(**request)
    yield page
    while "LastEvaluatedKey" in page:
        page = read(**{**request, "ExclusiveStartKey": page["LastEvaluatedKey"]})
        yield page
