"""Queries one collection wherever its items can be, and merges what is found into one page.

Every place gets the owner's own query, under its own partition key and from the same start. What one place has read
only a part of bounds the page: nothing past that point is certain yet. So a page is complete up to its last item, and
the next one starts behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from boto3.dynamodb.types import Binary

from hotpartition.table.consumed import Requests
from hotpartition.table.copies import Copy, copy_of, show, sort_copies
from hotpartition.table.expressions import (
    Comparison,
    KeyCondition,
    project_also,
    with_key_condition,
)
from hotpartition.table.patience import Patience
from hotpartition.table.schema import CHANGES, SHARDS, Attributes, Index, order_of
from hotpartition.table.sharding import Sharding


@dataclass(frozen=True, slots=True)
class Query:
    """A query of one collection, as its owner asked for it."""

    collection: str
    condition: Comparison | None
    """The part of its key condition that is about the sort key."""
    names: Index
    """The keys of what is queried: the table's, or those of an index with the table's partition key."""
    request: Attributes
    """All other parameters, without the key condition."""
    limit: int | None
    newest_first: bool
    start: Attributes | None
    """Its `ExclusiveStartKey`."""


Places = Callable[[str], Sequence[str]]
"""Tells where items of a collection can be, by what is known of it by now."""


class _Response(NamedTuple):
    """What one place responded: its copies, up to where it was read (None: to its end), and how many it looked at."""

    copies: list[Copy]
    reached: Any
    scanned: int


class Gatherer:
    """Queries several places at the same time. Safe under threads."""

    def __init__(self, sharding: Sharding, executor: Executor, patience: Patience) -> None:
        self.sharding = sharding
        self._executor = executor
        self._patience = patience

    def gather(self, requests: Requests, query: Query, places: Places) -> Attributes:
        """Read one page.

        Raises:
            ClientError: as boto3's.
            ThrottledError: DynamoDB refused one of the places for the whole budget.
        """
        return _Gathering(self, requests, query, places).page()

    def run(self, sends: Iterable[Callable[[], Attributes]]) -> list[Attributes]:
        """Send requests at the same time; each again within the budget while DynamoDB throttles it."""
        patient = [partial(self._patience.send, send) for send in sends]
        if len(patient) == 1:
            return [patient[0]()]
        return [future.result() for future in [self._executor.submit(send) for send in patient]]


class _Gathering:
    """One page under way."""

    def __init__(self, gatherer: Gatherer, requests: Requests, query: Query, places: Places) -> None:
        self._gatherer = gatherer
        self._schema = gatherer.sharding.schema
        self._routes = gatherer.sharding.routes
        self._requests = requests
        self._query = query
        self._places = places
        self._merged_by = [name for name in (query.names.sort, self._schema.sort) if name is not None]

    def page(self) -> Attributes:
        """Read the page, and build what boto3's `query` would return for it."""
        if self._query.request.get("FilterExpression") and self._query.limit is not None:
            return self._filtered_page(self._query.limit)
        responses = self._ask_everywhere(self._query.limit, self._query.request)
        return self._build(responses, sum(response.scanned for response in responses))

    def _filtered_page(self, limit: int) -> Attributes:
        """Read a page whose limit counts what a filter drops as well.

        First without the filter, which tells how many of the page's items lie at each place; then so many with it.
        """
        whole = {name: value for name, value in self._query.request.items() if name in _UNFILTERED}
        responses = self._ask_everywhere(
            limit,
            {**whole, "ProjectionExpression": "#hpt", "ExpressionAttributeNames": {"#hpt": self._schema.sort}},
        )
        copies, last = self._merge(responses, limit)
        found = [copy for same in copies for copy in same]
        if not found:
            return self._build([], 0, last)
        counts = Counter(copy.partition_key for copy in found)
        ends = {copy.partition_key: self._place_in_order(copy.item) for copy in found}
        filtered = self._ask(counts, self._query.request)
        # One that did not get as far as before met newer items on its way: the page ends there.
        late = [
            response._replace(reached=response.reached if self._is_short(response.reached, end) else None)
            for response, end in zip(filtered, (ends[key] for key in counts), strict=True)
        ]
        return self._build(late, len(copies), last)

    def _is_short(self, reached: Any, end: Any) -> bool:
        return reached is not None and self._is_past(end, reached)

    def _ask_everywhere(self, limit: int | None, request: Attributes) -> list[_Response]:
        """Query all places, those too that only the responses tell of."""
        responses: dict[str, _Response] = {}
        while unasked := [key for key in self._places(self._query.collection) if key not in responses]:
            found = self._ask(dict.fromkeys(unasked, limit), request)
            responses |= zip(unasked, found, strict=True)
        return list(responses.values())

    def _ask(self, limits: Mapping[str, int | None], request: Attributes) -> list[_Response]:
        """Query places, each for as many items as is said."""
        # An index may hold no more than its keys.
        counted = () if "IndexName" in request else (CHANGES, SHARDS)
        wanted = {self._schema.partition, *counted, *self._merged_by}
        projected, self._hidden = project_also(_ignoring_count(request), wanted)
        responses = self._gatherer.run(
            partial(self._requests.send, "Query", **self._part(projected, key, limit)) for key, limit in limits.items()
        )
        for response in responses:
            self._routes.meet(response["Items"])
        return [self._read(response) for response in responses]

    def _part(self, request: Attributes, partition_key: str, limit: int | None) -> Attributes:
        names = (self._query.names.partition, self._query.names.sort or "")
        part = with_key_condition(request, names, KeyCondition(partition_key, self._query.condition))
        if self._query.start is not None:
            part["ExclusiveStartKey"] = {**self._query.start, self._schema.partition: partition_key}
        if limit is not None:
            part["Limit"] = limit
        return part

    def _read(self, response: Attributes) -> _Response:
        self._metadata = response.get("ResponseMetadata", {})
        last = response.get("LastEvaluatedKey")
        return _Response(
            [copy_of(self._schema, item) for item in response["Items"]],
            None if last is None else self._place_in_order(last),
            response["ScannedCount"],
        )

    def _place_in_order(self, item: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(order_of(item[name]) for name in self._merged_by)

    def _merge(self, responses: Sequence[_Response], limit: int | None) -> tuple[list[list[Copy]], Any]:
        """Merge up to where all places are read: each item's copies, and the page's end (None: nothing is left)."""
        by_place: dict[Any, list[Copy]] = {}
        for response in responses:
            for copy in response.copies:
                by_place.setdefault(self._place_in_order(copy.item), []).append(copy)
        end = self._first_end(response.reached for response in responses)
        places = [place for place in self._sorted(by_place) if end is None or not self._is_past(place, end)]
        if limit is not None and len(places) >= limit:
            is_all = end is None and len(places) == limit and len(by_place) == limit
            places, end = places[:limit], None if is_all else places[limit - 1]
        return [sort_copies(by_place[place]) for place in places], end

    def _build(self, responses: Sequence[_Response], scanned: int, last: Any = None) -> Attributes:
        copies, end = self._merge(responses, None if last else self._query.limit)
        end = self._first_end([end, last])
        items = [show(self._schema, same[0].item, self._hidden) for same in copies]
        response: Attributes = {} if self._query.request.get("Select") == "COUNT" else {"Items": items}
        if not self._query.request.get("FilterExpression"):
            scanned = len(items)
        response |= {"Count": len(items), "ScannedCount": scanned, "ResponseMetadata": self._metadata}
        if end is not None:
            values = (Binary(value) if isinstance(value, bytes) else value for value in end)
            names = dict(zip(self._merged_by, values, strict=True))
            response["LastEvaluatedKey"] = {self._schema.partition: self._query.collection, **names}
        return self._requests.finish(response)

    def _sorted(self, places: Iterable[Any]) -> list[Any]:
        return sorted(places, reverse=self._query.newest_first)

    def _first_end(self, ends: Iterable[Any]) -> Any:
        """Return which of several places comes first in the page's order; None of them is none."""
        known = self._sorted(end for end in ends if end is not None)
        return known[0] if known else None

    def _is_past(self, place: Any, end: Any) -> bool:
        return bool(place < end if self._query.newest_first else place > end)


_UNFILTERED = ("IndexName", "ConsistentRead", "ScanIndexForward")


def _ignoring_count(request: Attributes) -> Attributes:
    """Ask for keys where only the number of items is wanted: copies of one item count once."""
    if request.get("Select") != "COUNT":
        return request
    names = {**(request.get("ExpressionAttributeNames") or {}), "#hpt": CHANGES}
    rest = {name: value for name, value in request.items() if name != "Select"}
    return {**rest, "ProjectionExpression": "#hpt", "ExpressionAttributeNames": names}
