"""Reconstructs the journal from the keys of stored items, by a scan of the table.

Nothing is kept between runs, and routes only grow: a run that was killed is started again, and one that is repeated
adds nothing. A scan that is strongly consistent meets whatever was acknowledged before it began. Writers that live may
still use generations that they saw in the journal that was lost, so it is repeated once they are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hotpartition.core.backoff import Clock, try_for
from hotpartition.core.capacity import Item
from hotpartition.core.errors import InvalidCollectionError, MalformedGenerationError
from hotpartition.core.keys import KeyForm
from hotpartition.core.ports import Journal
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.core.route_evidence import RouteEvidence
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.engine.raising import Raiser

REBUILT = "rebuilt"
"""Reason of a generation that was derived from stored keys."""
CALL_BUDGET_MS = 60_000.0
SCAN_ITEMS = 1_000
"""Items of one page at most, so that the pace is kept."""

Progress = Callable[[int], None]


class Clue(NamedTuple):
    """What a stored item shows beside its shard: the text that chose the shard (None: unknown), and its position."""

    hashed: str | None
    position: int


@dataclass(frozen=True, slots=True)
class ScanForm:
    """The table that is looked through. `names` are the attributes that `clue_of` needs, the keys among them."""

    table_name: str
    partition_key: str
    keys: KeyForm
    names: tuple[str, ...]
    clue_of: Callable[[Item], Clue]


@dataclass(slots=True)
class Rebuilt:
    """How much was read, and how many routes grew. `unreadable` are collections with a routing item to be repaired."""

    items: int = 0
    collections: int = 0
    grown: int = 0
    unreadable: tuple[str, ...] = ()


def scan_keys(calls: DynamoDBCalls, form: ScanForm, clock: Clock, *, units_per_second: float) -> Iterator[list[Item]]:
    """Read the keys of all items, a page at a time, with at most `units_per_second` RCU/s on average."""
    names = {f"#{index}": name for index, name in enumerate(form.names)}
    request: dict[str, Any] = {
        "TableName": form.table_name,
        "ProjectionExpression": ", ".join(names),
        "ExpressionAttributeNames": names,
        "ConsistentRead": True,
        "Limit": SCAN_ITEMS,
        "ReturnConsumedCapacity": "TOTAL",
    }
    while True:
        response = try_for(clock, CALL_BUDGET_MS, lambda: calls.call("Scan", request))
        yield response["Items"]
        start = response.get("LastEvaluatedKey")
        if not start:
            return
        request["ExclusiveStartKey"] = start
        clock.sleep(response.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0) / units_per_second)


def find_shards(items: list[Item], form: ScanForm) -> Iterator[tuple[str, int, Item]]:
    """List those items that lie on shards: of each its collection and shard."""
    for item in items:
        collection, shard_index = form.keys.parse(item[form.partition_key]["S"])
        if shard_index is not None:
            try:
                form.keys.check(collection)
            except InvalidCollectionError:
                continue  # the name of no collection
            yield collection, shard_index, item


def rebuild_journal(
    calls: DynamoDBCalls,
    form: ScanForm,
    journal: Journal,
    raiser: Raiser,
    clock: Clock,
    *,
    by: str,
    units_per_second: float,
    progress: Progress = lambda _: None,
) -> Rebuilt:
    """Add to the journal all generations that stored items need to be found.

    The record names `by`. The scan may take `units_per_second` RCU; `progress` is called with the number of items read.

    Raises:
        RetryLaterError: DynamoDB refused for a minute.
    """
    found: dict[str, RouteEvidence] = {}
    unreadable: set[str] = set()
    rebuilt = Rebuilt()

    def read_route(collection: str) -> Route:
        try:
            return try_for(clock, CALL_BUDGET_MS, lambda: journal.get(collection, is_strong=True)).route
        except MalformedGenerationError:
            unreadable.add(collection)
            return EMPTY_ROUTE

    for page in scan_keys(calls, form, clock, units_per_second=units_per_second):
        for collection, shard_index, item in find_shards(page, form):
            if collection not in found:
                found[collection] = RouteEvidence(read_route(collection))
            clue = form.clue_of(item)
            found[collection].meet(shard_index, hashed=clue.hashed, position=clue.position)
        rebuilt.items += len(page)
        progress(rebuilt.items)
    rebuilt.collections = len(found)
    rebuilt.unreadable = tuple(sorted(unreadable))
    for collection, evidence in sorted(found.items()):
        generations = evidence.conclude()
        if generations and collection not in unreadable:
            raiser.raise_route(collection, generations, cause=Cause(REBUILT, by=by))
            rebuilt.grown += 1
    return rebuilt
