"""One run of messages: a scenario, a seed and a strategy become a result, and the same three the same one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from hotpartition.core.route import candidate_keys
from hotpartition.dynamodb.stored_route import read_entry
from hotpartition_messages.keys import KEY_FORM, ROUTING_SORT_KEY, build_key
from hotpartition_messages.writing import NewMessage, Written
from tools.history import FAULTS, Verdict
from tools.world.clients import (
    ChangeFunction,
    ChangingClients,
    ReadFunction,
    ReadingClients,
    WritingClients,
    change_handler,
)
from tools.world.clock import MOST_SKEW_MS, Engine
from tools.world.faults import FaultDriver
from tools.world.functions import Function
from tools.world.meter import Meter, Raise, Reads, Writes
from tools.world.operators import ClosesByHand
from tools.world.product import TABLE, Parts, World
from tools.world.record import Record
from tools.world.scenario import FaultPlan, Scenario
from tools.world.strategies import HAND_SECONDS, Strategy, Watchers

OTHER_TRAFFIC_SECONDS = 0.05
"""How often the other traffic is charged to the table."""
SETTLE_SECONDS = 3.0
"""How long everything is left alone before all is read once more: requests that clients gave up on end in this time."""
BASE_READS_SECONDS = 3.0
"""How long before the onset they begin: by then, what the partition had saved up for them is used."""
CHANGING_ENVIRONMENTS = 6
"""Environments of the write function that serve edits and deletions alone, so that their routes are older still."""
LATE_SECONDS = 4.0
"""How long after the onset a failed write is no longer the detection's delay."""
SETTLED_SECONDS = 3.0
"""How long after the onset a load that nothing reacts to is served evenly; and how long before the heat's end all that
reacts has done so."""
TEN_MINUTES = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """The judge's counts: messages that were acknowledged, reads, and what was wrong by kind of fault."""

    acknowledged: int = 0
    reads: int = 0
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    examples: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Say whether the promise was kept."""
        return not any(self.found.values())

    @classmethod
    def of(cls, verdict: Verdict) -> Safety:
        """Take over a verdict."""
        return cls(
            acknowledged=verdict.acknowledged,
            reads=verdict.reads,
            found={fault: getattr(verdict, fault) for fault in FAULTS},
            examples=tuple(f"{f.fault}: {f.conversation_id} {f.message_id}: {f.detail}" for f in verdict.examples),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the run used of everything that is paid for or can be overloaded."""

    wcu: float
    rcu: float
    reports: int
    redis_commands: int
    store_operations: int
    cold_starts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run; docs/simulation-summary.md says what the fields mean."""

    scenario: str
    seed: int
    strategy: str
    operations: int
    writes: Writes
    hot_reads: Reads
    quiet_reads: Reads
    cost: Cost
    safety: Safety
    raises: tuple[Raise, ...]
    shard_counts: tuple[int, ...]
    final_shard_count: int
    raised_seconds: float | None
    relieved_seconds: float | None
    prompt_seconds: float | None
    on_shards_seconds: float | None
    late_failed_share: float
    repeated_share: float | None
    unserved_share_of_ten_minutes: float
    closes: tuple[int, int]
    """Confirmed ones, and announcements that stayed void."""
    faults: tuple[tuple[str, int], ...]
    """How often each kind of injected fault struck."""
    counters: tuple[tuple[str, float], ...]
    """The product's own metrics, summed over all its functions."""


class MessageRun:
    """What all runs of messages are made of: the world, its functions, their clients, and what is seen of it."""

    def __init__(self, scenario: Scenario, seed: int, strategy: Strategy, parts: Parts | None = None) -> None:
        engine = self.engine = Engine()
        self.seed, self.strategy = seed, strategy
        self.watchers: Watchers | None = None
        scenario = self.scenario = scenario.named_for(seed)
        self.end = scenario.seconds + scenario.drain_seconds
        self.meter = Meter(engine, hot=scenario.hot_conversation, seconds=self.end, pages_end=scenario.seconds)
        self.record = Record(clock_error=MOST_SKEW_MS / 1000 if scenario.faults else 0.0)
        world = self.world = World(engine, seed, scenario, parts, observer=self.meter)
        self.store, self.redis = world.store, world.redis
        self.writing: Function[NewMessage, Written] = Function(
            engine, scenario.writers, partial(strategy.build_writer, world), world.random("writers")
        )
        self.reading: ReadFunction = Function(
            engine, scenario.reading, partial(strategy.build_reader, world), world.random("readers")
        )
        self.readers = ReadingClients(
            engine, scenario, self.reading, self.meter, self.record, world.random("reading clients")
        )

    def watch(self) -> None:
        """Start what the strategy has beside the requests."""
        self.watchers = self.strategy.start(self.world, self.scenario)

    def start_clients(self) -> None:
        """Let clients write and read."""
        writers = WritingClients(
            self.engine, self.scenario, self.writing, self.meter, self.record, self.world.random("writing clients")
        )
        writers.rooms = frozenset(self.scenario.list_rooms(self.seed))
        writers.is_at_first_choice = self._is_at_first_choice
        writers.start(self.scenario.workload.arrivals(self.scenario.seconds, self.seed))
        self.readers.start()

    def _is_at_first_choice(self, conversation_id: str, message_id: str) -> bool:
        table, key = self.store.dynamodb.tables[TABLE.name], build_key(conversation_id, message_id)
        journal = table.latest((conversation_id, ROUTING_SORT_KEY))
        route = read_entry(None if journal is None else journal.item).route
        places = candidate_keys(route, key, KEY_FORM, choices=1)
        return any(table.latest((place, key.sort_key)) is not None for place in places)

    def judge(self) -> Safety:
        """Read everything once more, and judge all that was read."""
        self.readers.audit()
        return Safety.of(self.record.judge())


