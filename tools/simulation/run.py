"""One run: a scenario, a seed and a strategy become a result. The same three give the same result, always."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial

from hotpartition_messages.writing import NewMessage
from tools.simulation.clients import (
    ChangeFunction,
    ChangingClients,
    ReadingClients,
    ReadRequest,
    ReadResponse,
    WriteResponse,
    WritingClients,
    change_handler,
)
from tools.simulation.engine import MOST_SKEW_MS, Engine, Function
from tools.simulation.faults import ClosesByHand, FaultDriver, dynamodb_struck
from tools.simulation.measure import Meter, Phases, Record
from tools.simulation.results import Cost, RunResult, Safety
from tools.simulation.scenarios import FaultPlan, Scenario
from tools.simulation.strategies import HAND_SECONDS, STRATEGIES, Strategy
from tools.simulation.wiring import TABLE, Parts, build_world
from tools.simulation.workloads import ConversationFlow, name_for

OTHER_TRAFFIC_SECONDS = 0.05
"""How often the other traffic is charged to the table."""
AUDIT_SECONDS = 600.0
"""Longest time that the reads at the end may take."""
SETTLE_SECONDS = 3.0
"""How long everything is left alone before them: requests that clients gave up on end in this time."""
BASE_READS_SECONDS = 3.0
"""How long before the onset they begin: by then, what the partition had saved up for them is used."""
CHANGING_ENVIRONMENTS = 6
"""Environments of the write function that serve edits and deletions alone, so that their routes are older still."""
LATE_SECONDS = 4.0
"""How long after the onset a failed write is no longer the detection's delay."""
SETTLED_SECONDS = 3.0
"""How long after the onset a load that nobody reacts to is served evenly; and how long before the heat's end all who
react have done so."""
TEN_MINUTES = 600.0
NO_SAFETY = Safety(acknowledged=0, reads=0, missing=0, duplicated=0, out_of_order=0, altered=0, phantom=0, unverified=0)


