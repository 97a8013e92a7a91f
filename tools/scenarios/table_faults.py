"""Items of a `ShardedTable` while everything fails: nothing is lost, doubled or undone. `make simulate-table-faults`.

An operation is one call of the library.

The library is the product's own, over boto3's client: routes, caches, journal, registry, choices, merge. What the
client would send is taken from it before it leaves, and happens at one instant of the virtual clock.

Each environment is a process that may die, with a cache of its own, so that writers are as stale as they come.
Something raises as consumer and operators do, journal first, and dies in between now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any

import boto3
from botocore.config import Config

from hotpartition.control.folding import FoldForm
from hotpartition.core.keys import KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.build import Parts as EngineParts
from hotpartition.runtime.connect import open_in_band
from hotpartition.runtime.settings import Settings
from hotpartition.table import at_random, by_attribute, by_sort_key, fixed
from hotpartition.table.routes import Shards, open_calls
from hotpartition.table.schema import CHANGES, NOTED, SHARDS
from hotpartition.table.sharding import Hashing
from tools.figures import Outcome, at_least
from tools.scenarios.seeds import Part, Study, Verdict, add_up, breach_bars, close_bars
from tools.world.clock import Process, SimulatedExecutor
from tools.world.dynamodb import described
from tools.world.functions import FunctionConfig
from tools.world.operators import ClosesByHand, Folds, RaisesByHand
from tools.world.product import (
    SensitiveCounting,
    SimulatedShards,
    SimulatedTable,
    World,
    build_ends,
)
from tools.world.run import Run
from tools.world.scenario import ALL_FAULTS, FAULTY, SHORT_LEASES, SHORT_TIMES, FaultPlan
from tools.world.table_clients import CLIENTS, COLLECTIONS, TableClients, choose_collection, position_of

TABLE_NAME = "readings"
SEEDS = 300
ENVIRONMENTS = FunctionConfig(concurrency=8, warm=CLIENTS, death=0.004)
SECONDS = 14.0
DRAIN_SECONDS = 8.0
RAISES_PER_SECOND = 0.8
MOST_SHARDS = 16
THREADS = 8
LATE_SHARE = 0.3
"""Of creations: they happen some time after their client gave up."""
HOT_SHARE, HOT_SHARE_IN_SPELLS = 0.08, 0.32
LOAD_LOST_SHARE = 0.05
HOT_AT_ONCE = {"hot_at_once_wcu": 1.0, "target_shard_wcu": 0.5, "max_shard_count": 12}
FOLD_FORM = FoldForm(TABLE_NAME, "PK", "SK", KeyForm(), CHANGES, NOTED, dropped=(SHARDS,))


@cache
def _resource() -> Any:
    """Make a boto3 resource once a process: that takes as long as a seed."""
    config = Config(retries={"total_max_attempts": 1})
    session = boto3.Session("simulated", "simulated", region_name="eu-central-1")
    return session.resource("dynamodb", config=config)


_HASHINGS: tuple[Callable[[Random], Hashing], ...] = (
    lambda _: by_sort_key(),
    lambda _: by_attribute("owner"),
    lambda random: at_random(lambda: f"{random.getrandbits(64):016x}"),
)


def run(
    seed: int,
    *,
    seconds: float = SECONDS,
    plan: FaultPlan | None = None,
    is_in_band: bool = False,
    folds: bool = False,
) -> Outcome:
    """Run one seed, which decides everything that is left to chance.

    `is_in_band`: environments find what is hot themselves, beside what is raised by hand. `folds`: shards are fixed,
    and left half-way: items are moved to the base key then, while work goes on.
    """
    parts = EngineParts(counting=SensitiveCounting if is_in_band else None)
    with _Run(seed, plan or build_fault_plan(), parts, folds=folds) as under_way, ExitStack() as watched:
        watched.callback(under_way.world.store.watch(under_way.table.meta.client, "table"))
        return under_way.outcome(seconds)


class _Run(Run):
    """The parts of one run, put together."""

    def __init__(self, seed: int, plan: FaultPlan, parts: EngineParts, *, folds: bool) -> None:
        super().__init__(replace(FAULTY, name=TABLE_NAME, faults=plan, table=None), seed)
        self.parts, self.is_folding, self.is_leaving = parts, folds, False
        self.table = _resource().Table(TABLE_NAME)
        self.hashing = _HASHINGS[seed % len(_HASHINGS)](Random(f"{seed}/hashed"))
        world = self.world
        self.place = self._create_tables()
        function = self.world.open_calls(ENVIRONMENTS, self._build, "environments")
        self.clients = TableClients(world, function, self.record)
        collections = world.random("raised")
        self.raises = RaisesByHand(
            world,
            place=self.place,
            per_second=RAISES_PER_SECOND,
            most_shards=MOST_SHARDS,
            choose=lambda: choose_collection(collections),
            is_timed=self.has_positions,
            # At the worst moment: the repetition of a creation that is still to come goes elsewhere.
            urgent=self.meter.put_off_keys,
        )
        self.closes = ClosesByHand(world, place=self.place, per_second=plan.closes_per_second, choose=choose_collection)
        self.watchers = self.raises.function
        self.driver = self.build_driver(plan, world.random("faults"), function, self.closes.function)
        self.folds = Folds(world, form=FOLD_FORM, shard_count=MOST_SHARDS, choose=choose_collection)

    @property
    def has_positions(self) -> bool:
        """Whether the table's sort keys are times to the library."""
        return self.seed % 5 < 4

    def _create_tables(self) -> JournalPlace:
        create = self.world.store.dynamodb.call
        create("CreateTable", described(TABLE_NAME, PK="HASH", SK="RANGE"))
        if self.seed % 2:
            return JournalPlace(TABLE_NAME, "PK", "SK", "~route")
        create("CreateTable", described("routes", collection="HASH"))
        return JournalPlace("routes", "collection", sort_key="")

    def outcome(self, seconds: float) -> Outcome:
        """Let it happen, read everything once more, and judge."""
        engine, record = self.engine, self.record
        self.driver.start()
        self._begin()
        if self.is_folding:
            seconds /= 2
            self._leave_shards(seconds)
            self._begin()
            self.folds.start()
        end = engine.now + seconds
        engine.at(end, self.driver.stop)
        engine.run_until(end + 1.0)
        self.world.is_over = True
        engine.run_until(end + DRAIN_SECONDS)
        operations = self.clients.operations
        # By an environment that has just been born.
        self.clients.function = self.world.open_calls(FunctionConfig(warm=1), self._build, "audit")
        self.clients.audit()
        ended = {(each.conversation_id, each.message_id) for each in record.deletions if each.ended_at is not None}
        stored = self.world.store.dynamodb.tables[TABLE_NAME].items()
        counts = {
            "operations": operations,
            "created": sum(len(record.acknowledged_ids(collection)) for collection in COLLECTIONS),
            "changed": sum(addition.ended_at is not None for addition in record.additions),
            "deleted": len(ended),
            "reads": len(record.reads),
            "raises": self.raises.count + int(self.world.counters[MetricName.RAISES]),
            "confirmed_closes": self.closes.confirmed,
            "void_announcements": self.closes.void,
            "sharded_items": sum("#_" in item["PK"]["S"] for item in stored),
            "moved": self.folds.moved,
            "folds_killed": self.folds.function.deaths,
        }
        return Outcome(seed=self.seed, counts=counts, faults=self.driver.all_struck(), breaches=record.breaches())

    def _begin(self) -> None:
        """Let clients work, and something raise."""
        self.world.is_over = False
        self.clients.start()
        if not self.is_folding:
            self.raises.start()
            if self.has_positions:
                self.closes.start()

    def _leave_shards(self, after_seconds: float) -> None:
        """Stop all work, and replace all environments by such that write to the base key and read all shards."""
        self.engine.run_until(self.engine.now + after_seconds)
        self.world.is_over = True
        self.engine.run_until(self.engine.now + DRAIN_SECONDS)
        self.is_leaving = True
        self.clients.function = self.world.open_calls(ENVIRONMENTS, self._build, "later environments")

    def _build(self, world: World, process: Process, index: int) -> SimulatedTable:
        """Build one environment's table."""
        opened = SimulatedTable(
            self.table,
            shards=self._shards(process, index),
            hashed=self.hashing,
            position=position_of if self.has_positions else None,
            clock=world.clock(world.random(f"environment-{index}")),
            budget_ms=600.0,
        )
        opened.simulated = SimulatedExecutor(self.engine, process, THREADS)
        return opened

    def _shards(self, process: Process, index: int) -> Shards:
        if self.is_folding:
            return fixed(0, readable=MOST_SHARDS) if self.is_leaving else fixed(MOST_SHARDS)
        world, calls, random = self.world, open_calls(self.table), self.world.random(f"table-{index}")
        if self.parts.counting:
            settings = Settings.defaults("in_band()", **HOT_AT_ONCE, **SHORT_LEASES)
            ends = open_in_band(calls, self.place, world.telemetry, world.clock(random))
        else:
            settings = Settings.defaults("adaptive()", route_cache_seconds=1.0, **SHORT_LEASES)
            ends = build_ends(world, process, index, random, repairs=True)
            ends = world.mislead(ends, world.random(f"wrong clock {index}"))
            ends = replace(ends, journal=DynamoDBJournal(calls, self.place))
        options = {"place": self.place, "closing": self.has_positions, "times": SHORT_TIMES, "parts": self.parts}
        return SimulatedShards(ends=ends, settings=settings, options=options)


