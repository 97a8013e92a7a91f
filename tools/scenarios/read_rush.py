"""The read rush: everybody asks for the newest page of one conversation, with the page cache and without.

All of it is the product's own: route look-up, page cache, its Redis adapter, gatherer, merge and retries, on the
simulated table and Redis. A page costs little to simulate where the cache serves it and much where DynamoDB does, so a
rush without the cache runs at a tenth: a tenth of the pages, of the environments and of each partition's limits.

Nobody repeats a refused page, and there is no other traffic: what is refused is refused by the conversation's
partitions, or because all environments wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from hotpartition.core.errors import RetryLaterError
from hotpartition.core.read_heat import PAGE_COPIES
from hotpartition.core.route import Generation
from hotpartition.engine.read_cache import Cached, Key, Origin, ReadCache, ValueT
from hotpartition.redis.cluster import read_hot_key
from hotpartition.runtime.settings import Settings
from hotpartition_messages.reading import PageRequest, PageResult
from tools.figures import Bar, Latency, at_least, at_most
from tools.limits import Partitions
from tools.world.clock import EPOCH_MS
from tools.world.functions import FunctionConfig, TooManyRequestsError
from tools.world.product import Parts
from tools.world.run import MessageRun, Safety
from tools.world.scaling import scale_reads
from tools.world.scenario import HOT, NAMES, TABLE_NAME, ProductSettings, Scenario
from tools.world.strategies import ours
from tools.world.workload import ConversationFlow, Workload, constant

COMMANDS_PER_SECOND = 100_000.0
"""What one Redis node serves a second, as the sources say."""
PAGES_PER_SECOND = 50_000.0
ENVIRONMENTS = 1_000
SHARD_COUNT = 16
"""The consumer's decision for this number of pages."""
PARTITIONS = 32
PAGE_LIMIT = 50
BODY = (600, 800)
WRITTEN_FIRST = 200
"""Messages that the conversation holds when the rush begins."""
ONSET = 1.0
TENTH = 0.1
JUDGED_EVERY = 397
"""Of so many pages, one is given to the history checker."""
LAG_SECONDS = 0.5
"""What an eventually consistent read may lag behind, beyond the staleness bound; in the mean it is 20 ms here."""
LOOK_SECONDS = 0.02

