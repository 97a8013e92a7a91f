"""Hand-written stand-ins for the ports: in memory, as strict as the real thing, and able to fail on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import InvalidRequestError, RegistryUnavailableError, RetryLaterError, ThrottledError
from hotpartition.core.merge import KeyQuery, QueryResponse
from hotpartition.core.ports import Copy, Fetched, Got, JournalEntry, ReadRoute, RoutingItem, StreamEntry
from hotpartition.core.read_heat import PAGE_COPIES
from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.core.route import Close, Generation, Member, Route
from hotpartition.core.route_history import Cause, decode_raises, encode_raises
from hotpartition.dynamodb.item_store import Replacement
from hotpartition_messages import Message
from hotpartition_messages.keys import ROUTING_SORT_KEY

KEY_RANGE_THROTTLE = ThrottledError(["TableWriteKeyRangeThroughputExceeded"])


class FakeClock:
    """A clock that only moves when it is told to; sleeping moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ms += round(seconds * 1000)
        self.on_sleep()

    def as_clock(self, random: Callable[[], float] = lambda: 0.5) -> Clock:
        return Clock(now_ms=lambda: self.now_ms, sleep=self.sleep, random=random)


def lies_within(query: KeyQuery, sort_key: str) -> bool:
    """Say whether a sort key is within a query's bounds."""
    after = query.after
    return (
        (query.first is None or sort_key >= query.first)
        and (query.last is None or sort_key <= query.last)
        and (after is None or (sort_key < after if query.newest_first else sort_key > after))
    )


@dataclass
class FakeTable:
    """Messages and routing items, with DynamoDB's rules: conditional puts, ordered queries, counted requests.

    `failures` are raised by the next calls, one each; `on_call` runs before every call and may change the world;
    `lagging` is what an eventually consistent look at a routing item sees instead of it.
    """

    items: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    routes: dict[str, JournalEntry] = field(default_factory=dict)
    lagging: dict[str, JournalEntry] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    raises: dict[str, set[str]] = field(default_factory=dict)
    failures: list[RetryLaterError | None] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    queries: list[KeyQuery] = field(default_factory=list)
    items_read: int = 0
    units_per_query: float = 0.5
    on_call: Callable[[str], None] = lambda _: None
    date_ms: Callable[[], int | None] = lambda: None
    """DynamoDB's `Date`."""

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.on_call(name)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    def create(self, item: Mapping[str, Any]) -> Message | None:
        self._call(f"put {item['pk']['S']}")
        key = (item["pk"]["S"], item["sk"]["S"])
        if key in self.items:
            return Message.from_item(self.items[key])
        self.items[key] = dict(item)
        return None

    def replace(self, replacements: Sequence[Replacement]) -> bool:
        self._call(f"replace {','.join(r.item['pk']['S'] for r in replacements)}")
        for item, expected in replacements:
            stored = self.items.get((item["pk"]["S"], item["sk"]["S"]))
            if (stored is None) != (expected is None):
                return False
            if stored and any(stored.get(name) != value for name, value in expected.items()):
                return False
        for item, _ in replacements:
            self.items[item["pk"]["S"], item["sk"]["S"]] = dict(item)
        return True

    def fetch(self, queries: Sequence[KeyQuery], *, is_strong: bool, journal_of: str | None = None) -> Fetched:
        journal: JournalEntry | RetryLaterError | None = None
        responses: list[QueryResponse | RetryLaterError] = []
        carried = False
        for query in queries:
            carries = (
                query.partition_key == journal_of and query.newest_first and query.last is None and query.after is None
            )
            carried |= carries
            try:
                self._call(f"query {query.partition_key}")
            except RetryLaterError as error:
                responses.append(error)
                journal = error if carries else journal
                continue
            self.queries.append(query)
            responses.append(self._query(query))
            if carries:
                journal = self.routes.get(query.partition_key, JournalEntry())
        if journal_of is not None and not carried:
            try:
                self._call(f"get {journal_of}")
                journal = self.routes.get(journal_of, JournalEntry())
            except RetryLaterError as error:
                journal = error
        succeeded = sum(isinstance(response, QueryResponse) for response in responses)
        return Fetched(tuple(responses), journal, units=succeeded * self.units_per_query)

    def _query(self, query: KeyQuery) -> QueryResponse:
        within = [
            Message.from_item(item)
            for (pk, sk), item in self.items.items()
            if pk == query.partition_key and sk != ROUTING_SORT_KEY and lies_within(query, sk)
        ]
        within.sort(key=lambda m: m.sort_key, reverse=query.newest_first)
        taken = within[: query.limit]
        self.items_read += len(taken)
        # Like DynamoDB: a query that stops at its limit cannot know that nothing follows.
        return QueryResponse(tuple(taken), is_exhausted=len(taken) < query.limit)

    def get(
        self, places: Sequence[tuple[str, str]], *, is_strong: bool, journals_of: Sequence[str] = ()
    ) -> Got[Message]:
        self._call(f"batch-get {','.join(partition_key for partition_key, _ in places)}")
        found = [Copy(place[0], Message.from_item(self.items[place])) for place in places if place in self.items]
        return Got(tuple(found), {name: self.routes.get(name, JournalEntry()) for name in journals_of})


