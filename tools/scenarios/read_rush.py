"""The read rush: everybody asks for the newest page of one conversation, with the page cache and without.

All of it is the product's own: route look-up, page cache, its Redis adapter, gatherer, merge and retries, on the
simulated table and Redis. A page costs little to simulate where the cache serves it and much where DynamoDB does, so a
rush without the cache runs at a tenth: a tenth of the pages, of the environments and of each partition's limits.

Nobody repeats a refused page, and there is no other traffic: what is refused is refused by the conversation's
partitions, or because all environments wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from hotpartition.core.errors import RetryLaterError
from hotpartition.core.freshness import COPIES
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.engine.read_cache import Cached, Key, Origin, ReadCache, ValueT
from hotpartition.redis.cluster import read_hot_key
from hotpartition.runtime.build import Parts
from hotpartition.runtime.settings import Settings
from hotpartition_messages.reading import PageRequest
from tools.figures import Bar, Outcome, at_least, at_most, latency
from tools.limits import Partitions
from tools.scenarios.seeds import total
from tools.world.clock import EPOCH_MS, Process
from tools.world.functions import FunctionConfig, TooManyRequestsError
from tools.world.network import READER
from tools.world.product import TABLE, build_control_ends
from tools.world.run import MessageRun
from tools.world.scaling import scale_reads
from tools.world.scenario import HOT, TABLE_NAME, Scenario
from tools.world.strategies import ours
from tools.world.workload import ConversationFlow, constant

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

MOST_REFUSED = 1_500
"""Within 50 ms, 2,500 pages come and 1,000 environments wait for the first read: Lambda refuses the others. One seed in
four has some, and only then."""
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

    def scenario(self) -> Scenario:
        """Build the scenario that the other parts of the simulation know it by."""
        environments = round(ENVIRONMENTS * self.scale)
        functions = FunctionConfig(concurrency=environments, warm=environments)
        first, later = constant(WRITTEN_FIRST / ONSET), constant(self.writes_per_second * self.scale)
        # Reports are as many as the load asks for; at a shorter distance, nearly each page would send one.
        settings = {"hot_at_once_rcu": scale_reads(self.scale)["hot_at_once_rcu"]}
        return Scenario(
            name=self.name,
            flows=(
                ConversationFlow(conversation_id=HOT, shape=first, body_bytes=BODY, end=ONSET),
                ConversationFlow(conversation_id=HOT, shape=later, body_bytes=BODY, start=ONSET),
            ),
            seconds=ONSET + self.seconds,
            onset=ONSET,
            table=Partitions(count=PARTITIONS, write_limit_wcu=1000.0 * self.scale, read_limit_rcu=3000.0 * self.scale),
            writers=functions,
            reading=functions,
            settings=settings,
        )


RUSHES = (
    ReadRush(
        name="cached",
        description="The newest page is asked for 50,000 times a second by 1,000 environments; N is 16.",
        seconds=4.0,
        copies=COPIES,
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


COUNTED = ("offered", "l1", "redis", "refused", "fills")
"""Of each second. Pages are counted in the second in which they were asked for."""


def observed(run: _RushRun) -> type[ReadCache[ValueT]]:
    """Build a cache that is counted by where its pages come from."""

    class ObservedCache(ReadCache[ValueT]):
        def get(self, key: Key, load: Callable[[], tuple[ValueT, float]], **limits: Any) -> Cached[ValueT]:
            second = run.second()

            def counted() -> tuple[ValueT, float]:
                read_at = run.engine.now
                run.second().fills += 1
                page, units = load()
                run.read_at[_ends(page)] = read_at
                return page, units

            cached: Cached[ValueT] = super().get(key, counted, **limits)
            second.l1 += cached.origin is Origin.L1
            second.redis += cached.origin is Origin.REDIS
            run.ages_ms.append((run.engine.now - run.read_at[_ends(cached.value)]) * 1000)
            return cached

    return ObservedCache


def _ends(page: Any) -> tuple[str, str]:
    return page.items[0].sort_key, page.items[-1].sort_key


class _RushRun(MessageRun):
    """A run in which many ask for pages."""

    def __init__(self, rush: ReadRush, seed: int) -> None:
        self.rush = rush
        self.seconds = [Outcome(**dict.fromkeys(COUNTED, 0)) for _ in range(ceil(rush.seconds))]
        self.ages_ms: list[float] = []
        self.latencies_ms: list[float] = []
        self.read_at: dict[tuple[str, str], float] = {}
        """When the last read began that gave a page, by its newest and its oldest sort key: nothing is deleted."""
        strategy = ours() if rush.is_watched else replace(ours(), start=lambda *_: None)
        super().__init__(seed, rush.scenario(), strategy)
        self.parts = Parts(read_cache=observed(self))
        self.conversation = self.scenario.hot_conversation
        self.request = PageRequest(self.conversation, limit=PAGE_LIMIT)
        self.flag = read_hot_key(TABLE_NAME, self.conversation)
        self.chance = self.random("rush")
        # A page that no cache may have served promises nothing of its age.
        cached_seconds = bound_ms() / 1000 if rush.copies or rush.is_watched else 0.0
        self.bound_seconds = cached_seconds + LAG_SECONDS

    def start(self) -> None:
        """Begin with a conversation that was raised before, and marked if the rush says so."""
        raiser = build_control_ends("raiser", TABLE.journal, self, Process(), 0).raiser
        generation = Generation(since_ms=EPOCH_MS - 60_000, shard_count=SHARD_COUNT)
        self.engine.spawn(lambda: raiser.raise_route(self.conversation, (generation,), cause=Cause("preset")))
        if self.rush.copies:
            self.redis.do("SET", self.flag, self.rush.copies)
        super().start()
        self.engine.at(ONSET, self._plan_page)

    def outcome(self) -> Outcome:
        """Let it happen, and sum it up."""
        rush, seconds = self.rush, self.seconds
        self.start()
        self.engine.run_until(self.end)
        # Without the reads that judge.
        counts, nodes = replace(self.store.counts_of(READER)), self.redis.nodes
        commands = max(max(node.commands.values(), default=0) for node in nodes)
        copies_at_end = int(self.redis.do("GET", self.flag) or 0)
        found_at = ONSET if rush.copies else self.meter.first_at.get(MetricName.DECISION_READ_HOT)
        offered, l1, redis, refused, fills = (total(seconds, name) for name in COUNTED)
        return Outcome(
            name=rush.name,
            description=rush.description,
            scale=rush.scale,
            copies=rush.copies,
            environments=self.scenario.reading.warm,
            pages_per_second=PAGES_PER_SECOND * rush.scale,
            writes_per_second=rush.writes_per_second * rush.scale,
            seconds=tuple(seconds),
            found_seconds=None if found_at is None else round(found_at - ONSET, 3),
            copies_at_end=copies_at_end,
            served_after_seconds=_served_after(seconds),
            offered=offered,
            from_l1=l1,
            from_redis=redis,
            from_dynamodb=offered - refused - l1 - redis,
            refused=refused,
            refused_share=round(refused / offered, 6),
            fills_per_second=round(fills / rush.seconds, 3),
            most_fills_in_a_second=max(second.fills for second in seconds),
            throttled_queries=counts.throttles,
            read_units_per_second=round(counts.rcu / rush.seconds, 1),
            age_ms=latency(self.ages_ms),
            latency_ms=latency(self.latencies_ms),
            busiest_node_commands_per_second=commands,
            busiest_node_share=round(commands / COMMANDS_PER_SECOND, 4),
            busiest_node_bytes_per_second=max(max(node.sent.values(), default=0) for node in nodes),
            writes_stored=len(self.meter.write_latencies_ms),
            writes_failed=self.meter.failed,
            safety=self.judge(),
        )

    def second(self) -> Outcome:
        """Find the counts of this moment."""
        return self.seconds[min(max(0, int(self.engine.now - ONSET)), len(self.seconds) - 1)]

    def _plan_page(self) -> None:
        self.engine.spawn(self._read_page)
        wait = self.chance.expovariate(PAGES_PER_SECOND * self.rush.scale)
        if self.engine.now + wait < self.scenario.seconds:
            self.engine.after(wait, self._plan_page)

    def _read_page(self) -> None:
        began, second = self.engine.now, self.second()
        second.offered += 1
        place = second.offered
        request = self.request
        try:
            page = self.reading.invoke(lambda reader: reader.read_page(request))
        except (RetryLaterError, TooManyRequestsError):
            second.refused += 1
            return
        self.latencies_ms.append((self.engine.now - began) * 1000)
        if place % JUDGED_EVERY == 0:
            self.record.note_read(request, [page], began, self.engine.now, bound_seconds=self.bound_seconds)


def run_rush(rush: ReadRush, seed: int) -> Outcome:
    """Run one rush: a pure function of its arguments."""
    with _RushRun(rush, seed) as run:
        return run.outcome()


def _served_after(seconds: Sequence[Outcome]) -> float | None:
    """Return how long after it began its last second with a refused page ended; None: it was to the end."""
    refused = max((number for number, second in enumerate(seconds, start=1) if second.refused), default=0)
    return None if refused == len(seconds) else float(refused)


def bars_of(rush: ReadRush, run: Outcome) -> list[Bar]:
    """Hold a rush against its bars: one that is cached, one that is to be found, or one without the cache."""
    name = rush.name
    oldest = at_most(f"{name}: age of what was served, longest", run.age_ms.longest, bound_ms(), "ms")
    if rush.copies:
        found, share = sum(run.safety.found.values()), run.busiest_node_share
        return [
            at_most(f"{name}: pages refused", run.refused, MOST_REFUSED, "pages"),
            at_most(f"{name}: queries throttled", run.throttled_queries, 0, "queries"),
            at_most(f"{name}: fills", run.most_fills_in_a_second, 5, "in any second"),
            at_most(f"{name}: age of what was served, p99", run.age_ms.p99, 1_200, "ms"),
            oldest,
            at_most(f"{name}: history checker's findings", found, 0, "messages"),
            at_most(f"{name}: busiest Redis node", share, 0.6, "of 100,000 commands/s"),
        ]
    if rush.is_watched:
        return [at_most(f"{name}: until all is served", run.served_after_seconds, SERVED_AFTER_SECONDS, "s"), oldest]
    return [at_least(f"{name}: share refused", run.refused_share, 0.5, "of the pages")]


def bound_ms() -> float:
    """Return how old a page may be, ms."""
    return Settings.defaults("read").page_staleness_seconds * 1000
