"""The interfaces that the three jobs need from outside, as Protocols.

Adapters for DynamoDB and Redis implement them in `dynamodb/` and `redis/`; the tests and the simulator bring their
own. Each says whether it fails open (the job goes on without) or closed (it does not).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol

from hotpartition.core.counter_items import Addition
from hotpartition.core.errors import RetryLaterError
from hotpartition.core.items import KeyT
from hotpartition.core.merge import ItemT, KeyQuery, QueryResponse
from hotpartition.core.metrics import MetricName
from hotpartition.core.reports import Report
from hotpartition.core.route import EMPTY_ROUTE, Close, Generation, Member, Route
from hotpartition.core.route_history import Cause, Raise

if TYPE_CHECKING:
    from hotpartition.core.fleet_load import Cell, FleetLoad  # which only functions without Redis import


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A collection's routing item: its route, and when it last grew (Unix ms; None where there is no item).

    `date_ms` is the `Date` of the response that showed it, a whole second of DynamoDB's clock as Unix ms; None where it
    had none, or was not asked for.
    """

    route: Route = EMPTY_ROUTE
    updated_at_ms: int | None = None
    date_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Fetched(Generic[KeyT, ItemT]):
    """The outcome of one round of queries, in their order; a failed one is there as its error.

    `journal` is None where it was not asked for. `hedged` is how many slow queries were sent twice. `units` is the RCU
    of the successful ones, each counted once. `item_bytes` is the size of one of the items, 0 where there is none.
    """

    responses: tuple[QueryResponse[KeyT, ItemT] | RetryLaterError, ...]
    journal: JournalEntry | RetryLaterError | None = None
    hedged: int = 0
    units: float = 0.0
    item_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Copy(Generic[ItemT]):
    """An item, and the partition key that it lies under."""

    partition_key: str
    item: ItemT


class Got(NamedTuple, Generic[ItemT]):
    """The copies that were found, and the routing items that were asked for, by collection."""

    copies: tuple[Copy[ItemT], ...]
    journals: Mapping[str, JournalEntry]


class ItemStore(Protocol[KeyT, ItemT]):
    """The items of a table. Fails closed: a page is complete or an error.

    `get` raises `ThrottledError` or `StoreUnavailableError` after one attempt.
    """

    def fetch(
        self, queries: Sequence[KeyQuery[KeyT]], *, is_strong: bool, journal_of: str | None = None
    ) -> Fetched[KeyT, ItemT]:
        """Run a round of queries at the same time, one attempt each; failures are returned, not raised.

        With `journal_of`, that collection's routing item is read in the same round and with the same consistency: for
        free when it lies behind the newest items of a base key that is among the queries, else with one more request.

        Raises:
            MalformedGenerationError: the routing item cannot be read.
        """

    def get(
        self, places: Sequence[tuple[str, KeyT]], *, is_strong: bool, journals_of: Sequence[str] = ()
    ) -> Got[ItemT]:
        """Read items by partition keys and sort keys, and the routing items of collections.

        Unprocessed keys are asked for again, never taken for absent.

        Raises:
            MalformedGenerationError: a routing item cannot be read; its `collection` is named.
        """


class CounterStore(Protocol):
    """The items of counters, to add to them. Fails closed: an addition is acknowledged only after it was made.

    Both methods make one attempt, and raise `ThrottledError` where nothing was counted.
    """

    def add(self, partition_key: str, amount: int) -> None:
        """Add to a shard's item for additions without a token.

        Raises:
            OutcomeUnknownError: it may have been counted, or not.
        """

    def add_once(self, partition_key: str, addition: Addition) -> bool:
        """Add to a cell of a shard, once under the addition's token.

        Returns:
            True when it was counted there, now or before; False when the token is bound to another request.

        Raises:
            StoreUnavailableError: it may have been counted, or not.
        """