def simulate(scenario: Scenario, seed: int, strategy: str = "ours", *, parts: Parts | None = None) -> RunResult:
    """Run a scenario under one of `STRATEGIES`; `seed` decides everything that is left to chance.

    `parts` are the product's classes, some of them replaced.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"there is no strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
    run = _Run(scenario.named_for(seed), seed, STRATEGIES[strategy](), parts or Parts())
    with closing(run.engine):
        return run.result()


class _Run:
    """The parts of one run, put together."""

    def __init__(self, scenario: Scenario, seed: int, strategy: Strategy, parts: Parts) -> None:
        self.scenario, self.seed, self.strategy = scenario, seed, strategy
        engine = self.engine = Engine()
        self.end = scenario.seconds + scenario.drain_seconds
        self.phases = Phases(
            scenario.hot_conversation, onset=scenario.onset, heat_end=scenario.heat_ends, end=scenario.seconds
        )
        self.meter = Meter(engine, hot_conversation=scenario.hot_conversation, seconds=self.end, phases=self.phases)
        self.record = Record(clock_error=MOST_SKEW_MS / 1000 if scenario.faults else 0.0)
        world = self.world = build_world(
            engine,
            seed,
            parts,
            table=scenario.table,
            redis_nodes=scenario.redis_nodes,
            settings=scenario.settings,
            skew_ms=scenario.faults.skew_ms if scenario.faults else 0.0,
            wrong_clocks=scenario.faults.wrong_clocks if scenario.faults else 0.0,
            observer=self.meter,
            on_report=self.meter.note_report,
        )
        self.table, self.store, self.redis = world.table, world.store, world.redis
        self.writing: Function[NewMessage, WriteResponse] = Function(
            engine,
            scenario.writers,
            partial(strategy.build_writer, world),
            world.random("writers"),
        )
        self.reading: Function[ReadRequest, ReadResponse] = Function(
            engine,
            scenario.reading,
            partial(strategy.build_reader, world),
            world.random("readers"),
        )
        self.changing: ChangeFunction = Function(
            engine,
            replace(scenario.writers, warm=min(scenario.writers.warm, CHANGING_ENVIRONMENTS)),
            lambda process, index: change_handler(strategy.build_changer(world, process, index)),
            world.random("changers"),
        )
        self.readers = ReadingClients(
            engine, scenario, self.reading, self.meter, self.record, world.random("reading clients")
        )
        self.base_reads = world.random("base reads")
        rooms = [
            name_for(flow.conversation_id, seed)
            for flow in scenario.workload.flows
            if isinstance(flow, ConversationFlow)
        ]
        closed = world.random("closed")
        self.closes = ClosesByHand(
            world,
            TABLE.journal,
            per_second=scenario.faults.closes_per_second if scenario.faults else 0.0,
            choose=lambda: closed.choice(rooms),
        )
        self.driver = FaultDriver(
            scenario.faults or FaultPlan(),
            world,
            functions=(self.writing, self.reading, self.changing, self.closes.function),
            consumers=lambda: self.strategy.watchers,
            random=world.random("faults"),
        )

    def result(self) -> RunResult:
        """Let it happen, and sum it up."""
        scenario, engine = self.scenario, self.engine
        self.strategy.start(self.world, scenario)
        if scenario.other_wcu:
            self.world.charge_others(scenario.other_wcu, OTHER_TRAFFIC_SECONDS)
        if scenario.base_reads_per_second:
            engine.at(scenario.onset - BASE_READS_SECONDS, self._charge_base_read)
        if scenario.faults is not None:
            self.driver.start()
            self.closes.start()
            engine.at(scenario.seconds + scenario.drain_seconds / 2, self._stop_faults)
        writers = WritingClients(
            engine, scenario, self.writing, self.meter, self.record, self.world.random("writing clients")
        )
        writers.start(scenario.workload.arrivals(scenario.seconds, self.seed))
        self.readers.start()
        changers = ChangingClients(
            engine,
            scenario,
            self.changing,
            self.reading,
            self.meter,
            self.record,
            self.world.random("changing clients"),
        )
        changers.start()
        engine.run_until(self.end)
        self._wait_for_accepted()
        cost, reads = self._cost(), self.meter.reads(self.store)
        safety = self._judge() if scenario.is_judged else NO_SAFETY
        meter = self.meter
        hot = [r.shard_count for r in meter.raises if r.conversation_id == scenario.hot_conversation]
        return RunResult(
            scenario=scenario.name,
            seed=self.seed,
            strategy=self.strategy.name,
            duration_seconds=self.end,
            onset_seconds=scenario.onset,
            hot_conversation=scenario.hot_conversation,
            operations=meter.operations,
            writes=meter.writes(),
            reads=reads,
            cost=cost,
            safety=safety,
            raises=tuple(meter.raises),
            closes=(self.closes.confirmed, self.closes.void),
            final_shard_count=max(hot, default=self.strategy.shard_count(scenario)),
            raised_seconds=self._unskipped(meter.raised_seconds(scenario.onset)),
            relieved_seconds=self._unskipped(meter.relieved_seconds(scenario.onset, scenario.heat_ends)),
            prompt_seconds=self._unskipped(meter.prompt_seconds(scenario.onset, scenario.heat_ends)),
            on_shards_seconds=self._unskipped(meter.on_shards_seconds(scenario.onset)),
            late_failed_share=meter.failed_share_after(scenario.onset + LATE_SECONDS),
            repeated_share=meter.repeated_share(scenario.onset, scenario.heat_ends),
            series=meter.series(),
            faults=self.driver.all_struck() if scenario.faults else tuple(sorted(dynamodb_struck(self.store).items())),
            counters=tuple(sorted((name, float(count)) for name, count in self.world.counters.items())),
            phases=self.phases.summed(),
            left_out_seconds=self.strategy.skipped_seconds,
            unserved_share_of_ten_minutes=round(self._unserved_share(), 6),
        )

    def _stop_faults(self) -> None:
        self.driver.stop()
        self.closes.is_over = True

    def _wait_for_accepted(self) -> None:
        """Let what somebody has accepted be stored, for as long as the scenario says."""
        meter = self.meter
        self.engine.run_while(lambda: meter.stored_count + meter.failed < meter.offered, self.scenario.patience_seconds)

    def _unskipped(self, seconds: float | None) -> float | None:
        """Add the part of the rush that was left out, since nothing changes in it."""
        return seconds + self.strategy.skipped_seconds if seconds else seconds

    def _unserved_share(self) -> float:
        """Compute `RunResult.unserved_share_of_ten_minutes`."""
        scenario, meter, skipped = self.scenario, self.meter, self.strategy.skipped_seconds
        onset, end = scenario.onset, scenario.heat_ends
        shown = end - onset
        early = meter.served_share(onset + SETTLED_SECONDS, onset + HAND_SECONDS)
        late = meter.served_share(end - SETTLED_SECONDS, end)
        unserved = shown * (1 - meter.served_share(onset, end)) + skipped * (1 - early)
        return (unserved + max(0.0, TEN_MINUTES - skipped - shown) * (1 - late)) / TEN_MINUTES

    def _charge_base_read(self) -> None:
        self.table.read(self.scenario.hot_conversation, 0.5, self.engine.now)
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

    def _judge(self) -> Safety:
        """Read everything once more, when all is over, and judge all that was read."""
        self.engine.run_until(self.engine.now + SETTLE_SECONDS)
        self.readers.audit(AUDIT_SECONDS)
        return Safety.of(self.record.judge())
