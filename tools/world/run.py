"""One run of messages: a scenario, a seed and a strategy become an outcome, and the same three the same one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

from hotpartition.core.route import candidate_keys
from hotpartition.dynamodb.stored_route import read_entry
from hotpartition_messages.keys import KEY_FORM, ROUTING_SORT_KEY, build_key
from tools.figures import Outcome
from tools.history import Verdict
from tools.world.clients import ChangingClients, ReadingClients, WritingClients
from tools.world.faults import FaultDriver
from tools.world.operators import ClosesByHand
from tools.world.product import TABLE, World, build_reader, build_write_jobs
from tools.world.record import Record
from tools.world.scenario import Scenario
from tools.world.strategies import HAND_SECONDS, Strategy
from tools.world.workload import list_arrivals

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


class MessageRun(World):
    """A run of messages: its functions, their clients, what is closed by hand, and what goes wrong."""

    def __init__(self, seed: int, scenario: Scenario, strategy: Strategy) -> None:
        super().__init__(seed, scenario)
        scenario, self.strategy = self.scenario, strategy
        build_jobs = partial(build_write_jobs, strategy.writing)
        build_pages = partial(build_reader, strategy.reading, hedges=strategy.hedges)
        self.writing = self.open_function(scenario.writers, build_jobs, "writers")
        self.reading = self.open_function(scenario.reading, build_pages, "readers")
        changers = replace(scenario.writers, warm=min(scenario.writers.warm, CHANGING_ENVIRONMENTS))
        self.changing = self.open_function(changers, build_jobs, "changers")
        self.readers = ReadingClients(self, self.reading, "reading clients")
        self.rooms = scenario.rooms
        self.closes = ClosesByHand(self, place=TABLE.journal, choose=lambda random: random.choice(self.rooms))
        struck = self.writing, self.reading, self.changing, self.closes.function
        self.driver = FaultDriver(self, struck, self.random("faults"))

    def start(self) -> None:
        """Start everything that happens beside the clients, and the clients."""
        scenario, engine = self.scenario, self.engine
        self.watchers = self.strategy.start(self)
        if scenario.other_wcu:
            self.charge_others(scenario.other_wcu)
        if scenario.base_reads_per_second:
            engine.at(scenario.onset - BASE_READS_SECONDS, partial(self._charge_base_read, self.random("base reads")))
        if scenario.emptied_at is not None:
            engine.at(scenario.emptied_at, self.redis.empty)
        if scenario.faults is not None:
            self.driver.start()
            self.closes.start()
            engine.at(scenario.seconds + scenario.drain_seconds / 2, self._stop_faults)
        arrivals = list_arrivals(scenario.flows, scenario.seconds, self.seed)
        WritingClients(self, self.writing, "writing clients").start(arrivals)
        self.readers.start()
        ChangingClients(self, self.changing, "changing clients").start()

    def judge(self) -> Outcome:
        """Read everything once more, and judge all that was read."""
        self.readers.audit()
        return describe(self.record.judge())

    def outcome(self) -> Outcome:
        """Let it happen, and sum it up."""
        scenario, engine, meter, skipped = self.scenario, self.engine, self.meter, self.strategy.skipped_seconds
        self.start()
        engine.run_until(self.end)
        cost, safety = self._cost(), describe(Record().judge())
        if scenario.is_judged:
            engine.run_until(engine.now + SETTLE_SECONDS)
            safety = self.judge()
        onset, heat_ends = scenario.onset, scenario.heat_ends
        moments = {
            "raised_seconds": meter.raised_seconds(onset),
            "relieved_seconds": meter.relieved_seconds(onset, heat_ends),
            "prompt_seconds": meter.prompt_seconds(onset, heat_ends),
            "on_shards_seconds": meter.on_shards_seconds(onset),
        }
        return Outcome(
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
            # With the part of the rush that was left out, since nothing changes in it.
            **{name: seconds and seconds + skipped for name, seconds in moments.items()},
            late_failed_share=round(meter.failed_share_after(onset + LATE_SECONDS), 6),
            repeated_share=meter.repeated_share(onset, heat_ends),
            unserved_share_of_ten_minutes=round(self._unserved_share(), 6),
            closes=(self.closes.confirmed, self.closes.void),
            faults=self.driver.all_struck(),
            counters=tuple(sorted((name, float(count)) for name, count in meter.counters.items())),
        )

    def is_at_first_choice(self, conversation_id: str, message_id: str) -> bool:
        """Say whether a stored message lies where it would be put first."""
        table, key = self.store.dynamodb.tables[TABLE.name], build_key(conversation_id, message_id)
        route = read_entry(table.seen((conversation_id, ROUTING_SORT_KEY)).item).route
        places = candidate_keys(route, key, KEY_FORM, choices=1)
        return any(table.seen((place, key.sort_key)).item is not None for place in places)

    def _stop_faults(self) -> None:
        self.driver.stop()
        self.is_over = True

    def _charge_base_read(self, random: Random) -> None:
        if self.limits is not None:
            self.limits.read(self.scenario.hot_conversation, 0.5, self.engine.now)
        wait = random.expovariate(self.scenario.base_reads_per_second)
        if self.engine.now + wait < self.scenario.seconds:
            self.engine.after(wait, partial(self._charge_base_read, random))

    def _unserved_share(self) -> float:
        """Compute what is not stored when a rush of ten minutes ends, if it goes on as in its last three seconds."""
        scenario, meter, skipped = self.scenario, self.meter, self.strategy.skipped_seconds
        onset, end = scenario.onset, scenario.heat_ends
        shown = end - onset
        early = meter.served_share(onset + SETTLED_SECONDS, onset + HAND_SECONDS)
        late = meter.served_share(end - SETTLED_SECONDS, end)
        unserved = shown * (1 - meter.served_share(onset, end)) + skipped * (1 - early)
        return (unserved + max(0.0, TEN_MINUTES - skipped - shown) * (1 - late)) / TEN_MINUTES

    def _cost(self) -> Outcome:
        """Sum up what the run used of everything that is paid for or can be overloaded."""
        counts, redis = self.store.counts.values(), self.redis
        return Outcome(
            wcu=sum(c.wcu for c in counts),
            rcu=sum(c.rcu for c in counts),
            reports=redis.reports,
            redis_commands=redis.commands,
            store_operations=sum(c.operations for c in counts),
            cold_starts=self.writing.cold_starts + self.reading.cold_starts,
        )


def describe(verdict: Verdict) -> Outcome:
    """Count messages that were acknowledged, reads, and what was wrong by kind of fault; with examples."""
    return Outcome(
        acknowledged=verdict.acknowledged,
        reads=verdict.reads,
        found=verdict.found,
        examples=tuple(f"{f.fault}: {f.conversation_id} {f.message_id}: {f.detail}" for f in verdict.examples),
    )


def simulate(scenario: Scenario, seed: int, strategy: Strategy) -> Outcome:
    """Run a scenario under a strategy; `seed` decides everything that is left to chance."""
    with MessageRun(seed, scenario, strategy) as run:
        return run.outcome()
