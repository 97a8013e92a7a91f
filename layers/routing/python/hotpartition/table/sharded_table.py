"""`ShardedTable`: a boto3 `Table` whose partition keys are spread over shards."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from functools import partial
from os import getpid
from threading import Lock
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from boto3.dynamodb.table import BatchWriter
from boto3.resources.base import ServiceResource
from botocore.exceptions import ClientError

from hotpartition.core.backoff import Clock
from hotpartition.core.keys import KeyForm
from hotpartition.runtime.build import Engine
from hotpartition.table.batches import Batches
from hotpartition.table.cached_reads import CachedReads, open_cached_reads
from hotpartition.table.guarded import NO_PARTIQL, Guarded, GuardedClient
from hotpartition.table.indexes import ShardedIndex, TimeBuckets, bind
from hotpartition.table.item_calls import ItemCalls
from hotpartition.table.page_calls import PageCalls, read_pages
from hotpartition.table.parts import Parts
from hotpartition.table.plain_table import PlainTable
from hotpartition.table.read_cache import ReadCache
from hotpartition.table.requests import Boto3Table, Transport, check_sending
from hotpartition.table.routes import Shards, check_shards
from hotpartition.table.schema import Schema
from hotpartition.table.sharding import AtRandom, Hashing, Position, Sharding, by_sort_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import DynamoDBResourceMeta, Table
    from mypy_boto3_dynamodb.type_defs import (
        DeleteItemInputTableDeleteItemTypeDef,
        DeleteItemOutputTableTypeDef,
        GetItemInputTableGetItemTypeDef,
        GetItemOutputTableTypeDef,
        PutItemInputTablePutItemTypeDef,
        PutItemOutputTableTypeDef,
        QueryInputTableQueryTypeDef,
        QueryOutputTableTypeDef,
        ScanInputTableScanTypeDef,
        ScanOutputTableTypeDef,
        UpdateItemInputTableUpdateItemTypeDef,
        UpdateItemOutputTableTypeDef,
    )

    # For type checkers it has whatever boto3's `Table` has, which `__getattr__` passes on.
    _Base = Table

    class GetItems(TypedDict, total=False):
        """Parameters of reading several items."""

        ConsistentRead: bool
        ProjectionExpression: str
        ExpressionAttributeNames: Mapping[str, str]

else:
    _Base = ServiceResource

HashedValue = str | int | Decimal | bytes
_ABSENT: Any = object()
"""`Hashed` that is not given. It is a parameter of its own: a type that adds it to boto3's has no other parameters for
type checkers that do not find boto3's stubs."""

_OF_THE_CLIENT = "it names its tables. Use {}"

_REFUSED: Mapping[str, str] = {
    "transact_write_items": _OF_THE_CLIENT.format("table.meta.client.transact_write_items()"),
    "transact_get_items": _OF_THE_CLIENT.format("table.meta.client.transact_get_items()"),
    "execute_statement": NO_PARTIQL,
    "batch_execute_statement": NO_PARTIQL,
    "execute_transaction": NO_PARTIQL,
    "batch_get_item": _OF_THE_CLIENT.format("get_items(), or table.meta.client.batch_get_item()"),
    "batch_write_item": _OF_THE_CLIENT.format("batch_writer(), or table.meta.client.batch_write_item()"),
}

DEFAULT_BUDGET_MS = 1_000.0
"""How long one call may try again what DynamoDB refused; the client's own retries come on top."""

# The system's chance: a generator of the process's own would be in a snapshot that many environments start from.
REAL_CLOCK = Clock(now_ms=lambda: int(time.time() * 1000), sleep=time.sleep, random=random.SystemRandom().random)


class RefusedMethodError(NotImplementedError, AttributeError):
    """A method that cannot be honoured. As an `AttributeError` it lets `hasattr` say False, as of boto3's `Table`."""