def build_fault_plan(late_share: float = LATE_SHARE, **others: Any) -> FaultPlan:
    """Build the plan of all faults, with late creations and keys that refuse besides; `others` are set as given."""
    plan = ALL_FAULTS.with_odds(late=late_share, hot_keys=HOT_SHARE, load_lost=LOAD_LOST_SHARE)
    return replace(plan, **others, spell=replace(plan.spell, hot_keys=HOT_SHARE_IN_SPELLS))


def judge(by_part: Mapping[str, list[Outcome]]) -> Verdict:
    """Hold all seeds against the bars, which are for 300 of them."""
    ((name, runs),) = by_part.items()
    share = min(1.0, len(runs) / SEEDS)
    found = Counter(breach.fault for run in runs for breach in run.breaches)
    figures = add_up(runs, "counts")
    if name == FOLD.name:
        more = [
            at_least("items moved", figures["moved"], 5 * len(runs), "items"),
            at_least("folds that were killed", figures["folds_killed"], len(runs) // 2, "processes"),
        ]
    else:
        more = close_bars(figures["confirmed_closes"], figures["void_announcements"], share)
    return Verdict(
        fields={**figures, "breaches": dict(found), "faults": add_up(runs, "faults")},
        bars=[*breach_bars("items", found), *more],
        failing=[run.seed for run in runs if run.breaches],
    )


_ABOUT = "Items of a ShardedTable while everything fails: nothing lost, doubled or undone."


def _study(name: str, about: str, run_seed: Callable[[int], Outcome]) -> Study:
    return Study(name, f"{_ABOUT}{about}", [Part(name, run_seed, SEEDS)], judge)


STUDY = _study("table-faults", "", run)
IN_BAND = _study("table-faults-in-band", " Environments find hot keys.", partial(run, is_in_band=True))
FOLD = _study("table-faults-fold", " Items are moved to the base key.", partial(run, folds=True))
