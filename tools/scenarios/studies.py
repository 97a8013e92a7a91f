"""The studies: many seeds on worker processes, held against bars.

- `make simulate-faults`: messages with all faults on. An operation is one request of a client to the API: a write, a
  page or a lookup, repetitions included. What the functions then ask of DynamoDB and Redis is counted apart.
- `make simulate-table-faults`: items of a `ShardedTable` are created, changed, overwritten and deleted by environments
  that die, among raises, over a network that loses, delays and refuses. An operation is one call of the library. With
  `FOLD=1` their shards are fixed, and left half-way: items are moved to the base key meanwhile.
- `make simulate-counters`: a rush, in which one counter steps to 10,000 additions a second, without tokens; none is
  refused once its raise has reached the writers. And additions with tokens, while environments die, responses get lost,
  requests happen late, the counters are raised, and clients repeat; each counts once. In odd seeds a cancelled
  transaction binds its token, in even ones it does not.
- `make simulate-step`: the step of the project's bar, beside some seeds of it without any mitigation. The same step to
  other loads and on other tables follows, with fewer seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tools.figures import MISSED, Bar, Distribution, at_least, at_most, say_bars
from tools.limits import TableConfig
from tools.scenarios.counter_faults import RushRun, TokenRun, run_rush, run_tokens
from tools.scenarios.results import (
    OUT_DIR,
    FaultSeed,
    FaultStudy,
    FaultyStudy,
    RunResult,
    Series,
    StepSeed,
    StepStudy,
    StepVariant,
    write_result,
)
from tools.scenarios.table_faults import TableParts, TableRun, run_table
from tools.seeds import open_workers
from tools.world.run import simulate
from tools.world.scenario import STEP_VARIANTS, Scenario, scenario_by_name

ResultT = TypeVar("ResultT")

MOST_SEEDS = 300
COUNTER_SEEDS = 50
RUSH_SEEDS = 3
LEAST_OPERATIONS = 1_000_000
LEAST_CLOSES, LEAST_VOID = 500, 100
CLOSES = ("confirmed_closes", "void_announcements")
LEAST_ADDITIONS = 2_000
"""Of each seed, on average: 100,000 of them all."""
MESSAGES, TABLES, COUNTERS = "faults", "table-faults", "counters"
IN_BAND, FOLD = "-in-band", "-fold"
TABLE_PARTS = {
    TABLES: TableParts(),
    TABLES + IN_BAND: TableParts(is_in_band=True),
    TABLES + FOLD: TableParts(folds=True),
}
"""What each study of tables is made of."""
STEP = "step"
STEP_SEEDS = 100
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


def replay_command(scenario: str, seed: int) -> str:
    """Name the command that runs a seed again."""
    return f"make simulate-replay SCENARIO={scenario} SEED={seed}"


def replay_study(command: str, seed: int) -> str:
    """Name the command that runs a seed of a study again."""
    return f"python -m tools.scenarios {command} --first-seed {seed} --seeds 1"


def parse_seeds(command: str, arguments: Sequence[str], *, about: str | None, seeds: int) -> tuple[range, Path]:
    """Parse the command line of a study: its seeds, `seeds` of them by default, and the folder for its result."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.scenarios {command}", description=about)
    parser.add_argument("--seeds", type=int, default=seeds, help=f"how many ({seeds})")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT_DIR)
    options = parser.parse_args(arguments)
    return range(options.first_seed, options.first_seed + options.seeds), options.out


def run_all(
    name: str, work: Callable[[int], ResultT], seeds: Sequence[int], *, replay: Callable[[int], str]
) -> list[ResultT]:
    """Do the work for each seed; results come in the order of the seeds.

    `replay` names the command that runs a seed again.
    """
    with open_workers({name: len(seeds)}) as (pool, advance):
        futures = {seed: pool.submit(work, seed) for seed in seeds}
        for future in futures.values():
            future.add_done_callback(lambda _: advance[name]())
        return [_result_of(future, replay(seed)) for seed, future in futures.items()]


def _result_of(future: Future[ResultT], command: str) -> ResultT:
    """Return a seed's result; whatever broke it is raised, and what it takes to see it again is said."""
    if error := future.exception():
        sys.stderr.write(f"a run broke; see it again with: {command}\n")
        raise error
    return future.result()


