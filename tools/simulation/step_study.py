"""`make simulate-step`: the step of the project's bar, seed by seed, beside some of them without any mitigation.

The same step to other loads and on other tables follows, with fewer seeds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tools.simulation.results import Bar, Distribution, RunResult, Series, StepSeed, StepStudy, StepVariant
from tools.simulation.run import simulate
from tools.simulation.scenarios import STEP_VARIANTS, Scenario, scenario_by_name
from tools.simulation.studies import (
    MISSED,
    at_least,
    at_most,
    parse_seeds,
    replay_command,
    run_all,
    say_bars,
    write_result,
)

SCENARIO = "step"
SEEDS = 100
UNMITIGATED_EACH = 50
"""Each so many seeds, one is run without mitigation as well: what fails there hardly differs, and takes long to run."""
RAISED_SECONDS = 2.0
ON_SHARDS_SECONDS = 4.0
FAILED_SHARE = 0.03
LATE_FAILED_SHARE = 0.01
ONE_RAISE_SHARE = 0.97
MOST_SHARDS = 16
REPEATED_SHARE = 0.03
VARIANT_SEEDS = 4
MOST_SHARDS_OF = {"step-2000-on-32": 8, "step-6000-on-32": 26, "step-10000-on-32": 48}
"""The bars of the variants: the largest N of any seed."""
READ_HOT = "read_hot"
"""The variant that is held to the step's own bars: look-ups of the journal are refused, and relief is as soon."""


def run_seed(seed: int, name: str = SCENARIO) -> RunResult:
    """Run one seed with the product."""
    return _without_series(simulate(scenario_by_name(name), seed, "ours"))


def run_unmitigated(seed: int) -> RunResult:
    """Run one seed without any mitigation."""
    return _without_series(simulate(scenario_by_name(SCENARIO), seed, "none"))


def _without_series(run: RunResult) -> RunResult:
    """Leave out what takes long to hand from process to process."""
    return replace(run, series=Series())


def compare(ours: RunResult, unmitigated_failed_wcu: float) -> StepSeed:
    """Put a seed's run beside what fails without any mitigation."""
    raises = [r.shard_count for r in ours.raises if r.conversation_id == ours.hot_conversation]
    return StepSeed(
        seed=ours.seed,
        raised_seconds=ours.raised_seconds,
        on_shards_seconds=ours.on_shards_seconds,
        relieved_seconds=ours.relieved_seconds,
        shard_counts=tuple(raises),
        failed_wcu=ours.writes.failed_wcu,
        failed_share_of_unmitigated=round(ours.writes.failed_wcu / max(unmitigated_failed_wcu, 1.0), 6),
        late_failed_share_of_offered=round(ours.late_failed_share, 6),
        write_p99_ms=ours.writes.latency_ms.p99,
        repeated_share=ours.repeated_share,
    )


def summarize(runs: Sequence[RunResult], scenario: Scenario) -> StepVariant:
    """Sum up the seeds of one variant."""
    partitions = scenario.table.partitions.count or 0
    room_wcu = partitions * scenario.table.partitions.write_limit_wcu - scenario.other_wcu
    return StepVariant(
        scenario=scenario.name,
        description=scenario.description,
        load_wcu=scenario.oracle_wcu,
        partitions=partitions,
        is_too_small=room_wcu < scenario.oracle_wcu,
        shard_counts=tuple(
            tuple(r.shard_count for r in run.raises if r.conversation_id == run.hot_conversation) for run in runs
        ),
        raised_seconds=Distribution.of([run.raised_seconds for run in runs]),
        on_shards_seconds=Distribution.of([run.on_shards_seconds for run in runs]),
        relieved_seconds=Distribution.of([run.relieved_seconds for run in runs]),
        late_failed_share_of_offered=Distribution.of([round(run.late_failed_share, 6) for run in runs]),
        repeated_share=Distribution.of([run.repeated_share for run in runs]),
    )