MOST_REFUSED = 1_500
"""Within 50 ms, 2,500 pages come and 1,000 environments wait for the first read: Lambda refuses the others. One seed in
four has some, and only then."""
MOST_FILLS_PER_SECOND = 5.0
STALENESS_P99_MS = 1_200.0
LARGEST_NODE_SHARE = 0.6
LEAST_REFUSED_SHARE = 0.5
SERVED_AFTER_SECONDS = 4.0
"""After how long all of a rush is served that nobody knew of: a second to find it, then the TTL of the routes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRush:
    """One rush.

    `copies` is what the conversation's flag says when it begins, 0: it has none. With `is_watched` a consumer sums up
    what is read, and sets the flag; without, a conversation that has none is never cached. `scale` makes load, fleet,
    partitions' limits and what counts as read-hot smaller.
    """

    name: str
    description: str
    seconds: float
    copies: int
    is_watched: bool = False
    writes_per_second: float = 0.0
    scale: float = 1.0

    @property
    def environments(self) -> int:
        """How many environments of the read function there are."""
        return round(ENVIRONMENTS * self.scale)

    @property
    def pages_per_second(self) -> float:
        """How many pages are asked for."""
        return PAGES_PER_SECOND * self.scale

    def scenario(self) -> Scenario:
        """Build the scenario that the other parts of the simulation know it by."""
        writes_per_second, limit = self.writes_per_second * self.scale, self.scale
        environments = FunctionConfig(concurrency=self.environments, warm=self.environments)
        # Reports are as many as the load asks for; at a shorter distance, nearly each page would send one.
        hot_at_once_rcu = scale_reads(self.scale)["hot_at_once_rcu"]
        consumer = Settings.defaults("consumer", **NAMES, hot_at_once_rcu=hot_at_once_rcu)
        flows = (
            ConversationFlow(conversation_id=HOT, shape=constant(WRITTEN_FIRST / ONSET), body_bytes=BODY, end=ONSET),
            ConversationFlow(conversation_id=HOT, shape=constant(writes_per_second), body_bytes=BODY, start=ONSET),
        )
        return Scenario(
            name=self.name,
            workload=Workload(flows),
            seconds=ONSET + self.seconds,
            onset=ONSET,
            table=Partitions(count=PARTITIONS, write_limit_wcu=1000.0 * limit, read_limit_rcu=3000.0 * limit),
            writers=environments,
            reading=environments,
            settings=ProductSettings(consumer=consumer),
        )


RUSHES = (
    ReadRush(
        name="cached",
        description="The newest page is asked for 50,000 times a second by 1,000 environments; N is 16.",
        seconds=4.0,
        copies=PAGE_COPIES,
        is_watched=True,
    ),
    ReadRush(
        name="found",
        description="From the moment on when the rush begins and nobody knows of it, at a tenth: pages, environments, "
        "partitions' limits and what counts as read-hot.",
        seconds=5.0,
        copies=0,
        is_watched=True,
        scale=TENTH,
    ),
    ReadRush(
        name="uncached",
        description="The same load without the page cache, at a tenth: pages, environments, partitions' limits.",
        seconds=2.0,
        copies=0,
        scale=TENTH,
    ),
)


@dataclass(slots=True)
class Second:
    """What happened in one second. Pages are counted in the second in which they were asked for."""

    offered: int = 0
    l1: int = 0
    redis: int = 0
    waited: int = 0
    refused: int = 0
    fills: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RushRun:
    """One rush as it went; docs/simulation-summary.md says what the fields mean."""

    name: str
    description: str
    scale: float
    copies: int
    environments: int
    pages_per_second: float
    writes_per_second: float
    seconds: tuple[Second, ...]
    found_seconds: float | None
    copies_at_end: int
    served_after_seconds: float | None
    offered: int
    from_l1: int
    from_redis: int
    from_waiting: int
    from_dynamodb: int
    refused: int
    refused_share: float
    fills_per_second: float
    most_fills_in_a_second: int
    throttled_queries: int
    read_units_per_second: float
    age_ms: Latency
    latency_ms: Latency
    busiest_node_commands_per_second: int
    busiest_node_share: float
    busiest_node_bytes_per_second: int
    writes_stored: int
    writes_failed: int
    safety: Safety


SAME = ("name", "description", "scale", "copies", "environments", "pages_per_second")
"""What a run says as its rush does."""


def observed(cache: type[ReadCache[ValueT]], run: _RushRun) -> type[ReadCache[ValueT]]:
    """Build a cache that is counted by where its pages come from."""

    class ObservedCache(cache):  # type: ignore[misc,valid-type]  # mypy knows no class that comes as an argument
        def get(self, key: Key, load: Callable[[], tuple[ValueT, float]], **limits: Any) -> Cached[ValueT]:
            second = run.second()

            def counted() -> tuple[ValueT, float]:
                read_at = run.engine.now
                run.second().fills += 1
                page, units = load()
                run.read_at[_content(page)] = read_at
                return page, units

            cached: Cached[ValueT] = super().get(key, counted, **limits)
            second.l1 += cached.origin is Origin.L1
            second.redis += cached.origin is Origin.REDIS
            run.ages_ms.append((run.engine.now - run.read_at[_content(cached.value)]) * 1000)
            return cached

    return ObservedCache


def _content(page: Any) -> tuple[str, ...]:
    return tuple(item.sort_key for item in page.items)


class _RushRun(MessageRun):
    """A run in which many ask for pages."""

    def __init__(self, rush: ReadRush, seed: int, parts: Parts) -> None:
        self.rush = rush
        self.seconds = [Second() for _ in range(ceil(rush.seconds))]
        self.ages_ms: list[float] = []
        self.latencies_ms: list[float] = []
        self.read_at: dict[tuple[str, ...], float] = {}
        """When the last read began that gave a page, by the sort keys on it."""
        parts = replace(parts, page_cache=observed(parts.page_cache, self))
        super().__init__(rush.scenario(), seed, ours(), parts)
        self.conversation = self.scenario.hot_conversation
        self.random = self.world.random("rush")
        self.flag = read_hot_key(TABLE_NAME, self.conversation)
        self.found_seconds: float | None = None
        self.bound_seconds = self.scenario.settings.reader.page_staleness_seconds + LAG_SECONDS

    def result(self) -> RushRun:
        """Let it happen, and sum it up."""
        engine, rush, seconds = self.engine, self.rush, self.seconds
        self._spread()
        self.start_clients()
        engine.at(ONSET, self._plan_page)
        if rush.is_watched:
            self.watch()
            engine.at(ONSET, self._look_for_flag)
        engine.run_until(self.end)
        counts, nodes = replace(self.store.page_counts), self.redis.nodes
        commands = max(max(node.commands.values(), default=0) for node in nodes)
        copies_at_end = self._copies()
        total = {name: sum(getattr(second, name) for second in seconds) for name in Second.__slots__}
        offered, refused = total["offered"], total["refused"]
        same: dict[str, Any] = {name: getattr(rush, name) for name in SAME}
        return RushRun(
            **same,
            writes_per_second=rush.writes_per_second * rush.scale,
            seconds=tuple(seconds),
            found_seconds=self.found_seconds,
            copies_at_end=copies_at_end,
            served_after_seconds=_served_after(seconds),
            offered=offered,
            from_l1=total["l1"],
            from_redis=total["redis"],
            from_waiting=total["waited"],
            from_dynamodb=offered - refused - total["l1"] - total["redis"] - total["waited"],
            refused=refused,
            refused_share=round(refused / offered, 6),
            fills_per_second=round(total["fills"] / rush.seconds, 3),
            most_fills_in_a_second=max(second.fills for second in seconds),
            throttled_queries=counts.throttles,
            read_units_per_second=round(counts.rcu / rush.seconds, 1),
            age_ms=Latency.of(self.ages_ms),
            latency_ms=Latency.of(self.latencies_ms),
            busiest_node_commands_per_second=commands,
            busiest_node_share=round(commands / COMMANDS_PER_SECOND, 4),
            busiest_node_bytes_per_second=max(max(node.sent.values(), default=0) for node in nodes),
            writes_stored=self.meter.stored_count,
            writes_failed=self.meter.failed,
            safety=self.judge(),
        )

    def second(self) -> Second:
        """Find the counts of this moment."""
        return self.seconds[min(max(0, int(self.engine.now - ONSET)), len(self.seconds) - 1)]

    def _spread(self) -> None:
        """Raise the conversation to N, and mark it read-hot, where the functions look for it."""
        generation = Generation(since_ms=EPOCH_MS - 60_000, shard_count=SHARD_COUNT)
        self.world.preset(self.conversation, generation)
        if self.rush.copies:
            self.redis.do("SET", self.flag, self.rush.copies)

    def _copies(self) -> int:
        """Return what the conversation's flag says."""
        return int(self.redis.do("GET", self.flag) or 0)

    def _look_for_flag(self) -> None:
        if self._copies():
            self.found_seconds = round(self.engine.now - ONSET, 3)
        else:
            self.engine.after(LOOK_SECONDS, self._look_for_flag)

    def _plan_page(self) -> None:
        self.engine.spawn(self._read_page)
        wait = self.random.expovariate(self.rush.pages_per_second)
        if self.engine.now + wait < self.scenario.seconds:
            self.engine.after(wait, self._plan_page)

    def _read_page(self) -> None:
        began = self.engine.now
        second = self.second()
        second.offered += 1
        place = second.offered
        request = PageRequest(self.conversation, limit=PAGE_LIMIT)
        try:
            page = self.reading.invoke(request)
        except (RetryLaterError, TooManyRequestsError):
            second.refused += 1
            return
        self.latencies_ms.append((self.engine.now - began) * 1000)
        if place % JUDGED_EVERY == 0 and isinstance(page, PageResult):
            # One that no cache may have served promises nothing of its age.
            bound = self.bound_seconds if self.rush.copies or self.rush.is_watched else LAG_SECONDS
            self.record.note_read(request, [page], began, self.engine.now, bound_seconds=bound)


