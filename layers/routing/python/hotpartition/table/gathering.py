"""Builds responses of boto3's `query` from pages that the engine gathers.

Every place gets the owner's own query, under its own partition key and from the same start. Where one place's response
is cut at 1 MB, the page ends there, as DynamoDB's own pages do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hotpartition.core.merge import NO_LIMIT, PageMerge, PageRange
from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.expressions import ask_for_keys, project_also, wants_count
from hotpartition.table.requests import Requests
from hotpartition.table.schema import CHANGES, SHARDS, Place, order_of
from hotpartition.table.sharding import Sharding
from hotpartition.table.table_store import GENERATIONS, Query, StoredItem, TableStore


class Gathered(NamedTuple):
    """What was gathered for a page."""

    stored: Sequence[StoredItem]
    shown: list[Attributes]
    """The same items as their owner knows them."""
    scanned: int
    key: Attributes | None
    """Behind which the next page begins; None: there is none."""


def gather_page(sharding: Sharding, requests: Requests, query: Query) -> Gathered:
    """Read one page, several places at the same time.

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
    page, key = plan.page(), None
    if page.has_more and page.last is not None:
        key = query.ties.starts_behind(page.last) if query.ties else store.key_at(page.last, query.collection)
    scanned = store.scanned if "FilterExpression" in query.request else len(page.items)
    shown = [schema.show(item.attributes, hidden | query.hidden) for item in page.items]
    return Gathered(page.items, shown, scanned, key)


def _plan(sharding: Sharding, query: Query, store: TableStore) -> PageMerge[Place, StoredItem]:
    """Plan a page. A single key is asked for exactly what the owner asks for."""
    start = None if query.start is None else store.place_of(query.start)
    limit = NO_LIMIT if query.limit is None else query.limit
    return PageMerge(
        PageRange(query.collection, query.newest_first, limit, *_bounds(query), start),
        sharding.schema.form,
        lambda place: None if query.is_sorted_otherwise else sharding.position_of(place[0]),
        hashed=query.hashed,
        choices=sharding.routes.engine.choices,
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


def respond(requests: Requests, query: Query, found: Gathered) -> Attributes:
    """Build the response of boto3's `query`."""
    response: Attributes = {
        **({} if wants_count(query.request) else {"Items": found.shown}),
        "Count": len(found.shown),
        "ScannedCount": found.scanned,
        "ResponseMetadata": requests.metadata,
        **({} if found.key is None else {"LastEvaluatedKey": found.key}),
    }
    return requests.finish(response)
