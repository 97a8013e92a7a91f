"""Short ways to build the values that tests are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from random import Random
from typing import TypeVar

from hotpartition.control.consumer import Consumer
from hotpartition.control.cooling import CoolingLimits
from hotpartition.control.ends import ControlEnds
from hotpartition.control.operations import Operations
from hotpartition.control.reconcile import Reconciler
from hotpartition.core.detector import Thresholds
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Generation, Route
from hotpartition.engine.counters import Adder, Summer
from hotpartition.runtime.build import Ends, build_engine
from hotpartition.runtime.build_control import build_operations
from hotpartition.runtime.settings import Settings
from hotpartition_messages import Message, jobs
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.reading import MessageReader, PageRequest
from hotpartition_messages.settings import MessageSettings
from hotpartition_messages.writing import MessageWriter, NewMessage
from support.fakes import FakeClock, FakeTelemetry, InlineBackground
from support.world import Pages, Registry, Reports, Table

THRESHOLDS = Thresholds(hot_at_once_wcu=1000, hot_sustained_wcu=800, target_shard_wcu=500, max_shard_count=128)


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


PageT = TypeVar("PageT")


def settings_of(function: str, *, ttl_seconds: float = 2.0, budget_ms: float = 300, **values: float) -> MessageSettings:
    """Build a function's settings; these two may be out of their ranges."""
    settings = MessageSettings.defaults(function, **values)
    vars(settings).update(route_cache_seconds=ttl_seconds, request_budget_ms=budget_ms)
    return settings


class World:
    """A table, a Redis and a clock, with any number of writers, readers and consumers around them."""

    def __init__(self, clock: FakeClock | None = None, table: Table | None = None, partitions: int = 2) -> None:
        self.clock, self.table = clock or FakeClock(), table or Table()
        self.telemetry, self.random = FakeTelemetry(), Random(7)
        self.registry, self.reports = Registry(self.clock), Reports(self.clock, partitions)
        self.pages = Pages(self.clock)
        self.table.now_ms = lambda: self.clock.now_ms
        self.table.date_ms = lambda: self.clock.now_ms // 1000 * 1000
        self.journal, self.routing_items = self.table.journal, self.table.routing_items

    def ends(self, environment: str | None = None, random: Callable[[], float] = lambda: 0.5, **values: object) -> Ends:
        """Build what an engine stands on."""
        usual = {"registry": self.registry, "repairs": self.registry, "reports": self.reports, "page_store": self.pages}
        usual |= {"clock": self.clock.as_clock(random), "timer": lambda: self.clock.now_ms / 1000}
        return Ends(
            background=InlineBackground(),
            telemetry=self.telemetry,
            environment_id=environment or f"e{self.random.getrandbits(32)}",
            **{**usual, **values},
        )

    def writer(self, **values: float) -> MessageWriter:
        """Build the write function's job; `values` are as `settings_of` takes them."""
        settings = settings_of("write", **{"sampling_distance_wcu": 1.0, **values})
        engine = build_engine(self.ends(repairs=None, journal=self.journal), settings, form=KEY_FORM)
        return jobs.build_writer(engine, self.table, settings, random_bits=self.random.getrandbits)

    def reader(
        self, *, environment: str | None = None, sampling_distance_rcu: float | None = None, **values: float
    ) -> MessageReader:
        """Build a reader; one of a named environment caches pages, one with a sampling distance counts them."""
        settings = settings_of("read", **values)
        distance_rcu = sampling_distance_rcu or inf
        vars(settings).update(page_cache=bool(environment), read_sampling_distance_rcu=distance_rcu)
        ends = self.ends(environment, self.random.random if sampling_distance_rcu else lambda: 0.5)
        return jobs.build_reader(build_engine(ends, settings, form=KEY_FORM), self.table, settings)

    def adder(self, *, budget_ms: float = 300) -> Adder:
        parts = {"journal": self.journal, "form": KEY_FORM, "clock": self.clock.as_clock(self.random.random)}
        return Adder(self.writer(budget_ms=budget_ms).writer, self.table.counters, budget_ms=budget_ms, **parts)

    def summer(self) -> Summer:
        engine = build_engine(self.ends(), settings_of("read"), form=KEY_FORM)
        return Summer(engine.gatherer(store=self.table.cells), is_alone=True, form=KEY_FORM)

    def control_ends(self) -> ControlEnds:
        return ControlEnds(
            source=self.reports,
            journal=self.journal,
            routing_items=self.routing_items,
            registry=self.registry,
            telemetry=self.telemetry,
            clock=self.clock.as_clock(),
            elapsed=lambda: self.clock.now_ms / 1000,
            form=KEY_FORM,
        )

    def consumer(self, *, max_raises_per_hour: int = 1_000, cooling: CoolingLimits | None = None) -> Consumer:
        return Consumer(
            self.control_ends(),
            thresholds=THRESHOLDS,
            hot_at_once_rcu=1500,
            stream_partitions=self.reports.partitions,
            max_raises_per_hour=max_raises_per_hour,
            cooling=cooling,
        )

    def operations(self, **values: object) -> Operations:
        partitions = self.reports.partitions
        settings = Settings.defaults("operate", stream_partitions=partitions, **values)
        return build_operations(self.control_ends(), settings)

    def reconciler(self) -> Reconciler:
        return Reconciler(self.control_ends())

    def raise_to(self, shard_count: int, since_ms: int, *, conversation_id: str = "c", in_redis: bool = True) -> None:
        """Add a generation as a raiser does: to the journal, then (unless it crashed) to Redis."""
        generation = Generation(since_ms=since_ms, shard_count=shard_count)
        known = self.table.routes.get(conversation_id, JournalEntry()).route
        raised = JournalEntry(known.union(Route(frozenset({generation}))), self.clock.now_ms)
        self.table.routes[conversation_id] = raised
        if in_redis:
            self.registry.add(conversation_id, {generation})

    def store(self, message: Message, partition_key: str) -> None:
        """Put a message where some writer once put it."""
        item = message.to_item(partition_key)
        self.table.items[partition_key, item["sk"]["S"]] = item


def new_message(body: str = "hello", *, conversation_id: str = "c", message_id: str | None = None) -> NewMessage:
    return NewMessage(conversation_id, "ann", body, message_id=message_id)


def read_all(reader: MessageReader, request: PageRequest) -> list[Message]:
    """Read all pages of a request."""

    def read(cursor: str | None) -> tuple[tuple[Message, ...], str | None]:
        page = reader.read_page(replace(request, cursor=cursor))
        return page.messages, page.next_cursor

    return [message for page in walk(read, request.cursor) for message in page]


def walk(read: Callable[[str | None], tuple[PageT, str | None]], cursor: str | None = None) -> Iterator[PageT]:
    """Read page after page: `read` takes a cursor, and returns a page and where to go on."""
    while True:
        page, cursor = read(cursor)
        yield page
        if cursor is None:
            return
