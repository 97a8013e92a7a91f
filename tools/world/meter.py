"""Loads, latencies and refusals of a run, by quarter of a second, and what they come to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import inf

from hotpartition.core.metrics import MetricName
from hotpartition.core.route import Generation
from hotpartition_messages.keys import KEY_FORM
from tools.figures import Outcome, latency
from tools.world.clock import EPOCH_MS, Engine

BIN_SECONDS = 0.25
RELIEF_SHARE = 0.01
ON_SHARDS_SHARE = 0.95
PROMPT_SHARE = 0.95
PROMPT_SECONDS = 1.0


class Meter:
    """Counts, bin by bin, what DynamoDB, the product and clients report. Pages count until `pages_end`."""

    def __init__(self, engine: Engine, *, hot: str = "", seconds: float = 60.0, pages_end: float = inf) -> None:
        self._engine = engine
        self._hot = hot
        self._pages_end = pages_end
        self.bins: list[defaultdict[str, float]] = [defaultdict(int) for _ in range(round(seconds / BIN_SECONDS))]
        """What is summed up by the quarters of a second in which it was offered or happened."""
        self._known: dict[str, set[Generation]] = {}
        self._pages = {is_hot: Outcome(latencies_ms=[], failed=0, queries=0, rcu=0.0) for is_hot in (True, False)}
        self.raises: list[Outcome] = []
        """Each generation that entered the journal, in the order of time."""
        self.write_latencies_ms: list[float] = []
        self.operations = self.requests = self.puts = self.throttled_attempts = self.failed = 0
        self.routed_at: dict[str, float] = {}
        """When each conversation's routing item was last written."""
        self.put_off_keys: list[str] = []
        """The base keys of creations that are still to come, after their clients gave up."""
        self.counters: Counter[str] = Counter()
        """The product's metrics, summed over all environments."""
        self.first_at: dict[str, float] = {}
        """When each of them was counted first."""
        self.struck: Counter[str] = Counter()
        """How often each fault struck."""

    # What DynamoDB does, at the moment when it does.

    def stored(self, partition_key: str, wcu: float) -> None:
        """An item was created, or a counter added to."""
        self.puts += 1
        if self._is_hot(partition_key):
            now = self._at(self._engine.now)
            now["hot puts"] += 1
            now["hot stored"] += wcu
            now["hot on shards"] += wcu * (partition_key != self._hot)

    def refused(self, partition_key: str) -> None:
        """A write was throttled."""
        self.throttled_attempts += 1
        self._at(self._engine.now)["hot refused"] += self._is_hot(partition_key)

    def page_read(self, partition_key: str, rcu: float, *, is_query: bool) -> None:
        """A reader's request was served."""
        if self._engine.now < self._pages_end:
            pages = self._pages[self._is_hot(partition_key)]
            pages.queries += is_query
            pages.rcu += rcu

    def put_off(self, partition_key: str) -> None:
        """A write will happen late, after its client gave up waiting."""
        self.put_off_keys.append(_base_key(partition_key))

    def routed(self, partition_key: str) -> None:
        """A routing item was written."""
        self.routed_at[partition_key] = self._engine.now

    def raised(self, conversation_id: str, generations: Sequence[Generation], reason: str) -> None:
        """Generations were added to a routing item."""
        known = self._known.setdefault(conversation_id, set())
        for generation in sorted(set(generations) - known):
            self.raises.append(
                Outcome(
                    at_seconds=round(self._engine.now, 4),
                    conversation_id=conversation_id,
                    shard_count=generation.shard_count,
                    since_seconds=round((generation.since_ms - EPOCH_MS) / 1000, 3),
                    reason=reason,
                )
            )
        known.update(generations)

    # The product's `Telemetry`, of all environments.

    def count(self, metric: str, value: float = 1.0) -> None:
        """Implement `Telemetry.count`."""
        self.first_at.setdefault(metric, self._engine.now)
        self.counters[metric] += value  # type: ignore[assignment]  # floats add up as well
        if metric == MetricName.WRITES_REFUSED_EVERYWHERE:
            self._at(self._engine.now)["waited"] += 1

    def event(self, message: str, **facts: object) -> None:
        """Implement `Telemetry.event`: events are not kept."""

    def flush(self) -> None:
        """Implement `Telemetry.flush`."""

    # The clients.

    def note_offered(self, conversation_id: str, at: float, wcu: float) -> None:
        """A client began to write."""
        place = self._at(at)
        place["begun"] += 1
        place["offered"] += wcu
        place["hot offered"] += wcu if conversation_id == self._hot else 0.0

    def note_stored(self, at: float, wcu: float) -> None:
        """A client knows that what it offered at this time is stored."""
        latency_ms = (self._engine.now - at) * 1000
        self.write_latencies_ms.append(latency_ms)
        self._at(at)["prompt"] += wcu if latency_ms <= PROMPT_SECONDS * 1000 else 0.0

    def note_failed(self, at: float, wcu: float) -> None:
        """A client gave up on what it offered at this time."""
        self.failed += 1
        self._at(at)["failed"] += wcu

    def note_page(self, conversation_id: str, began: float, *, is_answered: bool = True) -> None:
        """A client got a page, or none."""
        if began < self._pages_end:
            pages = self._pages[conversation_id == self._hot]
            if is_answered:
                pages.latencies_ms.append((self._engine.now - began) * 1000)
            else:
                pages.failed += 1

    # What came out.

    @property
    def pages_failed(self) -> int:
        """How many pages no client got."""
        return sum(pages.failed for pages in self._pages.values())

    def total(self, name: str, start: float = 0.0, end: float = inf) -> float:
        """Sum up what happened, or what was offered, between two instants."""
        last = len(self.bins) if end == inf else round(end / BIN_SECONDS)
        return sum(each[name] for each in self.bins[round(start / BIN_SECONDS) : last])

    def writes(self) -> Outcome:
        """Sum the writes up."""
        offered_wcu, latencies_ms = self.total("offered"), self.write_latencies_ms
        return Outcome(
            offered=self.total("begun"),
            stored=len(latencies_ms),
            failed=self.failed,
            offered_wcu=offered_wcu,
            failed_wcu=self.total("failed"),
            requests=self.requests,
            throttled_attempts=self.throttled_attempts,
            latency_ms=latency(latencies_ms),
            waited=self.total("waited"),
            waited_seconds=round(sum(max(0.0, ms - 100) for ms in latencies_ms) / 1000, 3),
            stored_within_second_share=round(self.total("prompt") / max(offered_wcu, 1.0), 6),
        )

    def reads(self, *, hot: bool) -> Outcome:
        """Sum up the pages of the hot conversation, or of all others; queries and RCU are means of those answered."""
        read = self._pages[hot]
        pages = len(read.latencies_ms)
        return Outcome(
            pages=pages,
            failed=read.failed,
            queries_per_page=round(read.queries / max(pages, 1), 3),
            rcu_per_page=round(read.rcu / max(pages, 1), 3),
            latency_ms=latency(read.latencies_ms),
        )

    def raised_seconds(self, onset: float) -> float | None:
        """Return how long after the onset the hot conversation was first raised."""
        times = [r.at_seconds for r in self.raises if r.conversation_id == self._hot and r.at_seconds >= onset]
        return round(min(times) - onset, 4) if times else None

    def shard_counts(self) -> tuple[int, ...]:
        """Return the N of the hot conversation's raises."""
        return tuple(r.shard_count for r in self.raises if r.conversation_id == self._hot)

    def on_shards_seconds(self, onset: float) -> float | None:
        """Return how long after the onset a quarter of a second ended whose writes are on shards."""
        for index, each in enumerate(self.bins):
            end = (index + 1) * BIN_SECONDS
            if end > onset and each["hot stored"] and each["hot on shards"] >= ON_SHARDS_SHARE * each["hot stored"]:
                return round(end - onset, 4)
        return None

    def relieved_seconds(self, onset: float, end: float, *, step: float = 1.0) -> float | None:
        """Return how long after the onset the last second ended in which too many writes had to wait.

        A second begins each `step` seconds; where that is less, it counts as ended when the next one begins.
        """

        def is_bad(start: float) -> bool:
            until = min(start + 1.0, end)
            return self.total("waited", start, until) > RELIEF_SHARE * self.total("begun", start, until)

        return self._seconds_until_good(onset, end, is_bad, step)

    def prompt_seconds(self, onset: float, end: float) -> float | None:
        """Return how long after the onset the last bin ended of whose writes too few were stored within a second."""

        def is_bad(start: float) -> bool:
            until = start + BIN_SECONDS
            return self.total("prompt", start, until) < PROMPT_SHARE * self.total("offered", start, until)

        return self._seconds_until_good(onset, end, is_bad, BIN_SECONDS)

    def _seconds_until_good(
        self, onset: float, end: float, is_bad: Callable[[float], bool], step: float
    ) -> float | None:
        first, last, bins = round(onset / BIN_SECONDS), round(end / BIN_SECONDS), round(step / BIN_SECONDS)
        bad = [index * BIN_SECONDS for index in range(first, last, bins) if is_bad(index * BIN_SECONDS)]
        good = bad[-1] + step if bad else onset
        return None if good >= end else round(good - onset, 4)

    def repeated_share(self, onset: float, end: float) -> float | None:
        """Return how many puts of the hot conversation were refused once it was on shards, for each that was stored."""
        on_shards = self.on_shards_seconds(onset)
        between = (0.0, 0.0) if on_shards is None else (onset + on_shards, end)
        puts = self.total("hot puts", *between)
        return round(self.total("hot refused", *between) / puts, 6) if puts else None

    def served_share(self, start: float, end: float) -> float:
        """Return what was stored of the hot conversation between two instants, as a share of what was offered then."""
        offered = self.total("hot offered", start, end)
        return min(1.0, self.total("hot stored", start, end) / offered) if offered else 1.0

    def failed_share_after(self, time: float) -> float:
        """Return what failed of all that was offered from an instant on, as a share."""
        offered = self.total("offered", time)
        return self.total("failed", time) / offered if offered else 0.0

    def _is_hot(self, partition_key: str) -> bool:
        return _base_key(partition_key) == self._hot

    def _at(self, time: float) -> defaultdict[str, float]:
        return self.bins[min(int(time / BIN_SECONDS), len(self.bins) - 1)]


def _base_key(partition_key: str) -> str:
    return partition_key.partition(KEY_FORM.separator)[0]
