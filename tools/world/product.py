"""The product's functions on the simulated outside: built as in Lambda, on other ends.

Everything in between is the product's own: engine, caches, hedging, retries, and the adapters for DynamoDB and
redis-py.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Self, cast

from hotpartition.control.consumer import Consumer
from hotpartition.control.ends import ControlEnds
from hotpartition.core.backoff import Clock
from hotpartition.core.closes import TIMES
from hotpartition.core.hedging import HEDGE_CONNECTIONS, HedgePolicy
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.engine.in_band import InBandCounting
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import RedisReportSource
from hotpartition.runtime import build_control
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.build import Ends, Parts, build_engine
from hotpartition.runtime.build import Engine as ProductEngine
from hotpartition.runtime.connect import COOLDOWN_MS, PATIENT_TIMEOUTS_MS, open_in_band, open_redis_ends
from hotpartition.runtime.settings import Settings
from hotpartition.table import ShardedTable
from hotpartition.table.routes import Shards, TableRoutes
from hotpartition.table.schema import Schema
from hotpartition_messages import Message, jobs
from hotpartition_messages.keys import KEY_FORM, ROUTING_INDEX, describe_table
from hotpartition_messages.reading import MessageReader
from hotpartition_messages.writing import MessageWriter
from tools.limits import Resource
from tools.world.clock import MOST_SKEW_MS, Engine, Process, SimulatedExecutor, wait_for
from tools.world.dynamodb import define_table
from tools.world.functions import Function, FunctionConfig
from tools.world.meter import Meter
from tools.world.network import READER, Network
from tools.world.record import Record
from tools.world.redis import RedisServer, SimulatedConnection
from tools.world.scenario import FUNCTIONS, SHORT_TIMES, TABLE_NAME, FaultPlan, Scenario

TABLE = describe_table(TABLE_NAME)
MESSAGES = {"TableName": TABLE_NAME, **define_table("pk", "sk", indexes={ROUTING_INDEX: ["routing_partition"]})}
"""The table of messages, as `CreateTable` describes it."""
WRONG_MS = 300_000
_, PATIENT_MS = PATIENT_TIMEOUTS_MS
"""How long the consumer and operators wait for Redis."""
REDIS_NODES = 3
IN_BAND = "in-band write"
USUAL = Settings.defaults(IN_BAND)


Build = Callable[[Any, Process, int], Any]
"""Given the world, builds what one environment holds, given its process and number."""


class World:
    """One seed of a scenario: its clock, its stores, what its functions share, and what is seen of all that.

    Its tasks end when it is left.
    """

    def __init__(self, seed: int, scenario: Scenario, *, chance: str = "") -> None:
        """Build everything; `chance` goes before the names of what is random in the stores."""
        engine = self.engine = Engine()
        scenario = self.scenario = scenario.named_for(seed)
        self.seed = seed
        self.settings = {name: scenario.settings_of(name) for name in FUNCTIONS}
        self.settings[IN_BAND] = scenario.settings_of(IN_BAND, is_closing=False)
        self.times = SHORT_TIMES if scenario.faults else TIMES
        """Those of closes, for writers."""
        self.parts = Parts()
        self.end = scenario.seconds + scenario.drain_seconds
        self.meter = Meter(engine, hot=scenario.hot_conversation, seconds=self.end, pages_end=scenario.seconds)
        self.record = Record(clock_error=MOST_SKEW_MS / 1000 if scenario.faults else 0.0)
        self.is_over = False
        """Whether what works until it is stopped should stop: some runs' clients, and what operators run beside."""
        self.watchers: Function | None = None
        """What watches the load, beside the requests."""
        self.limits = None if scenario.table is None else Resource(partitions=scenario.table)
        random = self.random(f"{chance}store")
        self.store = Network(engine, random=random, meter=self.meter, seed=str(seed), limits=self.limits)
        self.store.dynamodb.call("CreateTable", MESSAGES)
        self.redis = RedisServer(engine, nodes=REDIS_NODES, random=self.random(f"{chance}redis"))
        self.plan = scenario.faults or FaultPlan(skew_ms=0.0, wrong_clocks=0.0)
        """What goes wrong, and what is closed by hand beside it: where nothing does, clocks are right."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop all tasks."""
        self.engine.close()

    def random(self, name: str) -> Random:
        """Make a source of chance of its own, so that nothing depends on who draws first."""
        return Random(f"{self.seed}/{name}")  # a text's seed goes through SHA-512, not through hash()

    def clock(self, random: Random) -> Clock:
        """Build the clock of one environment."""
        most, engine = MOST_SKEW_MS, self.engine
        skew_ms = round(max(-most, min(most, random.gauss(0.0, self.plan.skew_ms)))) if self.plan.skew_ms else 0
        return Clock(now_ms=lambda: skew_ms + engine.now_ms(), sleep=engine.sleep, random=random.random)

    def mislead(self, ends: Ends, random: Random) -> Ends:
        """Set a writer's clock wrong by minutes, in some environments."""
        if random.random() >= self.plan.wrong_clocks:
            return ends
        right, wrong_ms = ends.clock, round(random.uniform(-WRONG_MS, WRONG_MS))
        return replace(ends, clock=replace(right, now_ms=lambda: right.now_ms() + wrong_ms))

    def timer(self) -> float:
        """Return a monotonic time in seconds."""
        return self.engine.now

    def calls(self, role: str, owner: Process | None = None) -> ThreadedCalls:
        """Connect to DynamoDB; `owner`: as that of `connect`."""
        return ThreadedCalls(self.store.client(role, owner))

    def connect(self, timeout_ms: int, owner: Process | None = None) -> SimulatedConnection:
        """Connect to Redis; `owner`: whose writes of routes are its last at times (`FaultPlan.consumer_crash`)."""
        return SimulatedConnection(self.redis, timeout_ms=timeout_ms, cooldown_ms=COOLDOWN_MS, owner=owner)

    def open_function(self, config: FunctionConfig, build: Build, chance: str) -> Function:
        """Open a function whose environments hold what `build` builds."""
        return Function(self.engine, config, partial(build, self), self.random(chance))

    def charge_others(self, wcu: float, every_seconds: float = 0.05) -> None:
        """Charge the table with other traffic from now on, `wcu` units a second on all its partitions alike."""
        limits = self.limits
        if limits is None:
            raise ValueError("a table without limits takes no other traffic")

        def charge() -> None:
            limits.write_evenly(wcu * every_seconds, self.engine.now, every_seconds)
            self.engine.after(every_seconds, charge)

        self.engine.after(every_seconds, charge)


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment of a function, as its engine is built in it: with its own chance and way to DynamoDB."""

    world: World
    process: Process
    index: int
    random: Random
    calls: DynamoDBCalls


BuildEngine = Callable[[Environment], ProductEngine]


def build_write_jobs(build: BuildEngine, world: World, process: Process, index: int) -> MessageWriter:
    """Build one environment of the write function, on the engine that `build` builds."""
    random, calls = world.random(f"writer-{index}"), world.calls("writer")
    engine = build(Environment(world, process, index, random, calls))
    return jobs.build_writer(engine, open_store(calls), world.settings["write"], random_bits=random.getrandbits)


def build_reader(build: BuildEngine, world: World, process: Process, index: int, *, hedges: bool) -> MessageReader:
    """Build one environment of the read function, on the engine that `build` builds."""
    random, calls = world.random(f"reader-{index}"), open_reader_calls(world, process, hedges=hedges)
    engine = build(Environment(world, process, index, random, calls))
    return jobs.build_reader(engine, open_store(calls), world.settings["read"])


def open_store(calls: ThreadedCalls) -> DynamoDBItemStore[Message]:
    """Open the store of messages."""
    return DynamoDBItemStore(calls, TABLE, Message.from_item)


def build_writing(place: Environment) -> ProductEngine:
    """Build an engine that writes."""
    world, settings = place.world, place.world.settings["write"]
    ends = build_ends(place, settings, DynamoDBJournal(place.calls, TABLE.journal))
    misled = world.mislead(ends, world.random(f"wrong clock {place.index}"))
    engine = build_engine(misled, settings, form=KEY_FORM, times=world.times, parts=world.parts)
    return replace(engine, clock=ends.clock)


def build_reading(place: Environment) -> ProductEngine:
    """Build an engine that reads."""
    settings = place.world.settings["read"]
    return build_engine(build_ends(place, settings, None), settings, form=KEY_FORM, parts=place.world.parts)


def build_in_band_writing(place: Environment) -> ProductEngine:
    """Build an engine that writes, and finds hot conversations itself."""
    world, settings = place.world, place.world.settings[IN_BAND]
    is_scaled = settings.hot_at_once_wcu < USUAL.hot_at_once_wcu
    ends = open_in_band(place.calls, TABLE.journal, world.meter, world.clock(place.random))
    parts = replace(world.parts, counting=SensitiveCounting) if is_scaled else world.parts
    return build_engine(ends, settings, form=KEY_FORM, times=world.times, parts=parts)


def build_in_band_reading(place: Environment) -> ProductEngine:
    """Build an engine that reads, and asks the journal alone for routes."""
    world, journal = place.world, DynamoDBJournal(place.calls, TABLE.journal)
    ends = Ends(telemetry=world.meter, clock=world.clock(place.random), journal=journal)
    return build_engine(ends, world.settings["read"], form=KEY_FORM, parts=world.parts)


def build_ends(place: Environment, settings: Settings, journal: DynamoDBJournal | None) -> Ends:
    """Build what an environment with Redis stands on, as `open_ends` does."""
    world, clock = place.world, place.world.clock(place.random)
    connection: Any = world.connect(settings.registry_command_timeout_ms)
    background = BackgroundThread(executor=SimulatedExecutor(world.engine, place.process, 1))
    ends = open_redis_ends(settings, world.meter, journal, connection, clock, background=background, timer=world.timer)
    return replace(ends, environment_id=f"{place.index:032x}")


def open_reader_calls(world: World, process: Process, *, hedges: bool = False) -> ThreadedCalls:
    """Open what a read function sends its rounds of queries with; its threads are tasks of the engine."""
    parallel, quantile = world.settings["read"].fan_out_threads, world.settings["read"].hedge_quantile
    return ThreadedCalls(
        world.store.client(READER),
        SimulatedExecutor(world.engine, process, parallel + HEDGE_CONNECTIONS),
        parallel=parallel,
        policy=HedgePolicy(quantile=quantile) if hedges and quantile else None,
        timer=world.timer,
        wait=partial(wait_for, world.engine),
    )


def build_consumer(world: World, process: Process, index: int) -> Consumer:
    """Build one environment of the stream consumer."""
    ends = build_control_ends("consumer", TABLE.journal, world, process, index)
    return build_control.build_consumer(ends, world.settings["consumer"])


def build_control_ends(role: str, place: JournalPlace, world: World, process: Process, index: int) -> ControlEnds:
    """Build what a process stands on that works beside requests: a consumer, or an operator's."""
    connection, calls = world.connect(PATIENT_MS, process), world.calls(role, process)
    return ControlEnds(
        source=RedisReportSource(connection, TABLE_NAME),
        journal=DynamoDBJournal(calls, place),
        routing_items=DynamoDBRoutingItems(calls, place),
        registry=RedisRegistry(connection, TABLE_NAME),
        telemetry=world.meter,
        clock=world.clock(world.random(f"{role}-{index}")),
        elapsed=world.timer,
        form=TABLE.keys,
    )


class SimulatedTable(ShardedTable):
    """A `ShardedTable` whose threads are tasks of one process of the engine."""

    simulated: Executor

    def _open_executor(self, threads: int) -> Executor:
        """Run the queries of a page at the same time, on the virtual clock."""
        del threads
        return self.simulated


class SensitiveCounting(InBandCounting):
    """Takes samples of a load that is a small part of a real one."""

    first_sample_wcu = 0.5
    sample_wcu = 1.0


def shards_on(ends: Ends, settings: Settings, place: JournalPlace, *, closing: bool = False, **options: Any) -> Shards:
    """Build what a `ShardedTable` takes as its shards, as `adaptive()` and `in_band()` do, on any ends.

    `place` is where the routing items lie; `closing` and `options` are those of `build_engine`.
    """

    def build_routes(_table: Any, schema: Schema, _clock: Clock, budget_ms: float) -> TableRoutes:
        engine = build_engine(ends, settings, form=schema.form, budget_ms=budget_ms, closing=closing, **options)
        return TableRoutes(engine=engine, journal=place, is_counted=True)

    return cast("Shards", SimpleNamespace(finds_read_heat=ends.registry is not None, build_routes=build_routes))
