"""One run: a scenario, a seed and a strategy become a result. The same three give the same result, always.

`make simulate-replay` runs one again, and prints what happened in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from hotpartition_messages.writing import NewMessage, Written
from tools.figures import MISSED
from tools.scenarios.results import OUT_DIR, Cost, RunResult, Safety, write_result
from tools.scenarios.strategies import HAND_SECONDS, STRATEGIES
from tools.world.clients import (
    ChangeFunction,
    ChangingClients,
    ReadFunction,
    ReadingClients,
    WritingClients,
    change_handler,
)
from tools.world.clock import MOST_SKEW_MS, Engine, Function
from tools.world.faults import ClosesByHand, FaultDriver
from tools.world.meter import Meter, Phases, Record
from tools.world.product import TABLE, Parts, World
from tools.world.scenario import SCENARIOS, FaultPlan, Scenario, scenario_by_name

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
"""How long after the onset a load that nobody reacts to is served evenly; and how long before the heat's end all who
react have done so."""
TEN_MINUTES = 600.0


class MessageRun:
    """What all runs of messages are made of: the world, its functions, their clients, and what is seen of it."""

    def __init__(
        self,
        engine: Engine,
        scenario: Scenario,
        seed: int,
        strategy_name: str = "ours",
        parts: Parts | None = None,
        *,
        meter: type[Meter] = Meter,
    ) -> None:
        if strategy_name not in STRATEGIES:
            raise ValueError(f"there is no strategy {strategy_name!r}; there are {', '.join(STRATEGIES)}")
        strategy = self.strategy = STRATEGIES[strategy_name]()
        self.engine, self.seed = engine, seed
        scenario = self.scenario = scenario.drawn_for(seed)
        self.end = scenario.seconds + scenario.drain_seconds
        self.phases = Phases(
            scenario.hot_conversation, onset=scenario.onset, heat_end=scenario.heat_ends, end=scenario.seconds
        )
        self.meter = meter(engine, seconds=self.end, phases=self.phases)
        self.record = Record(clock_error=MOST_SKEW_MS / 1000 if scenario.faults else 0.0)
        world = self.world = World(engine, seed, scenario, parts, observer=self.meter, on_report=self.meter.note_report)
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

    def start_clients(self) -> None:
        """Let clients write and read."""
        writers = WritingClients(
            self.engine, self.scenario, self.writing, self.meter, self.record, self.world.random("writing clients")
        )
        writers.start(self.scenario.workload.arrivals(self.scenario.seconds, self.seed))
        self.readers.start()

    def judge(self) -> Safety:
        """Read everything once more, and judge all that was read."""
        self.readers.audit()
        return Safety.of(self.record.judge())


def simulate(scenario: Scenario, seed: int, strategy: str = "ours", *, parts: Parts | None = None) -> RunResult:
    """Run a scenario under one of `STRATEGIES`; `seed` decides everything that is left to chance.

    `parts` are the product's classes, some of them replaced.
    """
    run = _Run(scenario, seed, strategy, parts)
    with closing(run.engine):
        return run.result()


class _Run(MessageRun):
    """A run with changes and faults beside all that."""

    def __init__(self, scenario: Scenario, seed: int, strategy_name: str, parts: Parts | None) -> None:
        super().__init__(Engine(), scenario, seed, strategy_name, parts)
        engine, scenario, world, strategy = self.engine, self.scenario, self.world, self.strategy
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
            world, TABLE.journal, per_second=plan.closes_per_second, choose=lambda random: random.choice(rooms)
        )
        self.driver = FaultDriver(
            plan,
            world,
            functions=(self.writing, self.reading, self.changing, self.closes.function),
            consumers=lambda: strategy.watchers,
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
        self.start_clients()
        random = self.world.random("changing clients")
        changers = ChangingClients(engine, scenario, self.changing, self.meter, self.record, random, self.reading)
        changers.start()
        engine.run_until(self.end)
        self._wait_for_accepted()
        cost, reads = self._cost(), self.meter.reads(self.store)
        safety = Safety()
        if scenario.is_judged:
            engine.run_until(engine.now + SETTLE_SECONDS)
            safety = self.judge()
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
            faults=self.driver.all_struck() if scenario.faults else tuple(sorted(self.store.all_struck().items())),
            counters=tuple(sorted((name, float(count)) for name, count in self.world.counters.items())),
            phases=self.phases.summed(),
            left_out_seconds=self.strategy.skipped_seconds,
            unserved_share_of_ten_minutes=round(self._unserved_share(), 6),
        )

    def _stop_faults(self) -> None:
        self.driver.stop()
        self.world.is_over = True

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
        if self.world.table is not None:
            self.world.table.read(self.scenario.hot_conversation, 0.5, self.engine.now)
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


def replay(arguments: Sequence[str]) -> int:
    """Run the command `replay`."""
    parser = argparse.ArgumentParser(prog="python -m tools.scenarios replay", description=__doc__)
    parser.add_argument("--scenario", default="compare", choices=sorted(SCENARIOS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strategy", default="ours", choices=tuple(STRATEGIES))
    parser.add_argument("--out", type=Path, default=OUT_DIR)
    options = parser.parse_args(arguments)
    run = simulate(scenario_by_name(options.scenario), options.seed, options.strategy)
    path = write_result(run, options.out, f"{options.scenario}-{options.seed}-{options.strategy}.json")
    say = sys.stdout.write
    say(f"{run.operations:,} client requests, {run.cost.store_operations:,} requests to DynamoDB\n")
    say(f"raised after {run.raised_seconds} s, relieved after {run.relieved_seconds} s\n")
    for each in run.raises:
        say(f"  {each.at_seconds:8.3f} s  {each.conversation_id}: N = {each.shard_count} ({each.reason})\n")
    say(f"{run.safety}\n")
    for example in run.safety.examples:
        say(f"  {example}\n")
    say(f"{path}\n")
    return 0 if run.safety.holds else MISSED