class ShardedTable(_Base):
    """A boto3 `Table` whose partition keys are spread over shards. Safe under threads.

    Keys go in and come out as their owner writes them: the shard of an item is never shown. Methods, parameters and
    results are boto3's. Calls that are not about items are passed on to the table, and so are all calls if it has no
    sort key: each item has a partition key of its own then.

    Example:
        >>> table = ShardedTable(boto3.resource("dynamodb").Table("readings"), shards=fixed(16))
        >>> table.put_item(Item={"PK": "SENSOR_READING", "SK": "2026-11-21T09:30:00Z", "celsius": 21})
        >>> table.query(KeyConditionExpression=Key("PK").eq("SENSOR_READING"), ScanIndexForward=False, Limit=100)
    """

    def __init__(
        self,
        table: Table,
        *,
        shards: Shards,
        hashed: Hashing | None = None,
        position: Position | None = None,
        indexes: Sequence[ShardedIndex | TimeBuckets] = (),
        append_only: bool = False,
        cache: ReadCache | None = None,
        transport: Transport | None = None,
        budget_ms: float = DEFAULT_BUDGET_MS,
        clock: Clock = REAL_CLOCK,
    ) -> None:
        """Wrap a table. Sends nothing: the table's keys are read with the first call.

        Args:
            table: a boto3 `Table`, with whatever retries, endpoint and credentials. As this class tries again itself,
                clients with few retries of their own are quicker: `Config(retries={"total_max_attempts": 1})`.
            shards: how many shards a partition key has: `fixed(n)`, `in_band()` or `adaptive()`.
            hashed: how the shard is chosen: `by_sort_key()` (the default), `by_attribute(name)` or `at_random()`.
            position: returns the position of a sort key, an integer that never falls as the sort key grows: its time,
                for instance. With it, generations can begin at a position.
            indexes: global indexes that are sharded, `ShardedIndex("by-status", hash="status", shards=fixed(8))`, or
                kept for ranges of time, `TimeBuckets("hour", index="by-time")`.
            append_only: items are only ever created, never put a second time: then a put looks for nothing.
            cache: what `get_item`, `get_items` and `query` with `cache=True` read through; tables may share one.
                `adaptive()` brings its own, for keys that are read-hot; with this one, the process caches all others,
                too (docs/read-hot-keys.md).
            transport: `curl()` sends requests about items through libcurl; None: the table itself does.
            budget_ms: how long one call may try again what DynamoDB refused.
            clock: time and chance, for tests.

        Raises:
            TypeError: an argument is something else; the message says what to write.
        """
        _check_arguments(table, shards, hashed, position, indexes, cache)
        check_sending(transport, budget_ms)
        self._table = table
        self._shards = shards
        self._hashing = hashed or by_sort_key()
        self._position = position
        self._indexes = indexes
        self._append_only = append_only
        self._cache = cache
        self._transport = transport
        self._clock = clock
        self._budget_ms = budget_ms
        self._built: tuple[int, Parts] | None = None
        self._lock = Lock()

    def put_item(self, **request: Unpack[PutItemInputTablePutItemTypeDef]) -> PutItemOutputTableTypeDef:
        """Create an item, or replace it: as boto3's `put_item`.

        Raises:
            InvalidRequestError: the partition key ends like a shard's, or the item lacks what its shard is chosen by.

        Example:
            >>> table.put_item(Item={"PK": "room-1", "SK": "0001", "text": "hello"})
        """
        response: PutItemOutputTableTypeDef = self._open("PutItem").change("put_item", request)
        return response

    def create_item(self, *, Item: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: N803 - boto3's name for it
        """Create an item unless it is there: at the same cost as a put, without a look first. May be repeated.

        An item that was created before its key was raised may be created a second time, and this says None again. Reads
        show one of such copies, the more often changed one; with `position=` there is no second one, as the place of an
        item then follows from its own time.

        Returns:
            None if it was created; else the item that was there already, unchanged.

        Raises:
            InvalidRequestError: it lacks its key or what its shard is chosen by, or its partition key ends like a
                shard's.

        Example:
            >>> table.create_item(Item={"PK": "room-1", "SK": "0001", "text": "hello"})
        """
        parts = self._open("PutItem")
        with parts.changing([Item]):
            return parts.items.create(dict(Item))

    def update_item(
        self,
        *,
        Hashed: HashedValue = _ABSENT,  # noqa: N803 - named as boto3's are
        **request: Unpack[UpdateItemInputTableUpdateItemTypeDef],
    ) -> UpdateItemOutputTableTypeDef:
        """Change an item where it is, or create it: as boto3's `update_item`.

        Args:
            Hashed: the value of the attribute that shards are chosen by.
            request: boto3's parameters.

        Raises:
            InvalidRequestError: the partition key ends like a shard's; or the item is new, and nothing says where it
                goes.

        Example:
            >>> table.update_item(
            ...     Key={"PK": "room-1", "SK": "0001"},
            ...     UpdateExpression="SET #text = :text",
            ...     ExpressionAttributeNames={"#text": "text"},
            ...     ExpressionAttributeValues={":text": "goodbye"},
            ... )
        """
        response: UpdateItemOutputTableTypeDef = self._open("UpdateItem").change("update_item", _add(Hashed, request))
        return response

    def delete_item(
        self,
        *,
        Hashed: HashedValue = _ABSENT,  # noqa: N803 - named as boto3's are
        **request: Unpack[DeleteItemInputTableDeleteItemTypeDef],
    ) -> DeleteItemOutputTableTypeDef:
        """Delete an item where it is: as boto3's `delete_item`.

        Args:
            Hashed: the value of the attribute that shards are chosen by.
            request: boto3's parameters.

        Example:
            >>> table.delete_item(Key={"PK": "room-1", "SK": "0001"})
        """
        response: DeleteItemOutputTableTypeDef = self._open("DeleteItem").change("delete_item", _add(Hashed, request))
        return response

    def get_item(
        self,
        *,
        cache: bool = False,
        Hashed: HashedValue = _ABSENT,  # noqa: N803 - named as boto3's are
        **request: Unpack[GetItemInputTableGetItemTypeDef],
    ) -> GetItemOutputTableTypeDef:
        """Read an item wherever it can be: as boto3's `get_item`.

        Args:
            cache: whether the item may be a cached one, as old as the cache says: its response has HTTP's `age` header.
                A change through this table is seen at once.
            Hashed: the value of the attribute that shards are chosen by.
            request: boto3's parameters.

        Raises:
            NotImplementedError: `cache`, where there is none, or with `ConsistentRead`.

        Example:
            >>> table.get_item(Key={"PK": "room-1", "SK": "0001"}).get("Item")
        """
        self._refuse_uncached("get_item", request, cache)
        response: GetItemOutputTableTypeDef = self._open("GetItem").items.get(_add(Hashed, request), cache=cache)
        return response

    def get_items(
        self, keys: Iterable[Mapping[str, Any]], *, cache: bool = False, **request: Unpack[GetItems]
    ) -> list[dict[str, Any] | None]:
        """Read any number of items, wherever they can be, several requests at the same time.

        Args:
            keys: their keys, as `get_item` takes them.
            cache: whether items may be cached ones, as in `get_item`; those that are not there are read together.
            request: `ConsistentRead`, `ProjectionExpression` and `ExpressionAttributeNames`, as of `get_item`.

        Returns:
            The items in the order of their keys; None for one that there is not.

        Example:
            >>> table.get_items([{"PK": "room-1", "SK": "0001"}, {"PK": "room-2", "SK": "0007"}])
        """
        self._refuse_uncached("get_items", request, cache)
        return self._open("GetItem").items.get_items(list(keys), request, cache=cache)

    def query(
        self,
        *,
        cache: bool = False,
        Hashed: HashedValue = _ABSENT,  # noqa: N803 - named as boto3's are
        **request: Unpack[QueryInputTableQueryTypeDef],
    ) -> QueryOutputTableTypeDef:
        """Read a page of one partition key's items, from all its shards, by sort key: as boto3's `query`.

        A page ends where `Limit` ends it, or where the first of its shards has read 1 MB. Without `Limit`, shards that
        are behind are read further: a page may hold two megabytes for each shard.

        Args:
            cache: whether the page may be a cached one, of the very same parameters, as old as the cache says: its
                response has HTTP's `age` header. A change through this table may be missing in it. Without `cache=` of
                the table, `adaptive()` caches pages of read-hot partition keys, not those of indexes.
            Hashed: the one value of the attribute that is wanted, where shards are chosen by one. It is found in a
                `FilterExpression` that demands it, too. Only the base key and the shards of that value are asked then,
                and `ScannedCount` and `Limit` count what lies there.
            request: boto3's parameters.

        Raises:
            NotImplementedError: naming what cannot be honoured; `cache`, where there is none, or with `ConsistentRead`.

        Example:
            >>> page = table.query(KeyConditionExpression=Key("PK").eq("room-1") & Key("SK").gt("0001"), Limit=20)
            >>> page["Items"], page.get("LastEvaluatedKey")
        """
        self._refuse_uncached("query", request, cache)
        page: QueryOutputTableTypeDef = self._open("Query").pages.query(_add(Hashed, request), cache=cache)
        return page

    def query_pages(
        self,
        *,
        cache: bool = False,
        Hashed: HashedValue = _ABSENT,  # noqa: N803 - named as boto3's are
        **request: Unpack[QueryInputTableQueryTypeDef],
    ) -> Iterator[QueryOutputTableTypeDef]:
        """Read all pages of a query, one after the other; `cache` and `Hashed` as in `query`, for each of them.

        Example:
            >>> for page in table.query_pages(KeyConditionExpression=Key("PK").eq("room-1")):
            ...     print(page["Items"])
        """
        return read_pages(partial(self.query, cache=cache), _add(Hashed, request))

    def scan(self, **request: Unpack[ScanInputTableScanTypeDef]) -> ScanOutputTableTypeDef:
        """Read a page of the whole table, or of an index: as boto3's `scan`.

        `LastEvaluatedKey` is only for the next page: it names the stored place, not an owner's key.

        Example:
            >>> table.scan(Limit=100)["Items"]
        """
        page: ScanOutputTableTypeDef = self._open("Scan").pages.scan(request)
        return page

    def scan_pages(self, **request: Unpack[ScanInputTableScanTypeDef]) -> Iterator[ScanOutputTableTypeDef]:
        """Read all pages of a scan, one after the other.

        Example:
            >>> for page in table.scan_pages():
            ...     print(page["Items"])
        """
        return read_pages(self.scan, request)

    def logical_key(self, stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Turn a stored key, or a whole item, into its owner's key: for consumers of streams, and exports.

        Args:
            stored: in DynamoDB's own form (`{"PK": {"S": "room#_3"}, ...}`) or as Python values; returned in the same.

        Returns:
            None for routing and load items, which are not the owner's, and for a missing image.

        Example:
            >>> table.logical_key({"PK": {"S": "room-1#_3"}, "SK": {"S": "0001"}})
            {'PK': {'S': 'room-1'}, 'SK': {'S': '0001'}}
        """
        parts = self._open("DescribeTable")
        item = parts.items.show_stored(stored or {})
        return None if item is None else {name: value for name, value in item.items() if name in parts.items.key}

    def logical_item(self, stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Turn a stored item into its owner's, without the added attributes: as `logical_key`.

        Example:
            >>> table.logical_item(record["dynamodb"]["NewImage"])
        """
        return self._open("DescribeTable").items.show_stored(stored or {})

    def batch_writer(self, overwrite_by_pkeys: list[str] | None = None) -> BatchWriter:
        """Write many items, 25 a request: as boto3's `batch_writer`.

        Example:
            >>> with table.batch_writer() as batch:
            ...     batch.put_item(Item={"PK": "room-1", "SK": "0002"})
            ...     batch.delete_item(Key={"PK": "room-1", "SK": "0001"})
        """
        client: Any = self._open("BatchWriteItem")
        return BatchWriter(self._table.name, client, overwrite_by_pkeys=overwrite_by_pkeys)

    @property
    def name(self) -> str:  # type: ignore[override]  # stubs have an attribute
        """The table's name."""
        return self._table.name

    @property
    def meta(self) -> DynamoDBResourceMeta:  # type: ignore[override]  # stubs have an attribute
        """As of boto3's `Table`; its `client`'s calls about items of this table go through the shards."""
        meta: Any = self._table.meta
        guarded: Any = Guarded(meta, client=GuardedClient(meta.client, {self.name: self}))
        return cast("DynamoDBResourceMeta", guarded)

    if not TYPE_CHECKING:  # for type checkers, refused names do not exist

        def __getattr__(self, name: str) -> Any:
            """Pass on attributes that are not about items: `key_schema`, `load`, `wait_until_exists` and the rest."""
            if name in _REFUSED:
                raise RefusedMethodError(f"{name}(): {_REFUSED[name]}")
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self._table, name)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._table)})

    def __repr__(self) -> str:
        return f"ShardedTable({self._table!r}, shards={self._shards!r}, hashed={self._hashing!r})"

    def unwrap(self) -> tuple[Table, Shards, Transport | None]:
        """Return the boto3 `Table`, its shards and the transport: what a `ShardedCounter` of this table uses.

        Example:
            >>> table.unwrap()[0].name
            'readings'
        """
        return self._table, self._shards, self._transport

    def _refuse_uncached(self, method: str, request: Mapping[str, Any], cache: object) -> None:
        """Refuse to read through a cache what cannot be.

        Raises:
            NotImplementedError: there is no cache, or what is read must be consistent.
            TypeError: `cache` is neither True nor False.
        """
        if cache is False:
            return
        if cache is not True:
            raise TypeError(f"{method}(cache={cache!r}): should be True or False. The table takes the cache itself")
        if request.get("ConsistentRead"):
            raise NotImplementedError(
                f"{method}(cache=True, ConsistentRead=True): a cached value may lack the last change. Leave one out"
            )
        if self._cache is None and not self._shards.finds_read_heat:
            raise NotImplementedError(
                f"{method}(cache=True): this table has no cache. Write ShardedTable(..., cache=ReadCache(seconds=1)),"
                " or leave it out"
            )

    def _open(self, operation: str) -> Parts:
        """Return the parts that carry out the calls: built with a process's first, which asks for the table's keys.

        Raises:
            ResourceNotFoundException: there is no such table; as of the owner's operation.
        """
        with self._lock:
            if self._built is None or self._built[0] != getpid():  # a fork leaves threads behind
                try:
                    self._built = getpid(), self._build()
                except ClientError as error:
                    facts = error.response
                    if facts["Error"]["Code"] != "ResourceNotFoundException":
                        raise
                    # The owner has asked for no DescribeTable, whose message has the table's name behind a colon.
                    facts["Error"]["Message"] = facts["Error"]["Message"].partition(":")[0]
                    raise type(error)(cast("Any", facts), operation) from error
            # As boto3 after each action: what it knows of the table, `item_count` for instance, is read anew.
            known: Any = self._table.meta
            known.data = None
            return self._built[1]

    def _build(self) -> Parts:
        reached: Any = self._table
        if self._transport is not None:
            reached = self._transport(self._table, self._clock, self._budget_ms)
        if [key["KeyType"] for key in self._table.key_schema] == ["HASH"]:
            return self._build_plain(reached)
        schema = Schema.of(self._table)
        indexes = [bind(index, schema) for index in self._indexes]
        schema = replace(schema, reserved=schema.reserved.union(*[index.attributes for index in indexes]))
        routes = self._shards.build_routes(reached, schema, self._clock, self._budget_ms)
        # As many threads as the client has connections: more would wait for one.
        config: Any = self._table.meta.client.meta.config
        sharding = Sharding(
            schema=replace(schema, form=routes.engine.form),
            routes=routes,
            hashing=self._hashing,
            position=self._position,
            indexes=indexes,
            table=self._open_table(reached, is_counted=routes.is_counted),
            executor=self._open_executor(config.max_pool_connections),
            append_only=self._append_only,
            cached=self._open_cache(routes.engine),
        )
        return Parts(ItemCalls(sharding), PageCalls(sharding), Batches(sharding), cached=sharding.cached)

    def _build_plain(self, reached: Any) -> Parts:
        """Build the parts for a table without a sort key, which keeps no index."""
        if self._indexes:
            raise NotImplementedError(f"{self.name} has no sort key, so no index is kept. Leave out indexes=")
        table, cached = self._open_table(reached, is_counted=False), self._open_cache(None)
        plain: Any = PlainTable(table, self._table.key_schema[0]["AttributeName"], cached)
        return Parts(plain, plain, plain, is_sharded=False, cached=cached)

    def _open_table(self, reached: Any, *, is_counted: bool) -> Boto3Table:
        return Boto3Table(table=reached, is_counted=is_counted, clock=self._clock, budget_ms=self._budget_ms)

    def _open_cache(self, engine: Engine | None) -> CachedReads | None:
        """Open what `cache=True` reads through; `engine` is that of the shards, if there are any."""
        name = f"{self.name} {self._table.table_arn}"
        return open_cached_reads(name, self._cache, engine if self._shards.finds_read_heat else None)

    def _open_executor(self, threads: int) -> Executor:
        """Open the runner of the queries of one page, which run at the same time."""
        return ThreadPoolExecutor(threads, thread_name_prefix="hotpartition-table")


