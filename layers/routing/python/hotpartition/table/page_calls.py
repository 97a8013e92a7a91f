"""The calls that read pages: query, of the table and of the indexes that it keeps, and scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hotpartition.dynamodb.python_values import Attributes, write_conditions
from hotpartition.table.expressions import (
    Comparison,
    Conditions,
    UnreadableExpressionError,
    ask_for_keys,
    compares,
    project_also,
    refuse_parameters,
    wants_count,
)
from hotpartition.table.gathering import Gathered, gather_page, respond
from hotpartition.table.indexes import BucketIndex, HashIndex
from hotpartition.table.requests import Requests, as_boto3_raises, without
from hotpartition.table.schema import CHANGES, SCALARS, SHARDS, Index, Schema, text_of
from hotpartition.table.sharding import Sharding
from hotpartition.table.table_store import Query, Ties

Request = Mapping[str, Any]


class PageCalls:
    """Queries of a table and of its indexes, and scans. Safe under threads."""

    def __init__(self, sharding: Sharding) -> None:
        self._table = sharding.table
        self._sharding = sharding
        self._schema = sharding.schema
        self._kinds: dict[str | None, _OwnKeys | _ValueKeys | _BucketKeys] = {
            None: _OwnKeys(sharding, Index(self._schema.partition, self._schema.sort))
        }
        for name, index in self._schema.indexes.items():
            if index.partition == self._schema.partition:
                self._kinds[name] = _OwnKeys(sharding, index)
        for kept in sharding.indexes:
            if isinstance(kept, BucketIndex):
                self._kinds[kept.buckets.index] = _BucketKeys(sharding, kept)
            else:
                self._kinds[kept.index.index] = _ValueKeys(sharding, kept)

    def query(self, request: Request, *, cache: bool = False) -> Any:
        """Carry out `query`; with `cache`, its page may be a cached one."""
        refuse_parameters("query", request)
        cached = self._sharding.cached if cache else None
        index = request.get("IndexName")
        kind = self._kinds.get(index)
        if kind is None:
            if cached is None:
                return self._query_other(request)
            return cached.read(None, str(index), request, lambda: (self._query_other(request), 0.0))
        asked = Conditions.parse(request)
        try:
            wanted = kind.build(asked)
        except UnreadableExpressionError as error:
            return self._table.let_refuse("query", request, error)
        requests = self._table.requests(request)
        collection = wanted.collection
        with as_boto3_raises():
            if cached is None:
                return kind.read(requests, wanted)
            of_heat = collection if index is None else None
            return cached.read(of_heat, collection, request, lambda: (kind.read(requests, wanted), requests.units))

    def scan(self, request: Request) -> Any:
        """Carry out `scan`.

        Raises:
            NotImplementedError: its filter looks at the partition key.
        """
        refuse_parameters("scan", request)
        return self._pass_on("scan", request)

    def _query_other(self, request: Request) -> Attributes:
        """Carry out `query` of an index that is not sharded; DynamoDB refuses one that there is not."""
        index = self._schema.indexes.get(request["IndexName"])
        if index is not None and self._schema.partition in index.names:
            refuse_partition_key(Conditions.parse(request), self._schema, "KeyConditionExpression", "FilterExpression")
        return self._pass_on("query", request)

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
        wide = ask_for_keys(request, name) if is_seen else request
        # An index may hold no more than its keys.
        counted = () if "IndexName" in request else (CHANGES, SHARDS)
        kind, schema, of_index = self._kinds.get(request.get("IndexName")), self._schema, frozenset[str]()
        if isinstance(kind, _ValueKeys):
            schema, of_index = kind.schema, kind.hidden(Conditions.parse(request))
        projected, hidden = project_also(wide, {*self._schema.key, schema.partition, *counted})
        requests = self._table.requests(request)
        with as_boto3_raises():
            response = requests.send_patiently(
                method.title(), TableName=self._table.name, **without(projected, "ReturnConsumedCapacity")
            )
        response = requests.finish(response)
        if "Items" not in response:
            return response
        self._sharding.routes.meet(response["Items"])
        items = [item for item in response["Items"] if not self._sharding.is_journal(item)]
        response["ScannedCount"] -= len(response["Items"]) - len(items)
        response |= {"Items": [schema.show(item, hidden | of_index) for item in items], "Count": len(items)}
        return without(response, "Items") if wants_count(request) else response


def refuse_partition_key(asked: Conditions, schema: Schema, *parameters: str) -> None:
    """Refuse a query in whose expressions the table's partition key occurs.

    Raises:
        NotImplementedError: naming the parameter.
    """
    for parameter in parameters:
        if schema.partition in asked.names_in(parameter):
            raise NotImplementedError(
                f"query({parameter}=…): it looks at {schema.partition}, which differs on shards. Use query of the "
                "table itself"
            )


@dataclass(frozen=True, slots=True)
class _OwnKeys:
    """Queries of the table, or of an index with its partition key: a key and its shards, merged by the sort key."""

    _sharding: Sharding
    _index: Index

    def build(self, asked: Conditions) -> Query:
        """Build the query of a page.

        Raises:
            UnreadableExpressionError: it cannot be sent to several places; DynamoDB describes such mistakes best.
            InvalidRequestError: its partition key is not allowed.
        """
        index, start = self._index, asked.request.get("ExclusiveStartKey")
        condition = asked.read_key(index.partition, index.sort or "", (*index.also_hashed, *index.also_sorted))
        names = {*self._sharding.schema.key, *index.names}
        if start is not None and (
            not isinstance(start, Mapping) or start.keys() != names or start[index.partition] != condition.partition
        ):
            raise UnreadableExpressionError("ExclusiveStartKey is not a key of it")
        return _build_query(
            asked,
            _check_collection(self._sharding.schema, condition.partition),
            condition.sort,
            index,
            others=condition.others,
            start=start,
            hashed=_find_hashed(asked, self._sharding),
        )

    def read(self, requests: Requests, wanted: Query) -> Attributes:
        """Read a page."""
        return respond(requests, wanted, gather_page(self._sharding, requests, wanted))


class _ValueKeys:
    """Queries of a `ShardedIndex`: all shards of a value, merged by the index's range key. Methods as of `_OwnKeys`.

    `LastEvaluatedKey` says how far each shard was read: items with the same range key come in no order that a single
    key could name. It is for going on, not for reading.
    """

    def __init__(self, sharding: Sharding, index: HashIndex) -> None:
        self._index = index
        self.schema = index.build_schema(sharding.schema)
        routes = index.build_routes(self.schema, sharding.table.clock, sharding.table.budget_ms)
        self._sharding = replace(sharding, schema=self.schema, routes=routes, position=None, indexes=())
        self._form = self.schema.form

    def build(self, asked: Conditions) -> Query:
        """Build the query of a page.

        Raises:
            ValueError: `ExclusiveStartKey` is not a `LastEvaluatedKey` of such a query.
        """
        refuse_partition_key(asked, self._index.schema, "FilterExpression")
        names, hash_name = self._index.names, self._index.index.hash
        condition = asked.read_key(hash_name, names.sort or "")
        collection = _check_collection(self.schema, condition.partition)
        ties = Ties(names, self._index.schema, newest_first=not asked.request.get("ScanIndexForward", True))
        ties.starts |= self._starts(collection, asked.request.get("ExclusiveStartKey"))
        return _build_query(asked, collection, condition.sort, names, ties=ties, hidden=self.hidden(asked))

    def hidden(self, asked: Conditions) -> frozenset[str]:
        """Name the owner's attribute if it is not asked for: any item of the index shows it."""
        name, parameter = self._index.index.hash, "ProjectionExpression"
        is_left_out = parameter in asked.request and name not in asked.names_in(parameter)
        return frozenset({name} if is_left_out else ())

    def read(self, requests: Requests, wanted: Query) -> Attributes:
        """Read a page of one value's items."""
        page = respond(requests, wanted, gather_page(self._sharding, requests, wanted))
        if "LastEvaluatedKey" in page:
            progress = self._progress(page)
            page["LastEvaluatedKey"] = {
                **{name: value for key in progress.values() for name, value in key.items()},  # PynamoDB looks for keys
                self._index.index.hash: wanted.collection,
                self._index.names.partition: progress,
            }
        return page

    def _starts(self, collection: str, start: Any) -> dict[str, Attributes]:
        """Read how far each shard was read; DynamoDB itself checks the keys."""
        if start is None:
            return {}
        progress = start.get(self._index.names.partition) if isinstance(start, Mapping) else None
        if not isinstance(progress, Mapping) or start.get(self._index.index.hash) != collection:
            raise ValueError(f"ExclusiveStartKey should be a LastEvaluatedKey of this query, not {start!r}")
        starts: dict[str, Attributes] = {}
        for shard, key in progress.items():
            partition_key = self._form.shard_key(collection, int(shard))
            starts[partition_key] = {**key, self._index.names.partition: partition_key}
        return starts

    def _progress(self, page: Attributes) -> Attributes:
        """Say how far each shard was read, by its number."""
        name = self._index.names.partition
        return {
            str(self._form.parse(partition_key)[1]): without(key, name)
            for partition_key, key in page["LastEvaluatedKey"].items()
        }


