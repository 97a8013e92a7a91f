"""`make simulate-in-band`: hot keys found in band, by 50 and by 1,000 processes; and quiet ones left alone.

Each process is one engine of the product with `in_band()`'s parts, on its own adapters: its writer, what counts, the
routes, load items and journal. Nothing is closed, as is `in_band()`'s default: with closing, each process reads the
journal once more in ten minutes for each raised key. Clients write at random instants, and no write waits for another.
Items are of 1 KiB for 5.5 s after the step, by which it is judged, and of 16 KiB from then on, where only units are
counted.

The 100 hours are of a key with 600 WCU/s that 300 processes write to, while a neighbour has a third of its writes
refused: counting and decisions are the product's, what lies between them takes no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import RetryLaterError, ThrottledError
from hotpartition.core.fleet_load import Cell, FleetLoad
from hotpartition.core.items import ItemKey
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Generation
from hotpartition.core.times import StoreClock
from hotpartition.engine.in_band import MARKED_MS, InBandCounting
from hotpartition.engine.journal_routes import JournalRoutes
from hotpartition.engine.load_counting import Offer
from hotpartition.engine.raising import Raised
from hotpartition.runtime.build import build_engine, build_thresholds
from hotpartition.runtime.connect import open_in_band
from hotpartition.runtime.settings import Settings
from hotpartition.table.routes import LoggedTelemetry
from hotpartition_messages import jobs
from hotpartition_messages.attributes import NO_ATTRIBUTES
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.writing import MessageWriter, NewMessage
from tools.figures import Bar, Outcome, at_least, at_most
from tools.scenarios.seeds import Part, Study, Verdict, spread, total
from tools.scenarios.step import LARGE_BODY, SMALL_BODY, step
from tools.world.clock import EPOCH_MS
from tools.world.meter import BIN_SECONDS
from tools.world.product import TABLE, World, open_store
from tools.world.workload import ConversationFlow, Step

SEEDS = 100
BEFORE_WCU = 200.0
OTHER_WCU = 10_000.0
"""Of other keys: 312 WCU/s on each of 32 partitions."""
ONSET = 3.0
HEAT_SECONDS = 45.0
JUDGED_SECONDS = 5.5
"""From the onset on: what failed is held against what was offered in that time."""
QUIET_SECONDS = 30.0
"""How long after its relief a key costs nothing more, but a look at the journal once a minute."""
BUDGET_MS = 1_000.0
FALSE_HOURS = 100
FALSE_WCU = 600.0
FALSE_ITEM_WCU = 2
FALSE_PROCESSES = 300
FALSE_REFUSED_SHARE = 0.3
_SETTINGS = Settings.defaults("in_band()")
THRESHOLDS = build_thresholds(_SETTINGS, is_sustained=False)


@dataclass(frozen=True, slots=True)
class Variant:
    """A step to a load, the number of processes that offer it, and its bars."""

    name: str
    load_wcu: float
    processes: int
    raised_seconds: float | None = None
    relieved_seconds: float | None = None
    failed_share: float | None = None
    most_shards: int | None = None


VARIANTS = (
    Variant("4,000 WCU/s, 50 processes", 4_000.0, 50, relieved_seconds=2.5, failed_share=0.001, most_shards=16),
    Variant("4,000 WCU/s, 1,000 processes", 4_000.0, 1_000, relieved_seconds=2.5, failed_share=0.001, most_shards=16),
    Variant("10,000 WCU/s, 50 processes", 10_000.0, 50, relieved_seconds=4.0, failed_share=0.015),
    Variant("1,300 WCU/s, 50 processes", 1_300.0, 50, raised_seconds=4.0),
)


def run_variant(seed: int, variant: Variant) -> Outcome:
    """Run one seed of a variant. Seconds count from the onset; None: it did not happen.

    `units_before`: beside the items, while nothing was refused. `units_after`: from 30 s after the relief on, without
    one look-up for each process.
    """
    with _Rush(variant, seed) as rush:
        return rush.outcome()


class _Rush(World):
    """One run under way."""

    def __init__(self, variant: Variant, seed: int) -> None:
        scenario = replace(step(), seconds=ONSET + HEAT_SECONDS, drain_seconds=2.0, hot_conversation="hot")
        super().__init__(seed, scenario, chance=f"{variant.name}/")
        self.variant = variant
        self.failed_wcu = 0.0
        self.chance = self.random("rush")
        self.writers = [self._build_writer(index) for index in range(variant.processes)]

    def outcome(self) -> Outcome:
        """Let it happen, and sum it up."""
        engine, meter, end, judged = self.engine, self.meter, ONSET + HEAT_SECONDS, ONSET + JUDGED_SECONDS
        self.charge_others(OTHER_WCU, 0.01)
        shape = Step(before=BEFORE_WCU, after=self.variant.load_wcu, onset=ONSET)
        small = ConversationFlow(conversation_id="hot", shape=shape, body_bytes=SMALL_BODY, end=judged)
        large = ConversationFlow(conversation_id="hot", shape=shape, body_bytes=LARGE_BODY, start=judged, end=end)
        for flow in (small, large):
            for arrival in flow.arrivals(end, self.chance):
                engine.at(arrival.at, partial(self._write, "x" * arrival.body_bytes))
        engine.at(BIN_SECONDS, partial(self._note_units, 0.0))
        engine.run_until(self.end)
        refused = [number * BIN_SECONDS for number, each in enumerate(meter.bins) if each["waited"]]
        first, last = (refused[0], refused[-1]) if refused else (self.end, self.end)
        unmarked = min(last + MARKED_MS / 1000 + 2 * BIN_SECONDS, self.end)
        quiet = unmarked - BIN_SECONDS + QUIET_SECONDS - MARKED_MS / 1000
        items = meter.total("hot stored", first, unmarked)
        relieved = meter.relieved_seconds(ONSET, judged, step=BIN_SECONDS)
        return Outcome(
            seed=self.seed,
            raised_seconds=meter.raised_seconds(ONSET),
            relieved_seconds=None if relieved is None or relieved > JUDGED_SECONDS - 1.0 else relieved,
            shard_counts=meter.shard_counts(),
            failed_share=round(self.failed_wcu / (self.variant.load_wcu * JUDGED_SECONDS), 6),
            units_before=meter.total("units", 0.0, first),
            units_share_while_marked=round(meter.total("units", first, unmarked) / max(items, 1.0), 4),
            units_after=max(0.0, meter.total("units", quiet) - 0.5 * self.variant.processes),
        )

    def _build_writer(self, index: int) -> MessageWriter:
        random = self.random(f"process-{index}")
        clock = self.clock(random)
        ends = open_in_band(self.calls("in band"), TABLE.journal, self.meter, clock)
        engine = build_engine(ends, _SETTINGS, form=KEY_FORM, budget_ms=BUDGET_MS, closing=False)
        store = open_store(self.calls("writer"))
        return jobs.build_writer(engine, store, self.settings["write"], random_bits=random.getrandbits)

    def _write(self, body: str) -> None:
        writer = self.writers[self.chance.randrange(len(self.writers))]
        wcu, is_judged = len(body) // 1_024 + 1, 0 <= self.engine.now - ONSET < JUDGED_SECONDS

        def write() -> None:
            self.meter.note_offered("hot", self.engine.now, wcu)
            try:
                writer.write(NewMessage("hot", "ann", body, NO_ATTRIBUTES))
            except RetryLaterError:
                self.failed_wcu += wcu * is_judged

        self.engine.spawn(write)

    def _note_units(self, before: float) -> None:
        """Note what load items and journal took in the bin that ends now."""
        counts = self.store.counts_of("in band")
        taken = counts.wcu + counts.rcu
        self.meter.bins[round(self.engine.now / BIN_SECONDS) - 1]["units"] = taken - before
        self.engine.after(BIN_SECONDS, partial(self._note_units, taken))


class _Memory:
    """A load item and a journal in memory; nothing is ever raised, only counted."""

    def __init__(self) -> None:
        self.load: dict[Cell, float] = {}
        self.raises = 0

    def add(self, collection: str, place: int, cell: Cell, wcu: float, *, stale: Sequence[Cell] = ()) -> FleetLoad:
        """Implement `LoadItems.add`."""
        del collection, place
        for old in stale:
            self.load.pop(old, None)
        self.load[cell] = self.load.get(cell, 0.0) + wcu
        return self.load

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        """Implement `JournalReading.get`."""
        del collection, is_strong
        return JournalEntry()

    def raise_route(self, collection: str, generations: Sequence[Generation], **_: Any) -> Raised:
        """Count a raise, as `Raiser` would make it."""
        del collection, generations
        self.raises += 1
        return Raised(JournalEntry(), is_in_registry=True)


def count_false_raises(seed: int, *, seconds: float = 3_600.0, wcu: float = FALSE_WCU) -> int:
    """Count how often a key is raised that a neighbour has throttled all the time.

    Each process is the product's own counting, on one load item in memory. They are many and thin: that varies most.
    """
    random, memory, now_ms, telemetry = Random(seed), _Memory(), [float(EPOCH_MS)], LoggedTelemetry()
    clock = Clock(now_ms=lambda: int(now_ms[0]), sleep=lambda _: None, random=random.random)
    anything: Any = memory
    fleet = [
        InBandCounting(
            routes=JournalRoutes(journal=memory, telemetry=telemetry, now_ms=clock.now_ms, random=random.random),
            journal=memory,
            loads=anything,
            raiser=anything,
            store_clock=StoreClock(),
            telemetry=telemetry,
            clock=clock,
            thresholds=THRESHOLDS,
        )
        for _ in range(FALSE_PROCESSES)
    ]
    refusal = ThrottledError(["TableWriteKeyRangeThroughputExceeded"])
    while now_ms[0] < EPOCH_MS + seconds * 1_000:
        now_ms[0] += random.expovariate(wcu / FALSE_ITEM_WCU) * 1_000
        counting, at_ms = fleet[int(random.random() * FALSE_PROCESSES)], int(now_ms[0])
        offer = Offer(ItemKey("quiet", "k", at_ms, "k"), FALSE_ITEM_WCU)
        report = counting.offered(offer, at_ms)
        if random.random() < FALSE_REFUSED_SHARE:
            counting.refused(offer, at_ms, report, refusal)
        else:
            counting.served("quiet")
    return memory.raises


def bars_of(variant: Variant, runs: Sequence[Outcome]) -> Iterator[Bar]:
    """Hold the seeds of a variant against its bars."""
    name = variant.name
    fields = ("raised_seconds", "relieved_seconds", "units_share_while_marked", "failed_share")
    raised, relieved, marked, failed = spread(runs, *fields).values()
    quiet = total(runs, "units_before") + total(runs, "units_after")
    yield at_most(f"{name}: units beside the items, quiet", quiet, 0.0, "units")
    yield at_most(f"{name}: while marked, p99", marked.p99, 0.06, "of the items'")
    if variant.raised_seconds is not None:
        yield at_most(f"{name}: onset to raise, p99", raised.p99, variant.raised_seconds, "s")
    if variant.relieved_seconds is not None:
        few = sum(len(run.shard_counts) <= 2 for run in runs)
        yield at_most(f"{name}: onset to relief, p99", relieved.p99, variant.relieved_seconds, "s")
        yield at_most(f"{name}: failed, worst seed", failed.highest, variant.failed_share or 0.0, "as a share")
        yield at_least(f"{name}: seeds with two raises at most", few, 0.95 * len(runs), "seeds")
    if variant.most_shards is not None:
        highest = max(max(run.shard_counts, default=0) for run in runs)
        yield at_most(f"{name}: N, worst seed", highest, variant.most_shards, "shards")


def judge(by_part: Mapping[str, list[Any]]) -> Verdict:
    """Hold all variants and the quiet hours against the bars."""
    hours = by_part["quiet hours"]
    bars = [bar for variant in VARIANTS for bar in bars_of(variant, by_part[variant.name])]
    return Verdict(bars=[*bars, at_most(f"raises in {len(hours)} hours of 600 WCU/s", sum(hours), 1, "raises")])


STUDY = Study(
    "in-band",
    "Hot keys found in band, by 50 and by 1,000 processes; and quiet ones left alone.",
    [
        *(Part(variant.name, partial(run_variant, variant=variant), SEEDS) for variant in VARIANTS),
        Part("quiet hours", count_false_raises, FALSE_HOURS),
    ],
    judge,
    file="in_band.json",
)