def _common(
    scenario: str,
    runs: Sequence[FaultSeed | TableRun | TokenRun],
    bars: tuple[Bar, ...],
    *,
    failing: tuple[int, ...],
    summed: Sequence[str],
) -> dict[str, Any]:
    """Build the fields of a `FaultyStudy`, and the sums of what each run counts under the names `summed`."""
    faults: Counter[str] = Counter()
    for run in runs:
        faults.update(dict(run.faults))
    return {
        "scenario": scenario,
        "first_seed": min(run.seed for run in runs),
        "seeds": len(runs),
        "faults": tuple(sorted(faults.items())),
        "failing_seeds": failing,
        "bars": bars,
        "passed": all(bar.holds for bar in bars),
        "runs": tuple(runs),
        **{name: sum(getattr(run, name) for run in runs) for name in summed},
    }


def run_messages(seed: int, strategy: str = "ours") -> FaultSeed:
    """Run one seed."""
    run = simulate(scenario_by_name(MESSAGES), seed, strategy)
    return FaultSeed(
        seed=seed,
        operations=run.operations,
        store_operations=run.cost.store_operations,
        acknowledged=run.safety.acknowledged,
        raises=len(run.raises),
        confirmed_closes=run.closes[0],
        void_announcements=run.closes[1],
        safety=run.safety,
        faults=run.faults,
    )


def _close_bars(runs: Sequence[FaultSeed] | Sequence[TableRun]) -> tuple[Bar, Bar]:
    """Hold what was closed against the bars, which are for all seeds."""
    share = min(1.0, len(runs) / MOST_SEEDS)
    confirmed = sum(run.confirmed_closes for run in runs)
    void = sum(run.void_announcements for run in runs)
    return (
        at_least("confirmed closes", confirmed, int(LEAST_CLOSES * share), "closes"),
        at_least("announcements that stay void", void, int(LEAST_VOID * share), "announcements"),
    )


