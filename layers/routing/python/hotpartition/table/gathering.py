"""Queries one collection wherever its items can be, and merges what is found into one page.

Every place gets the owner's own query, under its own partition key and from the same start. With a limit, `PageMerge`
plans how much each is asked for. Without one, each is asked once: what one has read only a part of (1 MB) bounds the
page, since nothing past that point is certain yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from boto3.dynamodb.types import Binary

from hotpartition.core.merge import PageMerge, PageRange
from hotpartition.core.route import keys_of_hashed, needed_keys
from hotpartition.table.consumed import Requests
from hotpartition.table.copies import Copy, copy_of, show, sort_copies
from hotpartition.table.expressions import Comparison, KeyCondition, project_also, with_key_condition
from hotpartition.table.journal_items import GENERATIONS, is_journal, key_of_journal
from hotpartition.table.patience import Patience
from hotpartition.table.schema import CHANGES, SHARDS, Attributes, Index, order_of
from hotpartition.table.sharding import Sharding

Place = tuple[Any, ...]
"""Where an item lies in its collection's order: what its sort key compares as; in an index, both sort keys."""


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
    hashed: str | None
    """What the shards of all wanted items were chosen by, where that is known."""
    bucket: Callable[[str], Attributes] | None = None
    """For an index by time: builds its hash key for a place. What sorts it is the table's sort key."""


REACHED = "hp_reached"
"""In the response of a bucket's query: how far it was read."""


class Reached(NamedTuple):
    """The sort key of the last item that a bucket's query found (None: none), and whether the bucket has more."""

    sort_value: Any
    is_more: bool


class _Response(NamedTuple):
    """What one place responded: its copies, up to where it was read (None: to its end), and how many it looked at."""

    copies: list[Copy]
    reached: Place | None
    scanned: int

    def is_cut(self, limit: int) -> bool:
        """Say whether it ended at 1 MB, before its limit."""
        return self.reached is not None and self.scanned < limit


_NOTHING = _Response([], None, 0)


class _Found(NamedTuple):
    """A copy as `PageMerge` takes it."""

    sort_key: Any
    copy: Copy

    @property
    def rank(self) -> Any:
        """Implement `MergeItem.rank`."""
        return self.copy.rank

    def has_same_content(self, other: _Found) -> bool:
        """Implement `MergeItem.has_same_content`: copies may differ, and the most changed one is the item."""
        del other
        return True


class Gatherer:
    """Queries several places at the same time. Safe under threads."""

    def __init__(self, sharding: Sharding, executor: Executor, patience: Patience) -> None:
        self.sharding = sharding
        self._executor = executor
        self._patience = patience

    def gather(self, requests: Requests, query: Query) -> Attributes:
        """Read one page.

        Raises:
            ClientError: as boto3's.
            ThrottledError: DynamoDB refused one of the places for the whole budget.
            MalformedGenerationError: the routing item cannot be read.
        """
        return _Gathering(self, requests, query).page()

    def run(self, sends: Iterable[Callable[[], Attributes]]) -> list[Attributes]:
        """Send requests at the same time; each again within the budget while DynamoDB throttles it."""
        patient = [partial(self._patience.send, send) for send in sends]
        if len(patient) == 1:
            return [patient[0]()]
        return [future.result() for future in [self._executor.submit(send) for send in patient]]