class LoadItems(Protocol):
    """The load items of a table (`fleet_load.py`). Fails open: a sample that cannot be added is not counted."""

    def add(self, collection: str, place: int, cell: Cell, wcu: float, *, stale: Sequence[Cell] = ()) -> FleetLoad:
        """Add a sample to one of a collection's load items, take cells away from it, and return its new content.

        Raises:
            RetryLaterError: after one attempt.
            StoreRefusedError: a right is missing.
        """

    def get(self, collection: str) -> FleetLoad:
        """Add up a collection's load items; one that was never throttled has none. It raises as `add` does."""

    def add_to_bucket(
        self, collection: str, bucket: int, wcu: float, *, stale: Sequence[int] = ()
    ) -> Mapping[int, float]:
        """Add a sample of a raised collection's load to a bucket of minutes, take others away, and return the rest.

        It raises as `add` does.
        """

    def buckets(self, collection: str) -> Mapping[int, float]:
        """Return the WCU in each bucket that is kept. It raises as `add` does."""


class JournalReading(Protocol):
    """The routes as DynamoDB holds them, only to read them. Fails closed.

    Every method raises `ThrottledError` or `StoreUnavailableError` after one attempt, and
    `MalformedGenerationError` where a stored route cannot be read.
    """

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        """Read a collection's route, with its `date_ms`; a collection that was never raised has the empty one."""


class Journal(JournalReading, Protocol):
    """The routes as DynamoDB holds them: the truth. Fails closed, as `JournalReading`."""

    def add(
        self, collection: str, generations: Iterable[Generation], *, cause: Cause, now_ms: int, pause_ms: int = 0
    ) -> JournalEntry:
        """Add generations to a collection's route, and return it: idempotent, commutative, never takes anything away.

        With `pause_ms`, nothing is added to a route that has grown in so short a time before. `cause` is for operators.
        """

    def add_close(
        self, collection: str, close: Close, *, cause: Cause, now_ms: int, seen: JournalEntry | None = None
    ) -> JournalEntry | None:
        """Add one step of a close to a collection's route, as `add` adds; return the new one, with its `date_ms`.

        A confirmation leaves when and why the route last grew: it may come late, after a raise. Where it has grown
        since `seen`, nothing is added, and None returned.
        """


class ReadRoute(NamedTuple):
    """A route, and how many copies of its newest page Redis holds; 0: the collection is not read-hot."""

    route: Route
    copies: int = 0


class Registry(Protocol):
    """The routes as Redis holds them: a fast hint. Fails open: without it, the journal is asked.

    Every method raises `RegistryUnavailableError`.
    """

    def get(self, collection: str) -> Route:
        """Read a route; one that Redis does not know is empty. Members that cannot be read are left out.

        Raises:
            RegistryForeignError: the value there is not a route.
        """

    def get_for_reading(self, collection: str) -> ReadRoute:
        """Read a route as `get` does, and whether the collection is read-hot, in one round trip.

        A mark that cannot be read is ignored.
        """

    def mark_read_hot(self, collection: str) -> None:
        """Say that a collection is read-hot, for a minute (`READ_HOT_TTL_MS`): a hint, whose loss costs units only."""

    def add(self, collection: str, members: Iterable[Member]) -> None:
        """Add generations and closes. REQUIRES: they are in the journal already."""

    def mark_warm(self, collection: str, keep_ms: int) -> None:
        """Mark a collection as warm for `keep_ms` of Redis's clock; one without the mark may be closed."""

    def is_warm(self, collection: str) -> bool:
        """Say whether a collection has that mark."""

    def closing_cursor(self) -> str | None:
        """Return the cursor up to which routing items were searched for cooled ones; None: none is kept."""

    def keep_closing_cursor(self, cursor: str) -> None:
        """Keep the cursor for the next minute."""

    def count_raise(self) -> int:
        """Count a raise; return how many were counted in the present hour, by Redis's clock, this one included."""


class StoredPage(NamedTuple):
    """A cached page as text, and its read units.

    It was read under a lease that was taken at `leased_at_ms` of the store's clock (Unix ms), expires `keep_ms` after
    that, and took `cost_ms` to read.
    """

    payload: str
    leased_at_ms: int
    keep_ms: int
    cost_ms: int
    units: float


