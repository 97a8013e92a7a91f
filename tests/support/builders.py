"""Short ways to build the values that tests are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from hotpartition.control.consumer import Consumer
from hotpartition.control.operations import Operations, OperationsLimits
from hotpartition.control.reconcile import Reconciler
from hotpartition.core.detector import Thresholds
from hotpartition.core.page_freshness import PageLimits
from hotpartition.core.read_heat import ReadThresholds
from hotpartition.core.route import Generation, Route
from hotpartition.core.sampler import LoadSampler, ReadSampler
from hotpartition.engine.counters import Adder, Summer
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.newest_pages import NewestPages
from hotpartition.engine.page_cache import PageCache
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.engine.route_cache import RouteCache, RouteSource
from hotpartition.engine.writer import Writer
from hotpartition.ports import JournalEntry
from hotpartition_messages import Message
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.counters import CounterReader, CounterWriter
from hotpartition_messages.keys import KEY_FORM, position_of
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.page_codec import MessagePageCodec
from hotpartition_messages.reading import CACHED_LIMITS, MessageReader, PageRequest
from hotpartition_messages.writing import MessageWriter, NewMessage, Written
from support.counters import FakeCounters
from support.fakes import (
    FakeClock,
    FakeJournal,
    FakeRegistry,
    FakeReports,
    FakeRoutingItems,
    FakeTable,
    FakeTelemetry,
    InlineBackground,
)
from support.page_store import FakePageStore

PAGE_LIMITS = PageLimits(ttl_ms=1_000, bound_ms=3_000)
THRESHOLDS = Thresholds(hot_at_once_wcu=1000, hot_sustained_wcu=800, target_shard_wcu=500, max_shard_count=128)

READ_THRESHOLDS = ReadThresholds(hot_at_once_rcu=1500, hot_sustained_rcu=1000, cooled_rcu=500, pages_per_copy=20_000)


def message_id(time_ms: int, tail: int = 0) -> str:
    """Build the id of an instant; `tail` tells ids of one instant apart."""
    return mint_message_id(time_ms, lambda _: tail)


def build_message(
    time_ms: int = 1_700_000_000_000, tail: int = 0, *, conversation_id: str = "c", body: str = "hello"
) -> Message:
    return Message(conversation_id, message_id(time_ms, tail), "ann", body)


def route_of(*generations: tuple[int, int]) -> Route:
    """Build a route of (shard count, since in ms) pairs."""
    return Route(frozenset(Generation(since_ms=since, shard_count=count) for count, since in generations))


@dataclass
class World:
    """A table, a Redis and a clock, with any number of writers, readers and consumers around them."""

    clock: FakeClock = field(default_factory=FakeClock)
    table: FakeTable = field(default_factory=FakeTable)
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    reports: FakeReports = field(default_factory=FakeReports)
    telemetry: FakeTelemetry = field(default_factory=FakeTelemetry)
    random: Random = field(default_factory=lambda: Random(7))
    consumers: int = 1
    routing_items: FakeRoutingItems = field(init=False)
    pages: FakePageStore = field(init=False)
    counters: FakeCounters = field(default_factory=FakeCounters)

    def __post_init__(self) -> None:
        self.pages = FakePageStore(lambda: self.clock.now_ms)
        self.routing_items = FakeRoutingItems(self.table)
        self.counters.routes = self.table.routes

    @property
    def journal(self) -> FakeJournal:
        return FakeJournal(self.table)

    def routes(self, *, ttl_seconds: float = 2.0, with_journal: bool = False) -> RouteSource:
        cache = RouteCache(ttl_seconds=ttl_seconds, max_entries=100, random=lambda: 0.0)
        journal = self.journal if with_journal else None
        return RouteSource(
            cache=cache, registry=self.registry, telemetry=self.telemetry, timer=lambda: 0.0, journal=journal
        )

    def writer(
        self,
        *,
        sampling_distance_wcu: float = 1.0,
        budget_ms: float = 300,
        ttl_seconds: float = 2.0,
        retention_days: int = 0,
    ) -> MessageWriter:
        writer = Writer(
            routes=self.routes(ttl_seconds=ttl_seconds, with_journal=True),
            sampler=LoadSampler(
                environment_id=f"e{self.random.getrandbits(32)}",
                sampling_distance_wcu=sampling_distance_wcu,
                random=self.random.random,
            ),
            reports=self.reports,
            telemetry=self.telemetry,
            clock=self.clock.as_clock(),
            budget_ms=budget_ms,
            form=KEY_FORM,
        )
        return MessageWriter(
            writer,
            self.table,
            now_ms=lambda: self.clock.now_ms,
            random_bits=self.random.getrandbits,
            retention_days=retention_days,
        )

    def changer(self, *, budget_ms: float = 300, ttl_seconds: float = 2.0) -> MessageChanger:
        messages = self.writer(budget_ms=budget_ms, ttl_seconds=ttl_seconds)
        clock = self.clock.as_clock()
        gatherer = Gatherer(
            store=self.table,
            registry=None,
            routes=messages.writer.routes,
            background=InlineBackground(),
            telemetry=self.telemetry,
            clock=clock,
            budget_ms=budget_ms,
            form=KEY_FORM,
            position_of=position_of,
        )
        return MessageChanger(messages, gatherer, telemetry=self.telemetry, clock=clock, budget_ms=budget_ms)

    def reader(
        self,
        *,
        budget_ms: float = 300,
        ttl_seconds: float = 2.0,
        environment: str | None = None,
        sampling_distance_rcu: float | None = None,
    ) -> MessageReader:
        """Build a reader; one of a named environment caches pages, one with a sampling distance counts them."""
        routes = self.routes(ttl_seconds=ttl_seconds)
        counting = None
        if sampling_distance_rcu is not None:
            sampler = ReadSampler(
                environment_id=f"r{self.random.getrandbits(32)}",
                sampling_distance_rcu=sampling_distance_rcu,
                random=self.random.random,
            )
            counting = ReadCounting(
                sampler=sampler, reports=self.reports, telemetry=self.telemetry, now_ms=lambda: self.clock.now_ms
            )
        gatherer = Gatherer(
            store=self.table,
            registry=self.registry,
            routes=routes,
            background=InlineBackground(),
            telemetry=self.telemetry,
            clock=self.clock.as_clock(),
            budget_ms=budget_ms,
            form=KEY_FORM,
            position_of=position_of,
            counting=counting,
        )
        newest = None
        if environment is not None:
            cache = PageCache(
                store=self.pages,
                codec=MessagePageCodec(),
                limits=PAGE_LIMITS,
                telemetry=self.telemetry,
                clock=self.clock.as_clock(lambda: 0.0),
                timer=lambda: self.clock.now_ms / 1000,
                environment_id=environment,
                max_entries=100,
                max_bytes=10**7,
            )
            newest = NewestPages(
                gatherer,
                routes=routes,
                cache=cache,
                limits=CACHED_LIMITS,
                counting=counting,
                now_ms=lambda: self.clock.now_ms,
            )
        return MessageReader(gatherer, now_ms=lambda: self.clock.now_ms, settle_ms=5_000, newest=newest)

    def adder(self, writer: Writer | None = None, *, budget_ms: float = 300) -> Adder:
        return Adder(
            writer or self.writer(budget_ms=budget_ms).writer,
            self.counters,
            journal=self.counters,
            form=KEY_FORM,
            clock=self.clock.as_clock(self.random.random),
            budget_ms=budget_ms,
        )

    def counter_writer(self, *, budget_ms: float = 300) -> CounterWriter:
        return CounterWriter(self.adder(budget_ms=budget_ms), "messages")

    def counter_reader(self, *, budget_ms: float = 300, ttl_seconds: float = 2.0) -> CounterReader:
        summer = Summer(
            self.counters,
            self.reader(ttl_seconds=ttl_seconds).gatherer.routes,
            has_journal=True,
            is_alone=True,
            form=KEY_FORM,
            telemetry=self.telemetry,
            clock=self.clock.as_clock(),
            budget_ms=budget_ms,
        )
        return CounterReader(summer)

    def consumer(self, thresholds: Thresholds = THRESHOLDS) -> Consumer:
        return Consumer(
            source=self.reports,
            journal=self.journal,
            routing_items=self.routing_items,
            registry=self.registry,
            telemetry=self.telemetry,
            clock=self.clock.as_clock(),
            thresholds=thresholds,
            read_thresholds=READ_THRESHOLDS,
            stream_partitions=self.reports.partitions,
            form=KEY_FORM,
        )

    def operations(self) -> Operations:
        return Operations(
            source=self.reports,
            journal=self.journal,
            routing_items=self.routing_items,
            registry=self.registry,
            telemetry=self.telemetry,
            clock=self.clock.as_clock(),
            limits=OperationsLimits(
                stream_partitions=self.reports.partitions,
                consumers=self.consumers,
                hot_sustained_wcu=THRESHOLDS.hot_sustained_wcu,
                hot_sustained_rcu=READ_THRESHOLDS.hot_sustained_rcu,
                max_shard_count=THRESHOLDS.max_shard_count,
                route_cache_seconds=2.0,
            ),
            form=KEY_FORM,
        )

    def reconciler(self) -> Reconciler:
        return Reconciler(
            journal=self.journal,
            routing_items=self.routing_items,
            registry=self.registry,
            listing=self.registry,
            telemetry=self.telemetry,
            clock=self.clock.as_clock(),
            form=KEY_FORM,
        )

    def raise_to(self, shard_count: int, since_ms: int, *, conversation_id: str = "c", in_redis: bool = True) -> None:
        """Add a generation as a raiser does: to the journal, then (unless it crashed) to Redis."""
        generation = Generation(since_ms=since_ms, shard_count=shard_count)
        known = self.table.routes.get(conversation_id, JournalEntry()).route
        self.table.routes[conversation_id] = JournalEntry(
            known.union(Route(frozenset({generation}))), self.clock.now_ms
        )
        if in_redis:
            self.registry.add(conversation_id, {generation})

    def store(self, message: Message, partition_key: str) -> None:
        """Put a message where some writer once put it."""
        item = message.to_item(partition_key)
        self.table.items[partition_key, item["sk"]["S"]] = item


def new_message(
    body: str = "hello",
    *,
    conversation_id: str = "c",
    message_id: str | None = None,
    expires_at_s: int | None = None,
) -> NewMessage:
    return NewMessage(conversation_id, "ann", body, message_id=message_id, expires_at_s=expires_at_s)


def read_all(reader: MessageReader, request: PageRequest) -> list[Message]:
    """Read all pages of a request."""
    messages: list[Message] = []
    while True:
        page = reader.read_page(request)
        messages.extend(page.messages)
        if page.next_cursor is None:
            return messages
        request = PageRequest(
            request.conversation_id,
            request.newest_first,
            request.limit,
            request.after_ms,
            request.before_ms,
            page.next_cursor,
            request.is_strong,
        )


def bodies(written: Iterable[Written]) -> list[str]:
    return [w.message.body for w in written]