@dataclass(frozen=True, slots=True)
class _BucketKeys:
    """Queries of `TimeBuckets`, bucket by bucket. Methods as of `_OwnKeys`."""

    _sharding: Sharding
    _index: BucketIndex

    @property
    def _schema(self) -> Schema:
        return self._sharding.schema

    def build(self, asked: Conditions) -> Query:
        """Build the query of a range of time.

        Raises:
            NotImplementedError: it asks for consistency, or leaves an end open.
            ValueError: `ExclusiveStartKey` is not a key of the table.
        """
        name = self._index.buckets.index
        refuse_partition_key(asked, self._schema, "FilterExpression")
        if asked.request.get("ConsistentRead"):
            raise NotImplementedError(
                f"query(IndexName={name!r}, ConsistentRead=True): an index is filled a moment after its table. Query "
                "the table"
            )
        collection, first, last = self._read_range(asked)
        start = asked.request.get("ExclusiveStartKey")
        if start is not None and (not isinstance(start, Mapping) or start.keys() != self._schema.key):
            raise ValueError(
                f"ExclusiveStartKey should have {' and '.join(sorted(self._schema.key))}, as LastEvaluatedKey"
            )
        between = Comparison(self._index.names.sort or "", "BETWEEN", (first, last))
        collection, hashed = self._schema.form.check(collection), _find_hashed(asked, self._sharding)
        return _build_query(asked, collection, between, self._index.names, start=start, hashed=hashed)

    def read(self, requests: Requests, wanted: Query) -> Attributes:
        """Read a page of a range of time, across the edges of buckets; `ConsistentRead` in it says False.

        A page ends where `Limit` ends it. Without one, it ends with the first bucket that has something.

        Raises:
            ValueError: the range has too many buckets.
        """
        assert wanted.condition is not None  # noqa: S101  a range has two ends
        first, last = wanted.condition.operands
        sort = self._schema.sort
        cursor = None if wanted.start is None else wanted.start[sort]
        buckets = self._buckets(first, last, cursor, newest_first=wanted.newest_first)
        items: list[Attributes] = []
        scanned, reached, is_more = 0, cursor, False
        for position, bucket in enumerate(buckets):
            start = None
            if position == 0 and cursor is not None:
                start = {self._index.names.sort or "": cursor, sort: cursor}
            left = None if wanted.limit is None else max(1, wanted.limit - scanned)
            part = replace(wanted, limit=left, bucket=partial(self._key_of, bucket), start=start)
            found = gather_page(self._sharding, requests, part)
            items += found.shown
            scanned += found.scanned
            if found.stored or found.key is not None:
                reached = (found.key or found.stored[-1].attributes)[sort]
            is_more = found.key is not None or position + 1 < len(buckets)
            is_full = wanted.limit is None or scanned >= wanted.limit
            if found.key is not None or (reached != cursor and is_full):
                break
        is_left = is_more and reached is not None
        key = {self._schema.partition: wanted.collection, sort: reached} if is_left else None
        page = respond(requests, wanted, Gathered((), items, scanned, key))
        return {**page, "ConsistentRead": False}

    def _read_range(self, asked: Conditions) -> tuple[str, Any, Any]:
        try:
            condition = asked.read_key(self._schema.partition, self._schema.sort)
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

    def _key_of(self, bucket: str, partition_key: str) -> Attributes:
        """Build the index's hash key of a bucket, for the place with a partition key."""
        return {self._index.names.partition: self._index.key_for(partition_key, bucket)}


