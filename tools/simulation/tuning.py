"""The sweeps: what each setting trades for what, with the others at their defaults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from hotpartition.core.detector import EVIDENCE_THROTTLED_SHARE, SLOTS_PER_SECOND, SUSTAINED_SECONDS
from hotpartition.runtime.settings import ConsumerSettings, ReaderSettings, WriterSettings
from tools.simulation.scale import registry_lookups_per_second
from tools.simulation.scale_theory import six_digits, thin_relative_error
from tools.simulation.scale_traffic import Level, popularity
from tools.simulation.tuning_cache import typical_seconds_to_shards
from tools.simulation.tuning_detection import Rule, detection_delays, false_raises_per_hour
from tools.simulation.tuning_hedge import STALL_SHARE, read_pages
from tools.simulation.tuning_sizing import throw_shards

TRIALS = 2_000
THROWS = 6_000
PAGES = 20_000
CACHE_SEEDS = range(5)
QUIET_CONVERSATIONS = 50
QUIET_WCU = 600.0
"""What must not be raised: 50 conversations that all have this load for an hour (as in decision 9)."""
POPULATION = Level(writes_per_second=100_000, rushes=0, seeds=0)

_WRITER = WriterSettings.defaults()
_READER = ReaderSettings.defaults()
_CONSUMER = ConsumerSettings.defaults()

Measures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of the setting that is swept, and what it does; None stands for never (within the 30 s simulated)."""

    value: float
    measures: Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One setting over a range; the measures' names are in docs/simulation-summary.md."""

    name: str
    setting: str
    unit: str
    default: float
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningStudy:
    """All sweeps."""

    seed: int
    sweeps: tuple[Sweep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    name: str
    setting: str
    unit: str
    default: float
    values: tuple[float, ...]
    measure: Callable[[float, int], Measures]


AT_ONCE_LOADS = (1_200, 2_000, 4_000)
SUSTAINED_LOADS = (850, 900, 950)


def _rule_measures(rule: Rule, loads: Sequence[int], seed: int) -> Measures:
    return {
        "false_raises_per_hour": false_raises_per_hour(rule, QUIET_WCU, QUIET_CONVERSATIONS),
        **_step_delays(rule, loads, seed),
    }


def _at_once(value: float, seed: int) -> Measures:
    return _rule_measures(replace(Rule(), hot_at_once_wcu=value).at_once_only(), AT_ONCE_LOADS, seed)


def _sustained(value: float, seed: int) -> Measures:
    return _rule_measures(replace(Rule(), hot_sustained_wcu=value).sustained_only(), SUSTAINED_LOADS, seed)


def _at_once_window(value: float, seed: int) -> Measures:
    rule = replace(Rule(), at_once_slots=round(value * SLOTS_PER_SECOND))
    return _rule_measures(rule.at_once_only(), AT_ONCE_LOADS, seed)


def _sustained_window(value: float, seed: int) -> Measures:
    rule = replace(Rule(), sustained_slots=round(value * SLOTS_PER_SECOND))
    return _rule_measures(rule.sustained_only(), SUSTAINED_LOADS, seed)


def _distance(value: float, seed: int) -> Measures:
    rule = replace(Rule(), sampling_distance_wcu=value)
    return {
        **_rule_measures(rule, (1_200, 4_000), seed),
        "reports_per_1000_wcu": 1_000 / value,
        "relative_error_at_800_wcu": thin_relative_error(_CONSUMER.heat.hot_sustained_wcu, value),
    }


def _cache_ttl(value: float, seed: int) -> Measures:
    lookups = registry_lookups_per_second(POPULATION, popularity(POPULATION), ttl_seconds=value)
    seeds = range(seed, seed + len(CACHE_SEEDS))
    return {
        "lookups_per_write": lookups / POPULATION.writes_per_second,
        # 1,000 environments and one conversation of 4,000 WCU/s
        "hot_lookups_per_second": registry_lookups_per_second(POPULATION, np.array([4_000.0]), ttl_seconds=value),
        "seconds_to_shards": typical_seconds_to_shards(value, seeds),
        "seconds_to_shards_whole_life_after_throttle": typical_seconds_to_shards(
            value, seeds, is_ttl_brief_after_throttle=False
        ),
    }


def _hedge(value: float, seed: int) -> Measures:
    usual = read_pages(value, pages=PAGES, seed=seed)
    stalling = read_pages(value, pages=PAGES, seed=seed, stall_share=STALL_SHARE)
    return {
        "p50_ms": usual.p50_ms,
        "p99_ms": usual.p99_ms,
        "p999_ms": usual.p999_ms,
        "extra_share": usual.extra_share,
        "stalls_p99_ms": stalling.p99_ms,
        "stalls_p999_ms": stalling.p999_ms,
        "stalls_extra_share": stalling.extra_share,
    }


def _step_delays(rule: Rule, loads: Sequence[int], seed: int) -> Measures:
    measures: dict[str, float | None] = {}
    for load in loads:
        delays = detection_delays(rule, 100.0, float(load), trials=TRIALS, seed=seed)
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            value = float(np.quantile(delays, share, method="inverted_cdf")) if len(delays) else np.inf
            measures[f"delay_{load}_{name}_seconds"] = value if isfinite(value) else None
    return measures


def _shard_load(value: float, seed: int) -> Measures:
    measures: dict[str, float | None] = {}
    for load in (1_000, 2_000, 4_000, 6_000, 10_000):
        thrown = throw_shards(float(load), value, throws=THROWS, seed=seed)
        measures |= {
            f"n_{load}_p50": float(np.quantile(thrown.shard_counts, 0.5, method="inverted_cdf")),
            f"n_{load}_p999": float(np.quantile(thrown.shard_counts, 0.999, method="inverted_cdf")),
            f"refused_first_{load}": float(thrown.refused_first.mean()),
            f"unlucky_{load}": float((thrown.refused_everywhere > EVIDENCE_THROTTLED_SHARE).mean()),
        }
    return measures


PLANS = (
    _Plan(
        name="shard-load",
        setting="target_shard_wcu",
        unit="WCU/s",
        default=_CONSUMER.detection.target_shard_wcu,
        values=(150, 200, 250, 275, 300, 315, 330, 350, 375, 400, 500),
        measure=_shard_load,
    ),
    _Plan(
        name="at-once-threshold",
        setting="hot_at_once_wcu",
        unit="WCU/s",
        default=_CONSUMER.detection.hot_at_once_wcu,
        values=(700, 800, 850, 900, 950, 1_000, 1_050, 1_100, 1_200, 1_500, 2_000),
        measure=_at_once,
    ),
    _Plan(
        name="sustained-threshold",
        setting="hot_sustained_wcu",
        unit="WCU/s",
        default=_CONSUMER.heat.hot_sustained_wcu,
        values=(620, 650, 675, 700, 725, 750, 775, 800, 825, 850, 900),
        measure=_sustained,
    ),
    _Plan(
        name="at-once-window",
        setting="a constant of the detector",
        unit="s",
        default=1.0,
        values=(0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0),
        measure=_at_once_window,
    ),
    _Plan(
        name="sustained-window",
        setting="SUSTAINED_SECONDS, a constant of the detector",
        unit="s",
        default=float(SUSTAINED_SECONDS),
        values=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0),
        measure=_sustained_window,
    ),
    _Plan(
        name="sampling-distance",
        setting="sampling_distance_wcu",
        unit="WCU",
        default=_WRITER.sampling.sampling_distance_wcu,
        values=(1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30),
        measure=_distance,
    ),
    _Plan(
        name="cache-life",
        setting="route_cache_seconds",
        unit="s",
        default=_WRITER.routes.route_cache_seconds,
        values=(0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0),
        measure=_cache_ttl,
    ),
    _Plan(
        name="hedge-quantile",
        setting="hedge_quantile",
        unit="share",
        default=_READER.queries.hedge_quantile,
        values=(0.0, 0.5, 0.8, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995),
        measure=_hedge,
    ),
)