class Run(MessageRun):
    """A run with changes and faults beside all that."""

    def __init__(self, scenario: Scenario, seed: int, strategy: Strategy, parts: Parts | None = None) -> None:
        super().__init__(scenario, seed, strategy, parts)
        engine, scenario, world = self.engine, self.scenario, self.world
        plan = scenario.faults or FaultPlan()
        self.changing: ChangeFunction = Function(
            engine,
            replace(scenario.writers, warm=min(scenario.writers.warm, CHANGING_ENVIRONMENTS)),
            lambda process, index: change_handler(strategy.build_changer(world, process, index)),
            world.random("changers"),
        )
        self.base_reads = world.random("base reads")
        rooms = scenario.list_rooms(seed)
        self.closes = ClosesByHand(
            world, place=TABLE.journal, per_second=plan.closes_per_second, choose=lambda random: random.choice(rooms)
        )
        struck = self.writing, self.reading, self.changing, self.closes.function
        self.driver = FaultDriver(plan, world, struck, lambda: self.watchers, world.random("faults"))

    def result(self) -> RunResult:
        """Let it happen, and sum it up."""
        scenario, engine = self.scenario, self.engine
        self._start()
        engine.run_until(self.end)
        cost = self._cost()
        safety = Safety()
        if scenario.is_judged:
            engine.run_until(engine.now + SETTLE_SECONDS)
            safety = self.judge()
        meter = self.meter
        onset, heat_ends = scenario.onset, scenario.heat_ends
        return RunResult(
            scenario=scenario.name,
            seed=self.seed,
            strategy=self.strategy.name,
            operations=meter.operations,
            writes=meter.writes(),
            hot_reads=meter.reads(hot=True),
            quiet_reads=meter.reads(hot=False),
            cost=cost,
            safety=safety,
            raises=tuple(meter.raises),
            shard_counts=meter.shard_counts(),
            final_shard_count=max(meter.shard_counts(), default=self.strategy.shard_count),
            raised_seconds=self._unskipped(meter.raised_seconds(onset)),
            relieved_seconds=self._unskipped(meter.relieved_seconds(onset, heat_ends)),
            prompt_seconds=self._unskipped(meter.prompt_seconds(onset, heat_ends)),
            on_shards_seconds=self._unskipped(meter.on_shards_seconds(onset)),
            late_failed_share=round(meter.failed_share_after(onset + LATE_SECONDS), 6),
            repeated_share=meter.repeated_share(onset, heat_ends),
            unserved_share_of_ten_minutes=round(self._unserved_share(), 6),
            closes=(self.closes.confirmed, self.closes.void),
            faults=self.driver.all_struck(),
            counters=tuple(sorted((name, float(count)) for name, count in self.world.counters.items())),
        )

    def _start(self) -> None:
        """Start everything that happens beside the clients, and the clients."""
        scenario, engine = self.scenario, self.engine
        self.watch()
        if scenario.other_wcu:
            self.world.charge_others(scenario.other_wcu, OTHER_TRAFFIC_SECONDS)
        if scenario.base_reads_per_second:
            engine.at(scenario.onset - BASE_READS_SECONDS, self._charge_base_read)
        for at in scenario.emptied_at:
            engine.at(at, self.redis.empty)
        if scenario.faults is not None:
            self.driver.start()
            self.closes.start()
            engine.at(scenario.seconds + scenario.drain_seconds / 2, self._stop_faults)
        self.start_clients()
        random = self.world.random("changing clients")
        changers = ChangingClients(engine, scenario, self.changing, self.meter, self.record, random, self.reading)
        changers.start()

    def _stop_faults(self) -> None:
        self.driver.stop()
        self.world.is_over = True

    def _unskipped(self, seconds: float | None) -> float | None:
        """Add the part of the rush that was left out, since nothing changes in it."""
        return seconds + self.strategy.skipped_seconds if seconds else seconds

    def _unserved_share(self) -> float:
        """Compute what is not stored when a rush of ten minutes ends, if it goes on as in its last three seconds."""
        scenario, meter, skipped = self.scenario, self.meter, self.strategy.skipped_seconds
        onset, end = scenario.onset, scenario.heat_ends
        shown = end - onset
        early = meter.served_share(onset + SETTLED_SECONDS, onset + HAND_SECONDS)
        late = meter.served_share(end - SETTLED_SECONDS, end)
        unserved = shown * (1 - meter.served_share(onset, end)) + skipped * (1 - early)
        return (unserved + max(0.0, TEN_MINUTES - skipped - shown) * (1 - late)) / TEN_MINUTES

    def _charge_base_read(self) -> None:
        if self.world.limits is not None:
            self.world.limits.read(self.scenario.hot_conversation, 0.5, self.engine.now)
        wait = self.base_reads.expovariate(self.scenario.base_reads_per_second)
        if self.engine.now + wait < self.scenario.seconds:
            self.engine.after(wait, self._charge_base_read)

    def _cost(self) -> Cost:
        counts = self.store.counts.values()
        return Cost(
            wcu=sum(c.wcu for c in counts),
            rcu=sum(c.rcu for c in counts),
            reports=self.redis.reports,
            redis_commands=self.redis.commands,
            store_operations=sum(c.operations for c in counts),
            cold_starts=self.writing.cold_starts + self.reading.cold_starts,
        )


def simulate(scenario: Scenario, seed: int, strategy: Strategy, *, parts: Parts | None = None) -> RunResult:
    """Run a scenario under a strategy; `seed` decides everything that is left to chance.

    `parts` are the product's classes, some of them replaced.
    """
    run = Run(scenario, seed, strategy, parts)
    with closing(run.engine):
        return run.result()
