"""Results as the report takes them, made up: a rush that each strategy meets in its own way."""

from __future__ import annotations

from tools.simulation.phases import PhaseName
from tools.simulation.read_rush import RUSHES, ReadRush, RushRun, RushStudy, Second
from tools.simulation.report_contents import Contents
from tools.simulation.report_pictures import HALVES
from tools.simulation.results import (
    Bar,
    Comparison,
    Cost,
    Distribution,
    Latency,
    Phase,
    Raise,
    Reads,
    RunResult,
    Safety,
    Series,
    StrategySummary,
    Writes,
)
from tools.simulation.scale import ScaleLevel, ScaleStudy
from tools.simulation.tuning import PLANS, Point, Sweep, TuningStudy

BINS = 140
ONSET_BIN = 20
STRATEGIES = ("none", "sdk", "sources", "alarm", "queue", "static", "ours", "oracle")


def run_of(strategy: str, *, relieved_bin: int | None, shards: int) -> RunResult:
    """A step from 100 to 4,000 WCU/s, of which a base key serves 1,000 until relief."""
    offered = [1000.0 if i >= ONSET_BIN else 25.0 for i in range(BINS)]
    relief = BINS if relieved_bin is None else relieved_bin
    failed = [650.0 if ONSET_BIN <= i < relief else 0.0 for i in range(BINS)]
    stored = [a - b for a, b in zip(offered, failed, strict=True)]
    on_shards = [s if i >= relief else 0.0 for i, s in enumerate(stored)]
    raised_at = None if relieved_bin is None else (relief - ONSET_BIN) / 8 + 5.0
    return RunResult(
        scenario="compare",
        seed=1,
        strategy=strategy,
        duration_seconds=35.0,
        onset_seconds=5.0,
        hot_conversation="hot-room",
        operations=30_000,
        writes=Writes(
            offered=30_000,
            stored=30_000 - int(sum(failed) / 4),
            failed=int(sum(failed) / 4),
            offered_wcu=sum(offered),
            failed_wcu=sum(failed),
            requests=31_000,
            throttled_attempts=int(sum(failed)),
            latency_ms=Latency(count=30_000, mean=12.0, p50=9.5, p95=20.0, p99=45.5, p999=320.0, longest=900.0),
        ),
        reads=Reads(
            pages=600,
            failed=0,
            queries_per_page=1.0 + shards,
            items_per_page=50.0,
            rcu_per_page=6.5 + shards / 2,
            latency_ms=Latency(count=600, mean=9.0, p50=8.0, p95=15.0, p99=25.0, p999=40.0, longest=60.0),
        ),
        cost=Cost(
            wcu=120_000.0, rcu=4_500.0, reports=24_000, redis_commands=60_000, store_operations=40_000, cold_starts=0
        ),
        safety=Safety(
            acknowledged=29_000, reads=700, missing=0, duplicated=0, out_of_order=0, altered=0, phantom=0, unverified=0
        ),
        raises=()
        if raised_at is None
        else (
            Raise(
                at_seconds=raised_at, conversation_id="hot-room", shard_count=shards, since_seconds=4.9, reason="raised"
            ),
        ),
        final_shard_count=shards,
        raised_seconds=None if raised_at is None else raised_at - 5.0,
        relieved_seconds=None if relieved_bin is None else (relief - ONSET_BIN) / 4,
        on_shards_seconds=None if relieved_bin is None else (relief - ONSET_BIN) / 4 - 0.5,
        late_failed_share=0.0 if relieved_bin is not None else 0.65,
        series=Series(
            bin_seconds=0.25,
            offered_wcu=tuple(offered),
            stored_wcu=tuple(stored),
            on_shards_wcu=tuple(on_shards),
            failed_wcu=tuple(failed),
            throttled_wcu=tuple(3 * f for f in failed),
            table_wcu=tuple(stored),
            shard_count=tuple(shards if i >= relief - 4 else 0 for i in range(BINS)),
            reports=(200,) * BINS,
            write_p99_ms=tuple(14.0 if not f else 900.0 for f in failed),
            prompt_wcu=tuple(stored),
        ),
        phases=tuple(phase(name, shards) for name in PhaseName),
        prompt_seconds=None if relieved_bin is None else (relief - ONSET_BIN) / 4,
        unserved_share_of_ten_minutes=0.75 if relieved_bin is None else 0.01,
    )


def phase(name: str, shards: int) -> Phase:
    """One phase with round figures; nothing failed in it."""
    return Phase(
        name=name,
        writes=1_000,
        failed_share=0.0,
        stored_within_second_share=1.0,
        acknowledged_p99_ms=20.0,
        stored_p50_ms=12.0,
        stored_p99_ms=20.0,
        pages=100,
        pages_failed=0,
        queries_per_page=1.0 + shards,
        rcu_per_page=6.5,
        page_p50_ms=9.0,
        page_p99_ms=25.0,
    )


def comparison() -> Comparison:
    """All strategies, each over two seeds."""
    reliefs = {
        "none": (None, 0),
        "sdk": (None, 0),
        "alarm": (60, 16),
        "queue": (None, 0),
        "sources": (100, 8),
        "static": (ONSET_BIN, 16),
        "ours": (32, 8),
        "oracle": (ONSET_BIN, 8),
    }
    runs = {name: run_of(name, relieved_bin=reliefs[name][0], shards=reliefs[name][1]) for name in STRATEGIES}
    return Comparison(
        scenario="compare",
        description="One conversation steps from 100 to 4,000 WCU/s at 5 s.",
        seed=1,
        assumptions=("Clients give up after three attempts.",),
        runs=tuple(runs.values()),
        seeds=2,
        summaries=tuple(StrategySummary.of((run, run)) for run in runs.values()),
    )


