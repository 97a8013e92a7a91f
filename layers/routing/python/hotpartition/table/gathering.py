"""Builds responses of boto3's `query` from pages that the engine gathers.

Every place gets the owner's own query, under its own partition key and from the same start. Where one place's response
is cut at 1 MB, the page ends there, as DynamoDB's own pages do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hotpartition.core.merge import NO_LIMIT, Page, PageMerge, PageRange
from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.expressions import ask_for_keys, project_also, wants_count
from hotpartition.table.requests import Requests
from hotpartition.table.schema import CHANGES, SHARDS, Place, Schema, order_of
from hotpartition.table.sharding import Sharding
from hotpartition.table.table_store import GENERATIONS, Query, StoredItem, TableStore

REACHED = "hp_reached"
"""In the response of a bucket's query: how far it was read."""


class Reached(NamedTuple):
    """The sort key of the last item that a bucket's query found (None: none), and whether the bucket has more."""

    sort_value: Any
    is_more: bool


def read_page(sharding: Sharding, requests: Requests, query: Query) -> Attributes:
    """Read one page, several places at the same time, and build the response of boto3's `query` for it.

    Raises:
        ClientError: as boto3's.
        ThrottledError: DynamoDB refused one of the places for the whole budget.
        MalformedGenerationError: the routing item cannot be read.
    """
    schema, routes = sharding.schema, sharding.routes
    # An index may hold no more than its keys.
    counted = () if "IndexName" in query.request else (CHANGES, SHARDS)
    generations = (GENERATIONS,) if query.may_pass_journal(routes.journal) else ()
    kept = {schema.partition, *counted, *query.sorted_by(schema), *generations}
    options, hidden = project_also(ask_for_keys(query.request, schema.partition), kept)
    route = routes.get(query.collection)
    store = TableStore(sharding, requests, options, query=query, is_raised=bool(route))
    plan = _plan(sharding, query, store)
    sharding.gatherer(store).run(plan, query.collection, is_strong=query.is_strong, hint=route)
    return requests.finish(_build(schema, requests, query, store, plan.page(), hidden | query.hidden))


def _plan(sharding: Sharding, query: Query, store: TableStore) -> PageMerge[Place, StoredItem]:
    """Plan a page. A single key is asked for exactly what the owner asks for."""
    start = None if query.start is None else store.place_of(query.start)
    limit = NO_LIMIT if query.limit is None else query.limit
    return PageMerge(
        PageRange(query.collection, query.newest_first, limit, *_bounds(query), start),
        sharding.schema.form,
        lambda place: None if query.is_sorted_otherwise else sharding.position_of(place[0]),
        hashed=query.hashed,
        choices=sharding.routes.choices,
        present=sharding.table.clock.now_ms(),
        item_bytes=sharding.sizes.mean_bytes,
        is_filtered="FilterExpression" in query.request,
        looks_ahead=False,
    )


def _bounds(query: Query) -> tuple[Place | None, Place | None]:
    """Return the bounds of all wanted items, inclusive."""
    condition = query.condition
    if condition is None or query.is_sorted_otherwise:
        return None, None
    first, last = order_of(condition.operands[0]), order_of(condition.operands[-1])
    match condition.operator:
        case "=" | "BETWEEN":
            return (first,), (last,)
        case "<" | "<=":
            return None, (last,)
        case _:
            return (first,), None


def _build(
    schema: Schema,
    requests: Requests,
    query: Query,
    store: TableStore,
    page: Page[Place, StoredItem],
    hidden: frozenset[str],
) -> Attributes:
    """Build the response of boto3's `query`."""
    shown = [schema.show(item.attributes, hidden) for item in page.items]
    response: Attributes = {
        **({} if wants_count(query.request) else {"Items": shown}),
        "Count": len(page.items),
        "ScannedCount": store.scanned if "FilterExpression" in query.request else len(page.items),
        "ResponseMetadata": requests.metadata,
    }
    end = page.last if page.has_more else None
    if query.bucket is not None:
        last = page.items[-1].attributes[schema.sort] if page.items else None
        at_end = None if end is None else store.key_at(end, "")[schema.sort]
        response[REACHED] = Reached(last if end is None else at_end, end is not None)
    elif end is not None and query.ties is not None:
        response["LastEvaluatedKey"] = query.ties.starts_behind(end)
    elif end is not None:
        response["LastEvaluatedKey"] = store.key_at(end, query.collection)
    return response