def measure(name: str, value: float, seed: int) -> Point:
    """Measure one point of one sweep: a pure function of its arguments."""
    plan = next(plan for plan in PLANS if plan.name == name)
    measures = plan.measure(value, seed).items()
    return Point(value=value, measures={key: None if given is None else six_digits(given) for key, given in measures})


SWEEP_NAMES = tuple(plan.name for plan in PLANS)


def point_count(names: Collection[str] = SWEEP_NAMES) -> int:
    """Count the points of some sweeps."""
    return sum(len(plan.values) for plan in PLANS if plan.name in names)


def run_tuning(
    *,
    seed: int,
    pool: Executor,
    names: Collection[str] = SWEEP_NAMES,
    progress: Callable[[], object] = lambda: None,
) -> TuningStudy:
    """Measure the sweeps that are named; `seed` is that of everything that is drawn.

    The pool runs the points; the result does not depend on how many at a time. `progress` is called after each point.
    """
    plans = [plan for plan in PLANS if plan.name in names]
    futures = {plan.name: [pool.submit(measure, plan.name, value, seed) for value in plan.values] for plan in plans}
    for future in (f for several in futures.values() for f in several):
        future.add_done_callback(lambda _: progress())
    return TuningStudy(
        seed=seed,
        sweeps=tuple(
            Sweep(
                name=plan.name,
                setting=plan.setting,
                unit=plan.unit,
                default=plan.default,
                points=tuple(future.result() for future in futures[plan.name]),
            )
            for plan in plans
        ),
    )
