"""The calls that read pages: query and scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hotpartition.table.expressions import (
    UnreadableExpressionError,
    find_equality,
    names_in,
    project_also,
    read_key_condition,
    without_key_condition,
)
from hotpartition.table.filters import split_filter
from hotpartition.table.gathering import PageReader
from hotpartition.table.index_calls import open_kept
from hotpartition.table.item_store import Query
from hotpartition.table.refused import refuse_parameters
from hotpartition.table.requests import Boto3Table, as_boto3_raises, without
from hotpartition.table.schema import CHANGES, SCALARS, SHARDS, Attributes, Index, text_of
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
"""What a query may say that is served from the cache."""


class PageCalls:
    """Carries them out. Safe under threads."""

    def __init__(self, table: Boto3Table, sharding: Sharding, reader: PageReader) -> None:
        self._table = table
        self._kept = {each.index_name: each for each in open_kept(table, sharding, reader)}
        self._sharding = sharding
        self._schema = sharding.schema
        self._reader = reader

    def query(self, request: Request, *, cache: bool = False) -> Any:
        """Carry out `query`; with `cache`, a newest page of what is read-hot may be a cached one."""
        refuse_parameters("query", request)
        if (kept := self._kept.get(request.get("IndexName", ""))) is not None:
            self._refuse_partition_key("query", request, "FilterExpression")
            return kept.query(request, self._hashed(request))
        index = self._index(request)
        if index.partition != self._schema.partition:
            if self._schema.partition in index.names:
                self._refuse_partition_key("query", request, "KeyConditionExpression")
                self._refuse_partition_key("query", request, "FilterExpression")
            return self._pass_on("query", request)
        try:
            others = (*index.also_hashed, *index.also_sorted)
            condition = read_key_condition(request, self._schema, index.sort or "", others)
        except UnreadableExpressionError as error:
            return self._table.let_refuse("query", request, error)
        if not self._is_plain(request, condition.partition, index):
            return self._table.let_refuse("query", request)
        wanted = Query(
            collection=self._schema.form.check(condition.partition),
            condition=condition.sort,
            others=condition.others,
            names=index,
            request=without(
                without_key_condition(request), "Hashed", "Limit", "ExclusiveStartKey", "ReturnConsumedCapacity"
            ),
            limit=request.get("Limit"),
            newest_first=not request.get("ScanIndexForward", True),
            start=request.get("ExclusiveStartKey"),
            hashed=self._hashed(request),
        )
        cached = self._sharding.routes.cached if cache and _is_newest_page(request, wanted) else None

        def gather() -> tuple[Attributes, float]:
            requests = self._table.requests(request)
            return self._reader.read(requests, wanted), requests.units

        with self._table.in_owners_words("query", request), as_boto3_raises():
            return gather()[0] if cached is None else cached.read(wanted.collection, request, gather)

    def scan(self, request: Request) -> Any:
        """Carry out `scan`.

        Raises:
            NotImplementedError: its filter looks at the partition key otherwise than in a condition of its own.
        """
        refuse_parameters("scan", request)
        return self._pass_on("scan", request)

    def _refuse_partition_key(self, method: str, request: Request, parameter: str) -> None:
        """Refuse an expression that looks at the partition key.

        Raises:
            NotImplementedError: naming the parameter, the reason and what to use instead.
        """
        name = self._schema.partition
        if name in names_in(request, parameter):
            raise NotImplementedError(
                f"{method}({parameter}=…): it looks at {name}, which differs on shards. Use query of the table itself"
            )

    def _hashed(self, request: Request) -> str | None:
        """Return what the shards of all wanted items were chosen by, where the call tells it."""
        wanted, attribute = request.get("Hashed"), self._sharding.hashing.attribute
        if wanted is None and attribute is not None:
            wanted = find_equality(request, attribute)
            if isinstance(wanted, bool) or not isinstance(wanted, SCALARS):
                return None  # no item that has such a value could be put
        return None if wanted is None else text_of(wanted)

    def _is_plain(self, request: Request, partition: Any, index: Index) -> bool:
        """Say whether a query can be asked of several places; what is wrong with another, DynamoDB says best."""
        start, limit = request.get("ExclusiveStartKey"), request.get("Limit", 1)
        names = {*self._schema.key, *index.names}
        is_start_right = start is None or (start.keys() == names and start[self._schema.partition] == partition)
        is_limit_right = isinstance(limit, int) and limit > 0
        return self._schema.is_partition_value(partition) and is_start_right and is_limit_right

    def _index(self, request: Request) -> Index:
        """Return the keys of what is queried; an index that is not known is left for DynamoDB to refuse."""
        own = Index(self._schema.partition, self._schema.sort)
        name = request.get("IndexName")
        return own if name is None else self._schema.indexes.get(name, Index("", None))

    def _pass_on(self, method: str, request: Request) -> Attributes:
        """Read a page of what is not kept by partition key, and show its items as their owner knows them."""
        name = self._schema.partition
        filtered = split_filter(request, name)
        if filtered is None:
            raise NotImplementedError(
                f"{method}(FilterExpression=…): it looks at {name}, which differs on shards. Use query of the table "
                f"itself; or a condition on {name} alone, joined with the others by AND"
            )
        wide, keeps = filtered
        journal = self._sharding.routes.journal
        is_seen = keeps is not None or (journal is not None and not journal.is_apart)
        is_counted = is_seen and wide.get("Select") == "COUNT" and "ProjectionExpression" not in wide
        if is_counted:
            names = {**(wide.get("ExpressionAttributeNames") or {}), "#hpt": name}
            wide = {**without(wide, "Select"), "ProjectionExpression": "#hpt", "ExpressionAttributeNames": names}
        # An index may hold no more than its keys.
        counted = () if "IndexName" in request else (CHANGES, SHARDS)
        projected, hidden = project_also(wide, {*self._schema.key, *counted})
        with self._table.in_owners_words(method, request):
            response = self._table.pass_on(method, projected)
        if "Items" not in response:
            return response
        self._sharding.routes.meet(response["Items"])
        if (unrouted := self._sharding.routes.unrouted) is not None:
            unrouted.meet(item[name] for item in response["Items"])
        items = [item for item in response["Items"] if not self._sharding.is_journal(item)]
        response["ScannedCount"] -= len(response["Items"]) - len(items)
        if keeps is not None:
            items = [item for item in items if keeps(self._schema.collection_of(item[name]))]
        response |= {"Items": [self._schema.show(item, hidden) for item in items], "Count": len(items)}
        return without(response, "Items") if is_counted else response


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