class _Gathering:
    """One page under way."""

    def __init__(self, gatherer: Gatherer, requests: Requests, query: Query) -> None:
        self._gatherer = gatherer
        self._sharding = gatherer.sharding
        self._schema = self._sharding.schema
        self._routes = self._sharding.routes
        self._requests = requests
        self._query = query
        self._merged_by = [name for name in (query.names.sort, self._schema.sort) if name is not None]
        self._hint = self._route = self._routes.get(query.collection)
        self._is_verified = self._routes.journal is None
        self._metadata: Attributes = {}
        # An index may hold no more than its keys.
        counted = () if "IndexName" in query.request else (CHANGES, SHARDS)
        generations = (GENERATIONS,) if self._is_journal_on_the_way() else ()
        wanted = {self._schema.partition, *counted, *generations, *self._merged_by}
        self._asked, self._hidden = project_also(_ignoring_count(query.request), wanted)

    def page(self) -> Attributes:
        """Read the page, and build what boto3's `query` would return for it."""
        limit = self._query.limit
        if limit is None or len(self._keys()) == 1:
            responses = self._ask_once(limit)
            if limit is None or len(self._keys()) == 1:
                return self._build(self._merge(responses), sum(response.scanned for response in responses))
        if self._query.request.get("FilterExpression"):
            return self._filtered_page(limit)
        return self._build(self._plan(limit, self._asked))

    def _keys(self) -> tuple[str, ...]:
        """List the places that the page can be on, by what is known by now."""
        query, form, until = self._query, self._schema.form, self._until()
        if query.hashed is None:
            return needed_keys(self._route, query.collection, until, form)
        choices = self._routes.choices
        return keys_of_hashed(self._route, query.collection, query.hashed, until, form, choices=choices)

    def _until(self) -> int | None:
        """Return the position up to which items are wanted; None: without bound."""
        query = self._query
        if query.newest_first and query.start is not None:
            return self._position_of((query.start[query.names.sort or ""],))
        _, last = self._bounds()
        return None if last is None else self._position_of(last)

    def _bounds(self) -> tuple[Place | None, Place | None]:
        """Return what all wanted items lie between, inclusive."""
        condition = self._query.condition
        if condition is None or self._is_sorted_otherwise:
            return None, None
        first, last = order_of(condition.operands[0]), order_of(condition.operands[-1])
        match condition.operator:
            case "=" | "BETWEEN":
                return (first,), (last,)
            case "<" | "<=":
                return None, (last,)
            case _:
                return (first,), None

    def _position_of(self, place: Place) -> int | None:
        return None if self._is_sorted_otherwise else self._sharding.position_of(place[0])

    @property
    def _is_sorted_otherwise(self) -> bool:
        """Say whether what is queried is sorted by another attribute than positions are told by."""
        return "IndexName" in self._query.request and self._query.bucket is None

    def _ask_once(self, limit: int | None) -> list[_Response]:
        """Query all places, each once; those too that only the responses tell of."""
        responses: dict[str, _Response] = {}
        while unasked := [key for key in self._keys() if key not in responses]:
            responses |= self._ask(dict.fromkeys(unasked, (limit, self._start())), self._asked)
        return list(responses.values())

    def _plan(self, limit: int, request: Attributes) -> tuple[list[Copy], Place | None]:
        """Read up to a limit of items, however they are spread: the valid copies, and the page's end.

        Where one place's response is cut at 1 MB, the page ends there, as DynamoDB's own pages do.
        """
        query = self._query
        # To the merge, sort keys are what can be compared.
        bounds: dict[str, Any] = dict(zip(("first", "last"), self._bounds(), strict=True), after=self._start())
        page_range = PageRange(query.collection, query.newest_first, limit, **bounds)
        position_of: Any = self._position_of
        merge: PageMerge[Any] = PageMerge(
            page_range,
            self._schema.form,
            position_of,
            hashed=query.hashed,
            choices=self._routes.choices,
        )
        read: dict[str, _Response] = {}
        while (queries := merge.next_queries(self._route)) or not self._is_verified:
            parts: dict[str, Any] = {part.partition_key: (part.limit, part.after) for part in queries}
            responses = self._ask(parts, request)
            for part in queries:
                response = responses[part.partition_key]
                end: Any = response.reached
                found = [_Found(self._place_of(copy.item), copy) for copy in response.copies]
                merge.add(part, found, is_exhausted=end is None, reached=end)
                before = read.get(part.partition_key, _NOTHING)
                read[part.partition_key] = response._replace(copies=before.copies + response.copies)
            if any(responses[part.partition_key].is_cut(part.limit) for part in queries):
                return self._cut(read, limit, request)
        page = merge.page()
        return [found.copy for found in page.items], page.items[-1].sort_key if page.has_more else None

    def _cut(self, read: dict[str, _Response], limit: int, request: Attributes) -> tuple[list[Copy], Place | None]:
        """End a page where what was read of all places ends."""
        while unasked := [key for key in self._keys() if key not in read]:
            read |= self._ask(dict.fromkeys(unasked, (limit, self._start())), request)
        copies, end = self._merge(list(read.values()))
        return (copies, end) if len(copies) <= limit else (copies[:limit], self._place_of(copies[limit - 1].item))

    def _filtered_page(self, limit: int) -> Attributes:
        """Read a page whose limit counts what a filter drops as well.

        First without the filter, which tells which of the page's items lie at each place; then so many with it.
        """
        whole = {name: value for name, value in self._query.request.items() if name in _UNFILTERED}
        names = {f"#hp{position}": name for position, name in enumerate({*self._merged_by, self._schema.partition})}
        counted = {} if "IndexName" in whole else {"#hpc": CHANGES, "#hpn": SHARDS}
        names |= counted
        keys_only = {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
        valid, last = self._plan(limit, {**whole, **keys_only})
        if not valid:
            return self._build((valid, last), 0)
        counts = Counter(copy.partition_key for copy in valid)
        ends = {copy.partition_key: self._place_of(copy.item) for copy in valid}
        lies_at = {self._place_of(copy.item): copy.partition_key for copy in valid}
        filtered = self._ask({key: (count, self._start()) for key, count in counts.items()}, self._asked)
        responses = [
            _Response(
                # Of two copies, only the valid one counts, whatever the filter thinks of the other.
                [copy for copy in found.copies if lies_at.get(self._place_of(copy.item)) in (None, copy.partition_key)],
                # A place that did not get as far as before met newer items on its way: the page ends there.
                found.reached if found.reached is not None and self._is_past(ends[key], found.reached) else last,
                found.scanned,
            )
            for key, found in filtered.items()
        ]
        return self._build(self._merge(responses), len(valid))

    def _ask(self, parts: Mapping[str, tuple[int | None, Place | None]], request: Attributes) -> dict[str, _Response]:
        """Query places, each for so many items after a place in the order, and verify the route beside the first."""
        sends = [self._part(request, key, limit, after) for key, (limit, after) in parts.items()]
        reads_journal = not self._is_verified and not self._is_journal_on_the_way()
        responses = self._gatherer.run([*sends, *([self._journal_read()] if reads_journal else [])])
        if reads_journal:
            self._verify(responses.pop().get("Item"))
        read = {key: self._read(response) for key, response in zip(parts, responses, strict=True)}
        if not self._is_verified:
            # A page that ends before the routing item's place says nothing of it.
            is_passed = self._is_past_journal(read.get(self._query.collection))
            self._verify(None if is_passed else self._gatherer.run([self._journal_read()])[0].get("Item"))
        self._route = self._route.union(self._routes.get(self._query.collection))
        return read

    def _part(
        self, request: Attributes, partition_key: str, limit: int | None, after: Place | None
    ) -> Callable[[], Attributes]:
        names = (self._query.names.partition, self._query.names.sort or "")
        bucket = self._query.bucket(partition_key) if self._query.bucket else {}
        asked = bucket.get(names[0], partition_key)
        part = with_key_condition(request, names, KeyCondition(asked, self._query.condition))
        if after is not None:
            part["ExclusiveStartKey"] = {**self._key_at(after, partition_key), **bucket}
        if limit is not None:
            part["Limit"] = limit
        return partial(self._requests.send, "Query", **part)

    def _read(self, response: Attributes) -> _Response:
        """Read one place's response; a routing item that is on its way is taken out of it."""
        self._metadata = response.get("ResponseMetadata", {})
        journal = self._routes.journal
        items = [item for item in response["Items"] if not is_journal(journal, self._schema, item)]
        if len(items) < len(response["Items"]) and not self._is_verified:
            self._verify(next(item for item in response["Items"] if is_journal(journal, self._schema, item)))
        self._routes.meet(items)
        last = response.get("LastEvaluatedKey")
        reached = None if last is None else self._place_of(last)
        return _Response([copy_of(self._schema, item) for item in items], reached, response["ScannedCount"])

    def _is_journal_on_the_way(self) -> bool:
        """Say whether the base key's query reads the routing item, where that lies behind all items, by itself."""
        query, journal = self._query, self._routes.journal
        return (
            journal is not None
            and not journal.is_apart
            and query.newest_first
            and query.start is None
            and query.condition is None
            and not {"FilterExpression", "IndexName"} & query.request.keys()
        )

    def _is_past_journal(self, base: _Response | None) -> bool:
        """Say whether the base key was read past the place of the routing item."""
        journal = self._routes.journal
        if base is None or journal is None:
            return False
        return base.reached is None or base.reached[0] <= journal.routing_sort_key

    def _journal_read(self) -> Callable[[], Attributes]:
        journal = self._routes.journal
        assert journal is not None  # noqa: S101  what has none is verified from the start
        return partial(
            self._requests.send_many,
            "GetItem",
            TableName=journal.table_name,
            Key=key_of_journal(journal, self._query.collection),
            ConsistentRead=self._is_strong,
        )

    def _verify(self, routing_item: Mapping[str, Any] | None) -> None:
        entry = self._sharding.read_entry(self._query.collection, routing_item)
        shown = self._routes.verify(self._query.collection, self._hint, entry, is_strong=self._is_strong)
        self._route = self._route.union(shown)
        self._is_verified = True

    @property
    def _is_strong(self) -> bool:
        return bool(self._query.request.get("ConsistentRead"))

    def _start(self) -> Place | None:
        return None if self._query.start is None else self._place_of(self._query.start)

    def _place_of(self, item: Mapping[str, Any]) -> Place:
        return tuple(order_of(item[name]) for name in self._merged_by)

    def _value_at(self, place: Place) -> Any:
        return self._key_at(place, "")[self._schema.sort]

    def _key_at(self, place: Place, partition_key: str) -> Attributes:
        values = (Binary(value) if isinstance(value, bytes) else value for value in place)
        return {self._schema.partition: partition_key, **dict(zip(self._merged_by, values, strict=True))}

    def _merge(self, responses: Sequence[_Response]) -> tuple[list[Copy], Place | None]:
        """Merge up to where all places are read: the valid copies, and the page's end (None: nothing is left)."""
        by_place: dict[Place, list[Copy]] = {}
        for response in responses:
            for copy in response.copies:
                by_place.setdefault(self._place_of(copy.item), []).append(copy)
        ends = self._sorted(response.reached for response in responses if response.reached is not None)
        end = ends[0] if ends else None
        places = [place for place in self._sorted(by_place) if end is None or not self._is_past(place, end)]
        return [sort_copies(by_place[place])[0] for place in places], end

    def _build(self, found: tuple[list[Copy], Place | None], scanned: int | None = None) -> Attributes:
        copies, end = found
        is_counted = self._query.request.get("Select") == "COUNT"
        items = {} if is_counted else {"Items": [show(self._schema, copy.item, self._hidden) for copy in copies]}
        is_filtered = "FilterExpression" in self._query.request
        response: Attributes = {
            **items,
            "Count": len(copies),
            "ScannedCount": scanned if is_filtered and scanned is not None else len(copies),
            "ResponseMetadata": self._metadata,
        }
        if self._query.bucket is not None:
            last = copies[-1].item[self._schema.sort] if copies else None
            return response | {REACHED: Reached(last if end is None else self._value_at(end), end is not None)}
        if end is not None:
            response["LastEvaluatedKey"] = self._key_at(end, self._query.collection)
        return self._requests.finish(response)

    def _sorted(self, places: Iterable[Place]) -> list[Place]:
        return sorted(places, reverse=self._query.newest_first)

    def _is_past(self, place: Place, end: Place) -> bool:
        return place < end if self._query.newest_first else place > end


_UNFILTERED = ("IndexName", "ConsistentRead", "ScanIndexForward")


def _ignoring_count(request: Attributes) -> Attributes:
    """Ask for keys where only the number of items is wanted: copies of one item count once."""
    if request.get("Select") != "COUNT":
        return request
    names = {**(request.get("ExpressionAttributeNames") or {}), "#hpt": CHANGES}
    rest = {name: value for name, value in request.items() if name != "Select"}
    return {**rest, "ProjectionExpression": "#hpt", "ExpressionAttributeNames": names}
