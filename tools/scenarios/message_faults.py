"""Messages while everything fails: nothing is lost, doubled or undone. `make simulate-faults`.

An operation is one request of a client to the API: a write, a page, a lookup or a change, repetitions included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tools.figures import Outcome, at_least
from tools.history import FAULTS
from tools.scenarios.seeds import Part, Study, Verdict, add_up, breach_bars, close_bars, total
from tools.world.run import simulate
from tools.world.scenario import FAULTY, HOT, SMALL_SHARDS, Changes, FaultPlan, Readers
from tools.world.strategies import in_band, ours
from tools.world.workload import ZipfFlow, constant, stepping

SEEDS, STATUS_SEEDS = 300, 20
LEAST_OPERATIONS = 1_000_000
BODY = (20, 600)
FLOWS = (
    stepping(HOT, loads=(4.0, 50.0), between=(4.0, 20.0), body_bytes=BODY),
    stepping("second-room-{seed}", loads=(3.0, 40.0), between=(9.0, 17.0), body_bytes=(20, 1800)),
    stepping(
        "third-room-{seed}",
        loads=(0.0, 30.0),
        between=(13.0, 21.0),
        body_bytes=BODY,
        age_seconds=(100.0, 160.0),
        backwards_seconds=5.0,
    ),
    ZipfFlow(conversations=6, shape=constant(12.0), body_bytes=BODY),
)
SCENARIO = replace(
    FAULTY,
    name="faults",
    flows=FLOWS,
    readers=Readers(
        per_second=14.0,
        newest=0.45,
        complete=0.1,
        bounded=0.25,
        lookups=0.2,
        strong_share=0.75,
        hot_share=0.5,
        limits=(3, 10, 25, 50),
        long_limits=(25, 60, 200),
        poll_limits=(5,),
    ),
    changes=Changes(per_second=10.0, repeated_share=0.15, expiring_share=0.05),
)
HUNTED = (
    stepping(HOT, loads=(2.0, 40.0), between=(1.0, 8.0), body_bytes=BODY),
    stepping(
        "old-room-{seed}",
        loads=(1.0, 35.0),
        between=(2.0, 7.0),
        body_bytes=BODY,
        age_seconds=(20.0, 40.0),
        backwards_seconds=3.0,
    ),
)
HUNT = replace(
    SCENARIO,
    name="hunt",
    flows=HUNTED,
    seconds=9.0,
    onset=1.0,
    drain_seconds=6.0,
    readers=replace(
        SCENARIO.readers,
        per_second=50.0,
        newest=0.7,
        complete=0.05,
        bounded=0.15,
        lookups=0.1,
        strong_share=1.0,
        hot_share=0.6,
    ),
    changes=replace(SCENARIO.changes, per_second=25.0, repeated_share=0.3),
    faults=FaultPlan(
        consumer_kills=0.05,
        redis_outages=0.05,
        stream_trims=0.02,
        consumer_crash=0.3,
        redis_lost=0.05,
        skew_ms=2500.0,
    ),
)
"""As `SCENARIO`, but small: two conversations get hot at once, and readers always look. What is broken shows soon."""
STATUSES = replace(
    HUNT,
    name="statuses",
    faults=None,
    settings=SMALL_SHARDS,
    seconds=12.0,
    readers=replace(HUNT.readers, per_second=2.0),
    changes=Changes(repeated_share=0.6, again_seconds=4.0),
)
"""Nothing fails but hot keys: a repetition of what is acknowledged is answered as one."""


def run(seed: int, *, is_in_band: bool = False) -> Outcome:
    """Run one seed: clients and faults, then calm, then everything is read from both ends, and judged."""
    return simulate(SCENARIO, seed, in_band() if is_in_band else ours())


def run_statuses(seed: int) -> Outcome:
    """Run one seed in which nothing fails but hot keys, and most writes are sent again."""
    return simulate(STATUSES, seed, ours())


def judge(by_part: Mapping[str, list[Outcome]]) -> Verdict:
    """Hold all seeds against the bars, which are for 300 of them."""
    runs, *_ = by_part.values()
    judged = [run for part in by_part.values() for run in part]
    share = min(1.0, len(runs) / SEEDS)
    found = {fault: sum(run.safety.found[fault] for run in judged) for fault in FAULTS}
    operations, confirmed = total(runs, "operations"), sum(run.closes[0] for run in runs)
    void = sum(run.closes[1] for run in runs)
    return Verdict(
        fields={"operations": operations, "faults": add_up(runs, "faults")},
        bars=[
            *breach_bars("messages", found),
            at_least("client requests", operations, int(LEAST_OPERATIONS * share), "requests"),
            *close_bars(confirmed, void, share),
        ],
        failing=[run.seed for run in judged if any(run.safety.found.values())],
    )


_ABOUT = "Messages while everything fails: nothing lost, doubled or undone."
STUDY = Study("faults", _ABOUT, [Part("faults", run, SEEDS), Part("statuses", run_statuses, STATUS_SEEDS)], judge)
IN_BAND = Study(
    "faults-in-band", f"{_ABOUT} Writers find hot keys.", [Part("faults", partial(run, is_in_band=True), SEEDS)], judge
)