def run_rush(rush: ReadRush, seed: int, parts: Parts | None = None) -> RushRun:
    """Run one rush: a pure function of its arguments. `parts` are the product's classes, some of them replaced."""
    run = _RushRun(rush, seed, parts or Parts())
    with closing(run.engine):
        return run.result()


def _served_after(seconds: Sequence[Second]) -> float | None:
    """Return how long after it began its last second with a refused page ended; None: it was to the end."""
    refused = max((number for number, second in enumerate(seconds, start=1) if second.refused), default=0)
    return None if refused == len(seconds) else float(refused)


def judge(runs: Sequence[RushRun], *, bound_ms: float) -> list[Bar]:
    """Hold runs against the bars."""
    return [bar for run in runs for bar in _bars(run, bound_ms)]


def _bars(run: RushRun, bound_ms: float) -> Iterator[Bar]:
    name = run.name
    oldest = at_most(f"{name}: age of what was served, longest", run.age_ms.longest, bound_ms, "ms")
    if run.copies:
        found, share = sum(run.safety.found.values()), run.busiest_node_share
        yield at_most(f"{name}: pages refused", run.refused, MOST_REFUSED, "pages")
        yield at_most(f"{name}: queries throttled", run.throttled_queries, 0, "queries")
        yield at_most(f"{name}: fills", run.most_fills_in_a_second, MOST_FILLS_PER_SECOND, "in any second")
        yield at_most(f"{name}: age of what was served, p99", run.age_ms.p99, STALENESS_P99_MS, "ms")
        yield oldest
        yield at_most(f"{name}: history checker's findings", found, 0, "messages")
        yield at_most(f"{name}: busiest Redis node", share, LARGEST_NODE_SHARE, "of 100,000 commands/s")
    elif run.found_seconds:
        yield at_most(f"{name}: until all is served", run.served_after_seconds, SERVED_AFTER_SECONDS, "s")
        yield oldest
    else:
        yield at_least(f"{name}: share refused", run.refused_share, LEAST_REFUSED_SHARE, "of the pages")


def bound_ms() -> float:
    """Return how old a page may be, ms."""
    return ProductSettings().reader.page_staleness_seconds * 1000


def run(seed: int, name: str) -> RushRun:
    """Run one seed of the rush of a name."""
    (rush,) = (each for each in RUSHES if each.name == name)
    return run_rush(rush, seed)