class PageStore(Protocol):
    """The cached pages as the whole fleet shares them. Fails open: without it, DynamoDB is read.

    Every method raises `RegistryUnavailableError`.
    """

    def get(self, collection: str, variant: str, copy: int) -> tuple[StoredPage, int] | None:
        """Read one copy of a page, and how long ago its lease was taken, in ms of the store's clock.

        Raises:
            MalformedPageError: the value there is not a page.
        """

    def put(self, collection: str, variant: str, page: StoredPage) -> None:
        """Store all copies of a page, in place of whatever is there. Tries each; raises if one failed."""

    def take_lease(self, collection: str, variant: str, lease_ms: int) -> int | None:
        """Take the right to read a page for all, which ends by itself, and is not given back.

        Return when it was taken, in Unix ms of the store's clock; None where another has it.
        """


@dataclass(frozen=True, slots=True)
class RoutingItem:
    """A routing item as operators see it.

    `route` is None when a generation cannot be read; `members` are the generations as stored. `raises` says what added
    them, or which operator, as far as that was recorded.
    """

    collection: str
    route: Route | None
    members: tuple[str, ...] = ()
    updated_at_ms: int | None = None
    reason: str | None = None
    raises: tuple[Raise, ...] = ()


class RoutingItems(Protocol):
    """The journal as operators look through it. Fails closed, as `Journal`; a malformed item is shown as one."""

    def read(self, collection: str) -> RoutingItem | None:
        """Read one routing item, strongly consistent; None for a collection that was never raised."""

    def page(self, cursor: str | None, limit: int) -> tuple[Sequence[RoutingItem], str | None]:
        """List the next routing items from the sparse index, which lags by DynamoDB's usual delay.

        Returns:
            At most `limit` items, and the cursor of the next page; None after the last one.

        Raises:
            InvalidRequestError: the cursor is not valid.
        """

    def newest(self, limit: int) -> Sequence[RoutingItem]:
        """List the routes that grew last, newest first, from the sparse index."""


class ReportSink(Protocol):
    """Where reports go. Fails open, returns at once: a report that cannot be sent is dropped and counted."""

    def send(self, report: Report) -> None:
        """Send a report, in the background."""

    def take_dropped(self) -> int:
        """Return how many reports were dropped since the last call."""


class StreamEntry(NamedTuple):
    """One stream entry: its id, and its text; empty if that is missing."""

    entry_id: str
    text: str


class ReportSource(Protocol):
    """The report streams as the consumer reads them, and the consumers' heartbeat.

    Fails open: while Redis is away, there is nothing to decide. Every method raises `RegistryUnavailableError`.
    """

    def read(self, partition: int, after_id: str, limit: int) -> Sequence[StreamEntry]:
        """Read entries of one stream after an id, oldest first, without waiting for more."""

    def announce(self, started_ms: int) -> None:
        """Announce a consumer, started at this time, to the others; the latest start wins."""

    def latest_start_ms(self) -> int | None:
        """Return when the latest consumer that announced itself had started, Unix ms."""


class Telemetry(Protocol):
    """Metrics and log lines. Never fails."""

    def count(self, metric: MetricName, value: float = 1.0) -> None:
        """Add to a metric."""

    def event(self, message: str, **facts: object) -> None:
        """Log something that an operator may want to know, with its facts as fields."""

    def flush(self) -> None:
        """Write the counts out; a request does so at its end, a long run now and then."""


def report_unreadable(telemetry: Telemetry, collection: str, **facts: object) -> None:
    """Report that a collection's routing item cannot be read: an operator must repair it."""
    telemetry.count(MetricName.JOURNAL_MALFORMED)
    telemetry.event("routing item cannot be read", collection=collection, **facts)


class Background(Protocol):
    """Runs small best-effort work beside the request: never waits, and drops work that it cannot take."""

    def submit(self, work: Callable[[], None]) -> bool:
        """Hand work over; return False when it was dropped because too much earlier work still runs."""
