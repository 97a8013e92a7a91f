"""Builds responses of boto3's `query` from pages that the engine gathers.

Every place gets the owner's own query, under its own partition key and from the same start. Where one place's response
is cut at 1 MB, the page ends there, as DynamoDB's own pages do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import (
    NO_LIMIT,
    EachOnce,
    KeyQuery,
    Page,
    PageMerge,
    PageRange,
    Plan,
    PositionOf,
    QueryResponse,
)
from hotpartition.core.route import Route
from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.expressions import project_also
from hotpartition.table.item_store import GENERATIONS, Query, StoredItem, TableStore
from hotpartition.table.requests import Requests
from hotpartition.table.schema import CHANGES, SHARDS, Place, order_of
from hotpartition.table.sharding import Sharding

REACHED = "hp_reached"
"""In the response of a bucket's query: how far it was read."""


class Reached(NamedTuple):
    """The sort key of the last item that a bucket's query found (None: none), and whether the bucket has more."""

    sort_value: Any
    is_more: bool


def read_page(sharding: Sharding, requests: Requests, query: Query) -> Attributes:
    """Read one page, several places at the same time.

    Raises:
        ClientError: as boto3's.
        ThrottledError: DynamoDB refused one of the places for the whole budget.
        MalformedGenerationError: the routing item cannot be read.
    """
    return _Reading(sharding, requests, query).page()


class _PagePlan:
    """`Plan` of a page: with a limit as `PageMerge` plans it; without one, or once a response was cut, each key once.

    A single key is asked for exactly what the owner asks for. With a filter, a limit counts what is looked at: each key
    is asked once for as much, and the page ends where the first of them was read to.
    """

    def __init__(
        self, merge: PageMerge[Place, StoredItem], once: EachOnce[Place, StoredItem], *, is_filtered: bool
    ) -> None:
        self._merge = merge
        self._once = once
        self._is_cut = is_filtered or once.range.limit == NO_LIMIT
        self._is_of_one_key = False

    def next_queries(self, route: Route) -> list[KeyQuery[Place]]:
        """Implement `Plan.next_queries`."""
        self._is_of_one_key = len(self._once.keys(route)) == 1
        return self._once.next_queries(route) if self._asks_once else self._merge.next_queries(route)

    def add(self, query: KeyQuery[Place], response: QueryResponse[Place, StoredItem]) -> None:
        """Implement `Plan.add`."""
        self._is_cut |= response.is_cut
        self._once.add(query, response)
        self._merge.add(query, response)

    def forget(self, key: str) -> None:
        """Implement `Plan.forget`."""
        self._once.forget(key)
        self._merge.forget(key)

    def page(self) -> Page[Place, StoredItem]:
        """Build the page."""
        return self._once.page() if self._asks_once else self._merge.page()

    @property
    def _asks_once(self) -> bool:
        return self._is_cut or self._is_of_one_key


class _Reading:
    """One page under way."""

    def __init__(self, sharding: Sharding, requests: Requests, query: Query) -> None:
        self._sharding = sharding
        self._schema = sharding.schema
        self._requests = requests
        self._query = query
        self._route = self._sharding.routes.get(query.collection)
        # An index may hold no more than its keys.
        counted = () if "IndexName" in query.request else (CHANGES, SHARDS)
        generations = (GENERATIONS,) if query.may_pass_journal(self._sharding.routes.journal) else ()
        kept = {self._schema.partition, *counted, *query.sorted_by(self._schema), *generations}
        asked, hidden = project_also(_ignoring_count(query.request), kept)
        self._hidden = hidden | query.hidden
        self._store = self._open_store(asked)
        start = None if query.start is None else self._store.place_of(query.start)
        self._range = PageRange(query.collection, query.newest_first, query.limit or NO_LIMIT, *self._bounds(), start)

    def page(self) -> Attributes:
        """Read the page, and build the response of boto3's `query` for it."""
        plan = self._plan()
        self._run(plan)
        return self._build(plan.page())

    def _open_store(self, options: Attributes) -> TableStore:
        return TableStore(
            self._sharding,
            self._requests,
            options,
            query=self._query,
            is_raised=bool(self._route),
        )

    def _plan(self) -> _PagePlan:
        merge: PageMerge[Place, StoredItem] = PageMerge(self._range, *self._planning)
        once: EachOnce[Place, StoredItem] = EachOnce(self._range, *self._planning)
        return _PagePlan(merge, once, is_filtered="FilterExpression" in self._query.request)

    @property
    def _planning(self) -> tuple[KeyForm, PositionOf[Place], str | None, int, int]:
        sharding = self._sharding
        present = sharding.clock.now_ms()
        return self._schema.form, self._position_of, self._query.hashed, sharding.routes.choices, present

    def _run(self, plan: Plan[Place, StoredItem]) -> None:
        gatherer = self._sharding.gatherer(self._store)
        gatherer.run(plan, self._query.collection, is_strong=self._query.is_strong, hint=self._route)

    def _bounds(self) -> tuple[Place | None, Place | None]:
        """Return the bounds of all wanted items, inclusive."""
        condition = self._query.condition
        if condition is None or self._query.is_sorted_otherwise:
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
        return None if self._query.is_sorted_otherwise else self._sharding.position_of(place[0])

    def _build(self, page: Page[Place, StoredItem]) -> Attributes:
        is_counted = self._query.request.get("Select") == "COUNT"
        shown = [self._schema.show(item.attributes, self._hidden) for item in page.items]
        response: Attributes = {
            **({} if is_counted else {"Items": shown}),
            "Count": len(page.items),
            "ScannedCount": self._store.scanned if "FilterExpression" in self._query.request else len(page.items),
            "ResponseMetadata": self._store.metadata,
        }
        end = page.last if page.has_more else None
        if self._query.bucket is not None:
            last = page.items[-1].attributes[self._schema.sort] if page.items else None
            at_end = None if end is None else self._store.key_at(end, "")[self._schema.sort]
            return response | {REACHED: Reached(last if end is None else at_end, end is not None)}
        if end is not None and self._query.ties is not None:
            response["LastEvaluatedKey"] = self._query.ties.starts_behind(end)
        elif end is not None:
            response["LastEvaluatedKey"] = self._store.key_at(end, self._query.collection)
        return self._requests.finish(response)


def _ignoring_count(request: Attributes) -> Attributes:
    """Ask for keys where only the number of items is wanted: copies of one item count once."""
    if request.get("Select") != "COUNT":
        return request
    names = {**(request.get("ExpressionAttributeNames") or {}), "#hpt": CHANGES}
    rest = {name: value for name, value in request.items() if name != "Select"}
    return {**rest, "ProjectionExpression": "#hpt", "ExpressionAttributeNames": names}