class FakeJournal:
    """The journal's side of a `FakeTable`."""

    def __init__(self, table: FakeTable) -> None:
        self.table = table

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        self.table._call(f"get {collection}")
        is_lagging = not is_strong and collection in self.table.lagging
        routes = self.table.lagging if is_lagging else self.table.routes
        return replace(routes.get(collection, JournalEntry()), date_ms=self.table.date_ms())

    def add_close(
        self, collection: str, close: Close, *, cause: Cause, now_ms: int, seen: JournalEntry | None = None
    ) -> JournalEntry | None:
        self.table._call(f"update {collection}")
        known = self.table.routes.get(collection, JournalEntry())
        if seen is not None and known.updated_at_ms != seen.updated_at_ms:
            return None
        if not close.is_confirmed:
            self.table.reasons[collection] = cause.encode()
            known = replace(known, updated_at_ms=now_ms)
        entry = replace(known, route=known.route.union(Route.of([close])), date_ms=self.table.date_ms())
        self.table.routes[collection] = entry
        return entry

    def add(
        self, collection: str, generations: Iterable[Generation], *, cause: Cause, now_ms: int, pause_ms: int = 0
    ) -> JournalEntry:
        self.table._call(f"update {collection}")
        generations = list(generations)
        known = self.table.routes.get(collection, JournalEntry())
        if pause_ms and now_ms - pause_ms <= (known.updated_at_ms or 0) <= now_ms:
            return known
        self.table.reasons[collection] = cause.encode()
        self.table.raises.setdefault(collection, set()).update(encode_raises(generations, cause=cause, now_ms=now_ms))
        entry = JournalEntry(known.route.union(Route(frozenset(generations))), now_ms)
        self.table.routes[collection] = entry
        return entry


class FakeRoutingItems:
    """The routing items of a `FakeTable`, for operators; `unreadable` ones have members that are no generations."""

    def __init__(self, table: FakeTable) -> None:
        self.table = table
        self.unreadable: dict[str, tuple[str, ...]] = {}

    def read(self, collection: str) -> RoutingItem | None:
        self.table._call(f"get {collection}")
        return self._item(collection)

    def page(self, cursor: str | None, limit: int) -> tuple[Sequence[RoutingItem], str | None]:
        self.table._call("page")
        names = sorted({*self.table.routes, *self.unreadable})
        if cursor is not None and cursor not in names:
            raise InvalidRequestError.of("cursor", "should be the cursor of the last response")
        rest = [name for name in names if cursor is None or name > cursor]
        items = [item for name in rest[:limit] if (item := self._item(name))]
        return items, rest[limit - 1] if len(rest) > limit else None

    def newest(self, limit: int) -> Sequence[RoutingItem]:
        self.table._call("newest")
        items = [item for name in {*self.table.routes, *self.unreadable} if (item := self._item(name))]
        return sorted(items, key=lambda i: (i.updated_at_ms or 0, i.collection), reverse=True)[:limit]

    def _item(self, collection: str) -> RoutingItem | None:
        if collection in self.unreadable:
            return RoutingItem(collection, None, self.unreadable[collection])
        entry = self.table.routes.get(collection)
        if entry is None:
            return None
        return RoutingItem(
            collection,
            entry.route,
            tuple(sorted(entry.route.encode())),
            entry.updated_at_ms,
            self.table.reasons.get(collection),
            decode_raises(self.table.raises.get(collection, ())),
        )