_OF_THE_PAGE = ("Hashed", "Limit", "ExclusiveStartKey", "ReturnConsumedCapacity")


def _build_query(asked: Conditions, collection: str, condition: Comparison | None, names: Index, **more: Any) -> Query:
    """Build the gathered query; `more` as of `Query`.

    Raises:
        UnreadableExpressionError: its limit is none.
    """
    limit = asked.request.get("Limit")
    if "Limit" in asked.request and not (isinstance(limit, int) and limit > 0):
        raise UnreadableExpressionError("Limit should be a whole number from 1 on")
    return Query(
        collection=collection,
        condition=condition,
        names=names,
        request=without(asked.rest, *_OF_THE_PAGE),
        limit=limit,
        newest_first=not asked.request.get("ScanIndexForward", True),
        **more,
    )


def _check_collection(schema: Schema, partition: Any) -> str:
    """Return the partition key that a query names.

    Raises:
        UnreadableExpressionError: it cannot be that of an item.
        InvalidRequestError: it is not allowed.
    """
    if not schema.is_partition_value(partition):
        raise UnreadableExpressionError("it names no partition key")
    return schema.form.check(partition)


def _find_hashed(asked: Conditions, sharding: Sharding) -> str | None:
    """Return the text that chose the shards of all wanted items, where the call gives it."""
    if (named := asked.request.get("Hashed")) is not None:
        return sharding.text_of_hashed(named)
    attribute = sharding.hashing.attribute
    wanted = None if attribute is None else asked.find_equality(attribute)
    if isinstance(wanted, bool) or not isinstance(wanted, SCALARS):
        return None  # no item that has such a value could be put
    return text_of(wanted)


def read_pages(read: Callable[..., Any], request: Request) -> Iterator[Any]:
    """Read all pages of a query or scan, one after the other."""
    page = read(**request)
    yield page
    while "LastEvaluatedKey" in page:
        page = read(**{**request, "ExclusiveStartKey": page["LastEvaluatedKey"]})
        yield page