def _check_arguments(table: Any, shards: Any, hashed: Any, position: Any, indexes: Any, cache: Any) -> None:
    """Refuse arguments of `ShardedTable` that are something else, and say what to write.

    Raises:
        TypeError: naming the first of them.
    """
    if isinstance(table, ShardedTable):
        raise TypeError(f"{table!r} is sharded already. Use it as it is")
    if not hasattr(table, "name") or not hasattr(getattr(table, "meta", None), "client"):
        raise TypeError(
            f'ShardedTable({table!r}, …): should be a boto3 Table. Write boto3.resource("dynamodb").Table("readings"); '
            "guard(client, table) leads a client through it"
        )
    check_shards(shards)
    if getattr(shards, "closing", False) and position is None:
        raise TypeError(
            "closing=True: keys are closed by the items' times. Write position=..., a function that returns the time of"
            " a sort key in Unix ms"
        )
    if hashed is not None and (isinstance(hashed, type) or not hasattr(hashed, "of_nothing")):
        attribute = hashed if isinstance(hashed, str) else "device_id"
        raise TypeError(f"hashed={hashed!r}: should be by_sort_key(), by_attribute({attribute!r}) or at_random()")
    suffix = getattr(shards, "suffix", KeyForm.separator)
    if suffix != KeyForm.separator and not isinstance(hashed, AtRandom):
        raise TypeError(
            f"suffix={suffix!r}: by which text the shards were chosen is not known. Write hashed=at_random(), which "
            "looks on all of them"
        )
    if not all(isinstance(index, ShardedIndex | TimeBuckets) for index in indexes):
        raise TypeError(f"indexes={indexes!r}: should be a list of ShardedIndex and TimeBuckets")
    if cache is not None and (isinstance(cache, type) or not hasattr(cache, "view")):
        raise TypeError(f"cache={cache!r}: should be a ReadCache, for instance ReadCache(seconds=1)")
    if position is not None and not callable(position):
        raise TypeError(f"position={position!r}: should be a function that returns the position of a sort key")


def _add(value: HashedValue, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the value by which shards are chosen to a request, if there is one."""
    return request if value is _ABSENT else {**request, "Hashed": value}