class FakeRegistry:
    """Redis's sets; `is_down` makes every call fail."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.copies: dict[str, int] = {}
        self.raises = 0
        self.warm_until_ms: dict[str, int] = {}
        self.cursor: str | None = None
        self.now_ms: Callable[[], int] = lambda: 0
        self.is_down = False
        self.reads = 0

    def _check(self) -> None:
        if self.is_down:
            raise RegistryUnavailableError("down")

    def get(self, collection: str) -> Route:
        self._check()
        self.reads += 1
        return self.routes.get(collection, Route())

    def get_for_reading(self, collection: str) -> ReadRoute:
        return ReadRoute(self.get(collection), self.copies.get(collection, 0))

    def mark_read_hot(self, collection: str) -> None:
        self._check()
        self.copies[collection] = PAGE_COPIES

    def add(self, collection: str, members: Iterable[Member]) -> None:
        self._check()
        self.routes[collection] = self.routes.get(collection, Route()).union(Route.of(members))

    def mark_warm(self, collection: str, keep_ms: int) -> None:
        self._check()
        self.warm_until_ms[collection] = self.now_ms() + keep_ms

    def is_warm(self, collection: str) -> bool:
        self._check()
        return self.now_ms() < self.warm_until_ms.get(collection, -1)

    def closing_cursor(self) -> str | None:
        self._check()
        return self.cursor

    def keep_closing_cursor(self, cursor: str) -> None:
        self._check()
        self.cursor = cursor

    def count_raise(self) -> int:
        self._check()
        self.raises += 1
        return self.raises


class FakeReports:
    """Streams that writers and the consumer share."""

    def __init__(self, partitions: int = 2) -> None:
        self.partitions = partitions
        self.streams: list[list[StreamEntry]] = [[] for _ in range(partitions)]
        self.sent: list[Report] = []
        self.latest: int | None = None
        self.is_down = False
        self.away: set[int] = set()
        """Streams whose node does not respond."""
        self._sequence = 0

    def _check(self) -> None:
        if self.is_down:
            raise RegistryUnavailableError("down")

    def send(self, report: Report) -> None:
        self.sent.append(report)
        partition = stream_partition_of(report.collection, self.partitions)
        self.append(partition, report.encode(), (report.slot + 1) * 250)

    def append(self, partition: int, text: str, at_ms: int) -> None:
        self._sequence += 1
        self.streams[partition].append(StreamEntry(f"{at_ms}-{self._sequence}", text))

    def take_dropped(self) -> int:
        return 0

    def read(self, partition: int, after_id: str, limit: int) -> Sequence[StreamEntry]:
        self._check()
        if partition in self.away:
            raise RegistryUnavailableError("away")
        after = _parse_entry_id(after_id)
        return [e for e in self.streams[partition] if _parse_entry_id(e.entry_id) > after][:limit]

    def announce(self, started_ms: int) -> None:
        self._check()
        self.latest = max(started_ms, self.latest or 0)

    def latest_start_ms(self) -> int | None:
        self._check()
        return self.latest


def _parse_entry_id(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


class FakeTelemetry:
    """Remembers what was counted and logged."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}
        self.events: list[tuple[str, dict[str, object]]] = []

    def count(self, metric: str, value: float = 1.0) -> None:
        self.counts[metric] = self.counts.get(metric, 0.0) + value

    def event(self, message: str, **facts: object) -> None:
        self.events.append((message, facts))

    def flush(self) -> None:
        """Nothing is held back."""


class InlineBackground:
    """Does background work at once."""

    def submit(self, work: Callable[[], None]) -> bool:
        work()
        return True