def judge_messages(
    runs: Sequence[FaultSeed], *, least_seeds: int = MOST_SEEDS, least_operations: int = LEAST_OPERATIONS
) -> FaultStudy:
    """Sum up all seeds, and hold them against the bars."""
    operations = sum(run.operations for run in runs)
    lost = sum(run.safety.missing for run in runs)
    doubled = sum(run.safety.duplicated for run in runs)
    undone = sum(run.safety.resurrected + run.safety.undone for run in runs)
    others = sum(
        run.safety.out_of_order + run.safety.altered + run.safety.phantom + run.safety.unverified for run in runs
    )
    bars = (
        at_least("seeds", len(runs), least_seeds, "seeds"),
        at_least("operations", operations, least_operations, "client requests"),
        at_most("lost messages", lost, 0, "messages"),
        at_most("doubled messages", doubled, 0, "messages"),
        at_most("deletions and edits undone", undone, 0, "messages"),
        at_most("other breaches (order, content, invented, not looked for)", others, 0, "messages"),
        *_close_bars(runs),
    )
    return FaultStudy(
        **_common(
            MESSAGES,
            runs,
            bars,
            failing=tuple(run.seed for run in runs if not run.safety.holds),
            summed=("operations", "store_operations", "acknowledged", "raises", *CLOSES),
        ),
        reads=sum(run.safety.reads for run in runs),
        lost=lost,
        doubled=doubled,
        other_breaches=others,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStudy(FaultyStudy):
    """All seeds together, and how they stand against the bars."""

    operations: int
    store_operations: int
    created: int
    changed: int
    deleted: int
    reads: int
    raises: int
    confirmed_closes: int
    void_announcements: int
    lost: int
    doubled: int
    updates_lost: int
    other_breaches: int
    runs: tuple[TableRun, ...]


def run_tables(seed: int, *, name: str = TABLES) -> TableRun:
    """Run one seed of a study."""
    return run_table(seed, TABLE_PARTS[name])


def judge_tables(runs: Sequence[TableRun], *, name: str = TABLES, least_seeds: int = MOST_SEEDS) -> TableStudy:
    """Sum up all seeds of a study, and hold them against the bars."""
    parts = TABLE_PARTS[name]
    killed = sum(run.folds_killed for run in runs)
    found: Counter[str] = Counter(breach.fault for run in runs for breach in run.breaches)
    lost, doubled, updates_lost = (found[fault] for fault in ("missing", "duplicated", "undone"))
    others = found.total() - lost - doubled - updates_lost
    bars = (
        at_least("seeds", len(runs), least_seeds, "seeds"),
        at_most("lost items", lost, 0, "items"),
        at_most("doubled items and changes", doubled, 0, "items"),
        at_most("lost changes", updates_lost, 0, "changes"),
        at_most("other breaches (order, invented, come back)", others, 0, "items"),
        *(() if parts.folds else _close_bars(runs)),
        *([at_least("items moved", sum(run.moved for run in runs), 5 * len(runs), "items")] if parts.folds else []),
        *([at_least("folds that were killed", killed, len(runs) // 2, "processes")] if parts.folds else []),
    )
    return TableStudy(
        **_common(
            name,
            runs,
            bars,
            failing=tuple(run.seed for run in runs if run.breaches),
            summed=("operations", "created", "changed", "deleted", "reads", "raises", *CLOSES),
        ),
        store_operations=sum(run.requests for run in runs),
        lost=lost,
        doubled=doubled,
        updates_lost=updates_lost,
        other_breaches=others,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterStudy(FaultyStudy):
    """All seeds together, and how they stand against the bars."""

    additions: int
    attempts: int
    reads: int
    raises: int
    breaches: int
    rushes: tuple[RushRun, ...]
    runs: tuple[TokenRun, ...]


def judge_counters(
    runs: Sequence[TokenRun], rushes: Sequence[RushRun], *, least_seeds: int = COUNTER_SEEDS
) -> CounterStudy:
    """Sum up all seeds, and hold them against the bars."""
    failing = tuple(run.seed for run in runs if run.breaches)
    additions = sum(run.persisted for run in runs)
    bars = (
        at_least("seeds in which every addition with a token counted once", len(runs) - len(failing), least_seeds, ""),
        at_least(
            "additions with tokens that were repeated until acknowledged", additions, LEAST_ADDITIONS * least_seeds, ""
        ),
        at_least("additions in a second of the rush", min(run.per_second for run in rushes), 9_800, ""),
        at_most("onset of the rush to its raise", max(run.raised_seconds or 1e9 for run in rushes), 2.0, "s"),
        at_most(
            "refused, begun half a second after the raise or later",
            max(run.refused_after for run in rushes),
            0,
            "additions",
        ),
        at_most("wrong sums in rushes", sum(len(run.breaches) for run in rushes), 0, "reads"),
    )
    return CounterStudy(
        **_common(COUNTERS, runs, bars, failing=failing, summed=("attempts", "reads", "raises")),
        additions=additions,
        breaches=sum(len(run.breaches) for run in runs),
        rushes=tuple(rushes),
    )


def _finish(
    study: FaultyStudy,
    out_dir: Path,
    began: float,
    figures: str,
    *,
    replay: Callable[[int], str],
    details: str = "",
) -> int:
    """Write a study's result, print its figures, bars and how to replay what failed, and return the exit status."""
    path = write_result(study, out_dir, f"{study.scenario}.json")
    struck = ", ".join(f"{name} {count:,}" for name, count in study.faults)
    sys.stdout.write(f"{figures}, {time.perf_counter() - began:.0f} s\nstruck: {struck}\n{details}")
    say_bars(study.bars)
    for seed in study.failing_seeds:
        sys.stdout.write(f"replay with: {replay(seed)}\n")
    sys.stdout.write(f"{path}\n")
    return 0 if study.passed else MISSED


def study_messages(arguments: Sequence[str], *, strategy: str = "ours") -> int:
    """Run the command `faults`, or `faults-in-band`."""
    name = MESSAGES if strategy == "ours" else MESSAGES + IN_BAND
    seeds, out_dir = parse_seeds(name, arguments, about=__doc__, seeds=MOST_SEEDS)
    began = time.perf_counter()
    replay = partial(replay_command, MESSAGES) if strategy == "ours" else partial(replay_study, name)
    runs = run_all("faults", partial(run_messages, strategy=strategy), seeds, replay=replay)
    study = replace(judge_messages(runs), scenario=name)
    figures = (
        f"{study.seeds} seeds, {study.operations:,} client requests ({study.store_operations:,} requests to DynamoDB), "
        f"{study.acknowledged:,} acknowledged messages, {study.reads:,} reads, {study.raises:,} raises, "
        f"{study.confirmed_closes:,} closes, {study.void_announcements:,} void announcements"
    )
    return _finish(study, out_dir, began, figures, replay=replay)


def study_tables(arguments: Sequence[str], *, name: str = TABLES) -> int:
    """Run the command `name`, one of `TABLE_PARTS`."""
    seeds, out_dir = parse_seeds(name, arguments, about=__doc__, seeds=MOST_SEEDS)
    began = time.perf_counter()
    replay = partial(replay_study, name)
    runs = run_all("table", partial(run_tables, name=name), seeds, replay=replay)
    study = judge_tables(runs, name=name, least_seeds=min(MOST_SEEDS, len(seeds)))
    figures = (
        f"{study.seeds} seeds, {study.operations:,} calls ({study.store_operations:,} requests to DynamoDB), "
        f"{study.created:,} items created, {study.changed:,} changes, {study.deleted:,} deleted, "
        f"{study.reads:,} reads, {study.raises:,} raises, "
        f"{study.confirmed_closes:,} closes, {study.void_announcements:,} void announcements"
    )
    return _finish(study, out_dir, began, figures, replay=replay)


study_messages_in_band = partial(study_messages, strategy="in_band")
study_tables_in_band = partial(study_tables, name=TABLES + IN_BAND)
study_folds = partial(study_tables, name=TABLES + FOLD)


def study_counters(arguments: Sequence[str]) -> int:
    """Run the command `counters`."""
    seeds, out_dir = parse_seeds(COUNTERS, arguments, about=__doc__, seeds=COUNTER_SEEDS)
    began = time.perf_counter()
    replay = partial(replay_study, COUNTERS)
    rushes = run_all("rush", run_rush, seeds[:RUSH_SEEDS], replay=replay)
    runs = run_all("tokens", run_tokens, seeds, replay=replay)
    study = judge_counters(runs, rushes, least_seeds=min(COUNTER_SEEDS, len(seeds)))
    figures = (
        f"{study.seeds} seeds, {study.additions:,} additions with tokens, repeated until acknowledged "
        f"({study.attempts:,} attempts), {study.raises:,} raises, {study.reads:,} reads"
    )
    details = "".join(
        f"rush {rush.seed}: {rush.offered:,} additions, raised to {', '.join(map(str, rush.shard_counts))} after "
        f"{rush.raised_seconds:.2f} s; {rush.refused:,} refused before; then p99 {rush.latency_after_ms.p99:g} ms, "
        f"{rush.attempts_for_each_after:g} requests for each\n"
        for rush in study.rushes
    )
    return _finish(study, out_dir, began, figures, replay=replay, details=details)


def run_seed(seed: int, name: str = STEP, strategy: str = "ours") -> RunResult:
    """Run one seed; its course is left out, which takes long to hand from process to process."""
    return replace(simulate(scenario_by_name(name), seed, strategy), series=Series())


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
    limits = (scenario.table or TableConfig()).partitions
    partitions = limits.count or 0
    room_wcu = partitions * limits.write_limit_wcu - scenario.other_wcu
    return StepVariant(
        scenario=scenario.name,
        description=scenario.description,
        load_wcu=scenario.hot_wcu,
        partitions=partitions,
        is_too_small=room_wcu < scenario.hot_wcu,
        shard_counts=tuple(
            tuple(r.shard_count for r in run.raises if r.conversation_id == run.hot_conversation) for run in runs
        ),
        raised_seconds=Distribution.of([run.raised_seconds for run in runs]),
        on_shards_seconds=Distribution.of([run.on_shards_seconds for run in runs]),
        relieved_seconds=Distribution.of([run.relieved_seconds for run in runs]),
        late_failed_share_of_offered=Distribution.of([round(run.late_failed_share, 6) for run in runs]),
        repeated_share=Distribution.of([run.repeated_share for run in runs]),
    )


def judge_step(
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


def study_step(arguments: Sequence[str]) -> int:
    """Run the command `step`."""
    seeds, out_dir = parse_seeds("step", arguments, about=__doc__, seeds=STEP_SEEDS)
    began = time.perf_counter()
    replay = partial(replay_command, STEP)
    unmitigated = run_all("no mitigation", partial(run_seed, strategy="none"), seeds[::UNMITIGATED_EACH], replay=replay)
    ours = run_all("step", run_seed, seeds, replay=replay)
    variants = [
        summarize(
            run_all(name, partial(run_seed, name=name), seeds[:VARIANT_SEEDS], replay=partial(replay_command, name)),
            scenario,
        )
        for name, scenario in STEP_VARIANTS.items()
    ]
    study = judge_step(ours, unmitigated, scenario_by_name(STEP), variants)
    path = write_result(study, out_dir, "step.json")
    sys.stdout.write(f"{study.description}\n{study.seeds} seeds in {time.perf_counter() - began:.0f} s\n")
    say_bars(study.bars)
    for variant in study.variants:
        sys.stdout.write(say_variant(variant) + "\n")
    sys.stdout.write(f"{path}\n")
    return 0 if study.passed else MISSED