def judge(
    ours: Sequence[RunResult],
    unmitigated: Sequence[RunResult],
    scenario: Scenario,
    variants: Sequence[StepVariant] = (),
) -> StepStudy:
    """Sum up all seeds, and hold them against the bars. Of the runs without mitigation the best one counts."""
    baseline_wcu = min(run.writes.failed_wcu for run in unmitigated)
    runs = [compare(run, baseline_wcu) for run in ours]
    raised = Distribution.of([run.raised_seconds for run in runs])
    on_shards = Distribution.of([run.on_shards_seconds for run in runs])
    failed = Distribution.of([run.failed_share_of_unmitigated for run in runs])
    late = Distribution.of([run.late_failed_share_of_offered for run in runs])
    one_raise = sum(len(run.shard_counts) == 1 for run in runs)
    final = Distribution.of([float(max(run.shard_counts, default=0)) for run in runs])
    repeated = [run.repeated_share for run in runs if run.repeated_share is not None]
    mean_repeated = sum(repeated) / len(repeated) if repeated else None
    bars: tuple[Bar, ...] = (
        at_most("onset to raise, p99", raised.p99, RAISED_SECONDS, "s"),
        at_most("onset to 95 % of new writes on shards, p99", on_shards.p99, ON_SHARDS_SECONDS, "s"),
        at_least(
            "seeds in which the final N was reached in one raise", one_raise, ONE_RAISE_SHARE * len(runs), "seeds"
        ),
        at_most("N, worst seed", final.highest, MOST_SHARDS, "shards"),
        at_most("puts beyond one for each write, once on shards", mean_repeated, REPEATED_SHARE, "as a share"),
        at_most("failed writes, of those without mitigation, worst seed", failed.highest, FAILED_SHARE, "as a share"),
        at_most("failed of what was offered after 4 s, worst seed", late.highest, LATE_FAILED_SHARE, "as a share"),
        *(_size_bar(variant) for variant in variants if variant.scenario in MOST_SHARDS_OF),
        *(bar for variant in variants if variant.scenario == READ_HOT for bar in _read_hot_bars(variant)),
    )
    return StepStudy(
        scenario=scenario.name,
        description=scenario.description,
        first_seed=min(run.seed for run in runs),
        seeds=len(runs),
        raised_seconds=raised,
        on_shards_seconds=on_shards,
        relieved_seconds=Distribution.of([run.relieved_seconds for run in runs]),
        final_shard_count=final,
        unmitigated_seeds=tuple(run.seed for run in unmitigated),
        unmitigated_failed_wcu=baseline_wcu,
        failed_share_of_unmitigated=failed,
        late_failed_share_of_offered=late,
        bars=bars,
        passed=all(bar.holds for bar in bars),
        runs=tuple(runs),
        repeated_share=Distribution.of([run.repeated_share for run in runs]),
        variants=tuple(variants),
    )


def _size_bar(variant: StepVariant) -> Bar:
    largest = max((max(counts, default=0) for counts in variant.shard_counts), default=0)
    limit = MOST_SHARDS_OF[variant.scenario]
    return at_most(f"N at {variant.load_wcu:,.0f} WCU/s, worst seed", float(largest), limit, "shards")


def _read_hot_bars(variant: StepVariant) -> tuple[Bar, ...]:
    where = "where the base key's reads are refused"
    raised, on_shards, late = variant.raised_seconds, variant.on_shards_seconds, variant.late_failed_share_of_offered
    return (
        at_most(f"onset to raise, p99, {where}", raised.p99, RAISED_SECONDS, "s"),
        at_most(f"onset to 95 % of new writes on shards, p99, {where}", on_shards.p99, ON_SHARDS_SECONDS, "s"),
        at_most(f"failed after 4 s, worst seed, {where}", late.highest, LATE_FAILED_SHARE, "as a share"),
    )


def say_variant(variant: StepVariant) -> str:
    """Write a variant in one line."""
    counts = "; ".join(", ".join(map(str, each)) or "none" for each in variant.shard_counts)
    relieved = "never" if variant.relieved_seconds.p99 is None else f"within {variant.relieved_seconds.p99:g} s"
    note = " The table is too small for this load." if variant.is_too_small else ""
    return (
        f"{variant.load_wcu:,.0f} WCU/s on {variant.partitions} partitions: N = {counts}; relieved {relieved}; "
        f"failed late {variant.late_failed_share_of_offered.highest or 0:.2%}; puts beyond one for each write "
        f"{variant.repeated_share.highest or 0:.1%}.{note}"
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    seeds, out_dir = parse_seeds("step", arguments, about=__doc__, seeds=SEEDS)
    began = time.perf_counter()
    replay = partial(replay_command, SCENARIO)
    unmitigated = run_all("no mitigation", run_unmitigated, seeds[::UNMITIGATED_EACH], replay=replay)
    ours = run_all("step", run_seed, seeds, replay=replay)
    variants = [
        summarize(
            run_all(name, partial(run_seed, name=name), seeds[:VARIANT_SEEDS], replay=partial(replay_command, name)),
            scenario,
        )
        for name, scenario in STEP_VARIANTS.items()
    ]
    study = judge(ours, unmitigated, scenario_by_name(SCENARIO), variants)
    path = write_result(study, out_dir, "step.json")
    sys.stdout.write(f"{study.description}\n{study.seeds} seeds in {time.perf_counter() - began:.0f} s\n")
    say_bars(study.bars)
    for variant in study.variants:
        sys.stdout.write(say_variant(variant) + "\n")
    sys.stdout.write(f"{path}\n")
    return 0 if study.passed else MISSED
