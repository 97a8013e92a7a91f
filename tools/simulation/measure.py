"""What is seen of a run while it goes on, and the result that comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hotpartition.core.route import EMPTY_ROUTE, Generation, Route
from hotpartition_messages.keys import KEY_FORM
from tools.quantiles import nearest_rank
from tools.simulation.engine import EPOCH_MS, Engine
from tools.simulation.phases import PROMPT_SECONDS, Phases
from tools.simulation.results import Latency, Raise, Reads, Series, Writes
from tools.simulation.store import Observer

BIN_SECONDS = 0.25
RELIEF_SHARE = 0.01
ON_SHARDS_SHARE = 0.95
PROMPT_SHARE = 0.95


@dataclass(slots=True)
class _Bin:
    """A quarter of a second."""

    offered: float = 0.0
    stored: float = 0.0
    failed: float = 0.0
    throttled: float = 0.0
    hot_refused: int = 0
    hot_stored_count: int = 0
    begun: int = 0
    waited: int = 0
    prompt: float = 0.0
    table: float = 0.0
    hot_offered: float = 0.0
    hot_stored: float = 0.0
    hot_on_shards: float = 0.0
    shard_count: int = 0
    reports: int = 0
    latencies_ms: list[float] = field(default_factory=list)


class Meter(Observer):
    """Counts, bin by bin; also the table's `Observer`."""

    def __init__(self, engine: Engine, *, hot_conversation: str, seconds: float, phases: Phases) -> None:
        self._engine = engine
        self._hot = hot_conversation
        self._phases = phases
        self._bins = [_Bin() for _ in range(round(seconds / BIN_SECONDS))]
        self._routes: dict[str, Route] = {}
        self.raises: list[Raise] = []
        self.write_latencies_ms: list[float] = []
        self.page_latencies_ms: list[float] = []
        self.offered = self.stored_count = self.failed = self.requests = self.throttled_attempts = self.waited_count = 0
        self.offered_wcu = self.failed_wcu = 0.0
        self.pages_failed = 0
        self.operations = 0

    # The table's observer.

    def stored(self, partition_key: str, wcu: float) -> None:
        """Implement `Observer.stored`."""
        now = self._now()
        now.table += wcu
        base_key, separator, _ = partition_key.partition(KEY_FORM.separator)
        if base_key == self._hot:
            now.hot_stored_count += 1
            now.hot_stored += wcu
            now.hot_on_shards += wcu if separator else 0.0

    def refused(self, partition_key: str, wcu: float) -> None:
        """Implement `Observer.refused`."""
        now = self._now()
        self.throttled_attempts += 1
        now.throttled += wcu
        now.hot_refused += partition_key.partition(KEY_FORM.separator)[0] == self._hot

    def page_read(self, partition_key: str, rcu: float, *, is_query: bool) -> None:
        """Implement `Observer.page_read`."""
        if tally := self._phases.of(partition_key.partition(KEY_FORM.separator)[0], self._engine.now):
            tally.queries += is_query
            tally.rcu += rcu

    def waited(self) -> None:
        """Implement `Observer.waited`."""
        self.waited_count += 1
        self._now().waited += 1

    def raised(self, conversation_id: str, generations: Sequence[Generation], reason: str) -> None:
        """Implement `Observer.raised`."""
        known = self._routes.get(conversation_id, EMPTY_ROUTE)
        for generation in sorted(set(generations) - known.generations):
            self.raises.append(
                Raise(
                    at_seconds=round(self._engine.now, 4),
                    conversation_id=conversation_id,
                    shard_count=generation.shard_count,
                    since_seconds=round((generation.since_ms - EPOCH_MS) / 1000, 3),
                    reason=reason,
                )
            )
        self._routes[conversation_id] = known.union(Route(frozenset(generations)))
        if conversation_id == self._hot:
            self._now().shard_count = self._routes[conversation_id].max_shard_count

    # The clients.

    def note_offered(self, conversation_id: str, at: float, wcu: float) -> None:
        """A client began to write."""
        self.offered += 1
        self.offered_wcu += wcu
        place = self._at(at)
        place.begun += 1
        place.offered += wcu
        place.hot_offered += wcu if conversation_id == self._hot else 0.0
        if tally := self._phases.of(conversation_id, at):
            tally.writes += 1
            tally.offered_wcu += wcu

    def note_acknowledged(self, conversation_id: str, at: float, wcu: float) -> None:
        """A client was answered that what it offered at this time is stored, or will be."""
        if tally := self._phases.of(conversation_id, at):
            tally.acknowledged.append(((self._engine.now - at) * 1000, wcu))

    def note_stored(self, conversation_id: str, at: float, wcu: float) -> None:
        """What a client offered at this time is stored, and the client was told so."""
        latency_ms = (self._engine.now - at) * 1000
        self.stored_count += 1
        self.write_latencies_ms.append(latency_ms)
        place = self._at(at)
        place.stored += wcu
        place.latencies_ms.append(latency_ms)
        is_prompt = latency_ms <= PROMPT_SECONDS * 1000
        place.prompt += wcu if is_prompt else 0.0
        if tally := self._phases.of(conversation_id, at):
            tally.stored.append((latency_ms, wcu))
            tally.prompt_wcu += wcu if is_prompt else 0.0

    def note_failed(self, conversation_id: str, at: float, wcu: float) -> None:
        """A client gave up on what it offered at this time."""
        self.failed += 1
        self.failed_wcu += wcu
        self._at(at).failed += wcu
        if tally := self._phases.of(conversation_id, at):
            tally.failed_wcu += wcu

    def note_page(self, conversation_id: str, began: float) -> None:
        """A client got a page."""
        latency_ms = (self._engine.now - began) * 1000
        self.page_latencies_ms.append(latency_ms)
        if tally := self._phases.of(conversation_id, began):
            tally.page_ms.append(latency_ms)

    def note_failed_page(self, conversation_id: str, began: float) -> None:
        """A client got no page."""
        self.pages_failed += 1
        if tally := self._phases.of(conversation_id, began):
            tally.pages_failed += 1

    def note_report(self) -> None:
        """A report reached the stream."""
        self._now().reports += 1

    # What came out.

    def writes(self) -> Writes:
        """Sum the writes up."""
        return Writes(
            offered=self.offered,
            stored=self.stored_count,
            failed=self.failed,
            offered_wcu=self.offered_wcu,
            failed_wcu=self.failed_wcu,
            requests=self.requests,
            throttled_attempts=self.throttled_attempts,
            latency_ms=Latency.of(self.write_latencies_ms),
            waited=self.waited_count,
        )

    def reads(self, *, queries: int, items: int, rcu: float) -> Reads:
        """Sum the reads up."""
        pages = len(self.page_latencies_ms)
        each = max(pages, 1)
        return Reads(
            pages=pages,
            failed=self.pages_failed,
            queries_per_page=round(queries / each, 3),
            items_per_page=round(items / each, 3),
            rcu_per_page=round(rcu / each, 3),
            latency_ms=Latency.of(self.page_latencies_ms),
        )

    def series(self) -> Series:
        """List the run over time."""
        counts, highest = [], 0
        for each in self._bins:
            highest = max(highest, each.shard_count)
            counts.append(highest)
        return Series(
            bin_seconds=BIN_SECONDS,
            offered_wcu=tuple(b.offered for b in self._bins),
            stored_wcu=tuple(b.stored for b in self._bins),
            prompt_wcu=tuple(b.prompt for b in self._bins),
            on_shards_wcu=tuple(b.hot_on_shards for b in self._bins),
            failed_wcu=tuple(b.failed for b in self._bins),
            throttled_wcu=tuple(b.throttled for b in self._bins),
            table_wcu=tuple(round(b.table, 3) for b in self._bins),
            shard_count=tuple(counts),
            reports=tuple(b.reports for b in self._bins),
            write_p99_ms=tuple(_p99(b.latencies_ms) for b in self._bins),
        )

    def raised_seconds(self, onset: float) -> float | None:
        """Return how long after the onset the hot conversation was first raised."""
        times = [r.at_seconds for r in self.raises if r.conversation_id == self._hot and r.at_seconds >= onset]
        return round(min(times) - onset, 4) if times else None

    def on_shards_seconds(self, onset: float) -> float | None:
        """Return how long after the onset a quarter of a second ended whose writes are on shards."""
        for index, each in enumerate(self._bins):
            end = (index + 1) * BIN_SECONDS
            if end > onset and each.hot_stored and each.hot_on_shards >= ON_SHARDS_SHARE * each.hot_stored:
                return round(end - onset, 4)
        return None

    def relieved_seconds(self, onset: float, end: float) -> float | None:
        """Return how long after the onset the last second ended in which too many writes had to wait."""

        def is_bad(second: Sequence[_Bin]) -> bool:
            return sum(b.waited for b in second) > RELIEF_SHARE * sum(b.begun for b in second)

        return self._seconds_until_good(onset, end, is_bad, bins=round(1 / BIN_SECONDS))

    def prompt_seconds(self, onset: float, end: float) -> float | None:
        """Return how long after the onset the last bin ended of whose writes too few were stored within a second."""

        def is_bad(bins: Sequence[_Bin]) -> bool:
            return sum(b.prompt for b in bins) < PROMPT_SHARE * sum(b.offered for b in bins)

        return self._seconds_until_good(onset, end, is_bad, bins=1)

    def _seconds_until_good(
        self, onset: float, end: float, is_bad: Callable[[Sequence[_Bin]], bool], *, bins: int
    ) -> float | None:
        first, last = round(onset / BIN_SECONDS), round(end / BIN_SECONDS)
        good = onset
        for start in range(first, last, bins):
            if is_bad(self._bins[start : min(start + bins, last)]):
                good = (start + bins) * BIN_SECONDS
        return None if good >= end else round(good - onset, 4)

    def repeated_share(self, onset: float, end: float) -> float | None:
        """Return how many puts of the hot conversation were refused once it was on shards, for each that was stored."""
        on_shards = self.on_shards_seconds(onset)
        if on_shards is None:
            return None
        within = self._bins[round((onset + on_shards) / BIN_SECONDS) : round(end / BIN_SECONDS)]
        stored = sum(b.hot_stored_count for b in within)
        return round(sum(b.hot_refused for b in within) / stored, 6) if stored else None

    def served_share(self, start: float, end: float) -> float:
        """Return what was stored of the hot conversation between two instants, as a share of what was offered then."""
        bins = self._bins[round(start / BIN_SECONDS) : round(end / BIN_SECONDS)]
        offered = sum(b.hot_offered for b in bins)
        return min(1.0, sum(b.hot_stored for b in bins) / offered) if offered else 1.0

    def failed_share_after(self, time: float) -> float:
        """Return what failed of all that was offered from an instant on, as a share."""
        late = self._bins[round(time / BIN_SECONDS) :]
        offered = sum(b.offered for b in late)
        return sum(b.failed for b in late) / offered if offered else 0.0

    def _now(self) -> _Bin:
        return self._at(self._engine.now)

    def _at(self, time: float) -> _Bin:
        return self._bins[min(int(time / BIN_SECONDS), len(self._bins) - 1)]


def _p99(latencies_ms: list[float]) -> float:
    return round(nearest_rank(sorted(latencies_ms), 0.99), 3) if latencies_ms else 0.0