def level(writes_per_second: int) -> ScaleLevel:
    """One level with round figures."""
    w = float(writes_per_second)
    return ScaleLevel(
        writes_per_second=writes_per_second,
        environments=writes_per_second // 100,
        conversations=writes_per_second,
        sampling_distance_wcu=5.0,
        runs=2,
        rushes=4,
        reports_per_second=w / 5,
        reports_per_write=0.2,
        report_bytes_per_second=w * 60,
        registry_lookups_per_second=w * 0.9,
        stream_reads_per_second=40.0,
        redis_commands_per_second=w * 1.1,
        stream_memory_bytes=w * 1320,
        busiest_stream_share=0.26,
        stream_partitions_needed=1,
        consumer_reports_held=w * 3,
        consumer_conversations_held=w / 2,
        consumer_decisions_per_second=w * 5,
        consumer_state_bytes=w * 1920,
        consumers_needed=1,
        busiest_consumer_reports_per_second=w / 5,
        busiest_consumer_state_bytes=w * 1920,
        detection_seconds=Distribution.of([0.7, 0.8, 0.85, 0.95]),
        delays_seconds=(0.7, 0.8, 0.85, 0.95),
        raises_per_rush=1.0,
        shard_counts=(8, 8, 8, 9),
        false_raises=0,
        expected_false_raises_per_hour=1e-6,
        quiet_error_mean=0.0,
        quiet_error=0.08,
        quiet_error_theory=0.08,
        rush_error=0.03,
        rush_error_theory=0.031,
    )


def contents() -> Contents:
    """A whole report's contents; the sweeps have their real values and made-up measures."""
    sweeps = tuple(
        Sweep(
            name=plan.name,
            setting=plan.setting,
            unit=plan.unit,
            default=plan.default,
            points=tuple(Point(value=value, measures=_measures(plan.name, value)) for value in plan.values),
        )
        for plan in PLANS
    )
    return Contents(
        comparison=comparison(),
        read_rush=read_rush(),
        scale=ScaleStudy(
            first_seed=1,
            assumptions=("Writes are of one unit.",),
            levels=tuple(map(level, (10_000, 100_000, 1_000_000))),
        ),
        tuning=TuningStudy(seed=1, sweeps=sweeps),
        command="make simulate",
    )


def read_rush() -> RushStudy:
    """Rushes of four seconds; without the cache most of it is refused."""
    bar = Bar(name="cached: fills", measured=2.0, limit=5.0, unit="in any second", holds=True)
    return RushStudy(seed=1, bound_ms=3000.0, runs=tuple(map(rush_run, RUSHES)), bars=(bar,), passed=True)


def rush_run(rush: ReadRush) -> RushRun:
    """A run in which all is served, or a tenth."""
    offered = int(rush.pages_per_second)
    served = Second(offered=offered, l1=offered - 4_000, redis=3_998, waited=1, fills=1)
    refused = Second(offered=offered, refused=offered - offered // 10)
    seconds = (served if rush.copies else refused,) * 4
    latency = Latency(count=4 * offered, mean=300.0, p50=280.0, p95=700.0, p99=880.5, p999=960.0, longest=990.0)
    return RushRun(
        name=rush.name,
        description=rush.description,
        scale=rush.scale,
        copies=rush.copies,
        environments=rush.environments,
        pages_per_second=rush.pages_per_second,
        writes_per_second=rush.writes_per_second,
        seconds=seconds,
        found_seconds=0.0 if rush.copies else None,
        copies_at_end=rush.copies,
        served_after_seconds=0.0 if rush.copies else None,
        offered=4 * offered,
        from_l1=sum(second.l1 for second in seconds),
        from_redis=sum(second.redis for second in seconds),
        from_waiting=sum(second.waited for second in seconds),
        from_dynamodb=sum(second.dynamodb for second in seconds),
        refused=sum(second.refused for second in seconds),
        refused_share=0.0 if rush.copies else 0.9,
        fills_per_second=1.0,
        most_fills_in_a_second=1,
        throttled_queries=0 if rush.copies else 90_000,
        read_units_per_second=34.0,
        age_ms=latency,
        latency_ms=latency,
        busiest_node_commands_per_second=3_900,
        busiest_node_share=0.039,
        busiest_node_bytes_per_second=130_000_000,
        writes_stored=200,
        writes_failed=0,
        safety=Safety(
            acknowledged=200, reads=380, missing=0, duplicated=0, out_of_order=0, altered=0, phantom=0, unverified=0
        ),
    )


def _measures(sweep: str, value: float) -> dict[str, float | None]:
    """Every measure that a picture or a sentence of this sweep needs, falling with the value."""
    names = {name for half in HALVES[sweep] for name in half.lines} | EXTRA_MEASURES.get(sweep, set())
    return dict.fromkeys(sorted(names), 10 / (1 + value))


EXTRA_MEASURES = {
    "shard-load": {"refused_first_4000"},
    "sampling-distance": {"delay_4000_p99_seconds", "relative_error_at_800_wcu"},
}
