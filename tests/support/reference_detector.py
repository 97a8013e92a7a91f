"""The detector's decision once more, as plainly as it can be said: every report kept, everything computed each time.

The product keeps running sums, caches what a slot amounts to and leaves most conversations out. `decide_plainly` does
none of that, so the two can be compared, decision by decision, to the last bit. How large a load's route is to be is
not what differs: `size_route` is the product's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hotpartition.core.detector import (
    EVIDENCE_LOAD_SHARE,
    EVIDENCE_THROTTLED_SHARE,
    Decision,
    Reason,
    Thresholds,
    size_route,
)
from hotpartition.core.reports import WriteReport
from hotpartition.core.route import Generation, Route

SLOT_MS = 250


@dataclass(frozen=True)
class Sample:
    """A crossing, the WCU that it alone stands for, and its load class."""

    report: WriteReport
    wcu: float
    load_class: int


@dataclass(frozen=True)
class Load:
    """The samples of one load class, in the order of slot, source and value."""

    load_class: int
    samples: tuple[Sample, ...]

    @property
    def keys(self) -> int:
        return max(self.load_class, 1)

    def between(self, first_slot: int, last_slot: int) -> list[Sample]:
        return [s for s in self.samples if first_slot <= s.report.slot <= last_slot]

    def per_slot(self, first_slot: int, last_slot: int) -> tuple[float, ...]:
        return tuple(
            sum(s.wcu for s in self.samples if s.report.slot == slot) for slot in range(first_slot, last_slot + 1)
        )


def is_in_horizon(report: WriteReport, now_ms: int) -> bool:
    return now_ms // SLOT_MS - 60 <= report.slot <= now_ms // SLOT_MS + 8


def decide_plainly(
    collection: str,
    reports: Iterable[WriteReport],
    route: Route,
    thresholds: Thresholds,
    *,
    now_ms: int,
    raised_at_ms: int | None = None,
) -> tuple[Decision, ...]:
    """Decide from all reports that were ever taken in, in the order of their arrival."""
    samples = list_samples(reports, route, now_ms // SLOT_MS - 60)
    loads = [Load(m, tuple(s for s in samples if s.load_class == m)) for m in sorted({s.load_class for s in samples})]
    decisions = []
    for load in loads:
        later = [other for other in loads if other.load_class > load.load_class]
        judge = _judge_heat(collection, load, later, route, thresholds, now_ms)
        decisions.append(judge or _judge_throttles(collection, load, route, thresholds, now_ms, raised_at_ms))
    urgent = tuple(d for d in decisions if d.generation or d.reason in {Reason.SIZING, Reason.AT_CAP})
    if urgent:
        return urgent
    told = [d for d in decisions if d.reason is not Reason.BELOW_THRESHOLD] or decisions
    nothing = Decision(collection, Reason.BELOW_THRESHOLD)
    return (max(told, key=lambda d: d.rate_wcu_per_second, default=nothing),)


def list_samples(reports: Iterable[WriteReport], route: Route, first_slot: int) -> list[Sample]:
    """Take each crossing once, a throttled one before another, and count it from its source's last one on."""
    crossings: dict[tuple[int, str, float], WriteReport] = {}
    for report in reports:
        crossing = (report.slot, report.source, report.value_wcu)
        if report.slot >= first_slot and (crossing not in crossings or report.is_throttled):
            crossings[crossing] = report
    samples, counted = [], {}
    for crossing, report in sorted(crossings.items(), key=lambda item: item[0]):
        wcu = report.value_wcu - counted.get(crossing[:2], 0.0)
        counted[crossing[:2]] = report.value_wcu
        samples.append(Sample(report, wcu, _shard_count_at(route, report.position)))
    return samples


def _shard_count_at(route: Route, time_ms: int) -> int:
    return max([0, *(g.shard_count for g in route.generations if g.since_ms <= time_ms)])


def _find_window(load: Load, thresholds: Thresholds, current: int) -> Callable[[int], tuple[int, float] | None]:
    first = current - 100
    wcu = load.per_slot(first, current)

    def judge_window(slot: int) -> tuple[int, float] | None:
        end = slot - first + 1
        one_second, five_seconds = sum(wcu[end - 4 : end]), sum(wcu[end - 20 : end])
        if one_second > thresholds.hot_at_once_wcu * load.keys:
            return slot - 3, one_second
        if five_seconds / 5 > thresholds.hot_sustained_wcu * load.keys:
            return slot - 19, five_seconds / 5
        return None

    return judge_window


def _judge_heat(
    collection: str, load: Load, later: list[Load], route: Route, thresholds: Thresholds, now_ms: int
) -> Decision | None:
    current = now_ms // SLOT_MS
    judge_window = _find_window(load, thresholds, current)
    triggers = [slot for slot in range(current - 20, current + 1) if judge_window(slot)]
    if not triggers:
        return None
    trigger = triggers[0]
    first_slot, rate = judge_window(trigger)
    hot = Decision(
        collection,
        Reason.SIZING,
        shard_count=load.load_class,
        rate_wcu_per_second=rate,
        throttled_wcu=sum(s.wcu for s in load.samples if s.report.slot >= first_slot and s.report.is_throttled),
        trigger_slot=trigger,
        per_slot_wcu=load.per_slot(first_slot, trigger + 1),
    )
    if load.load_class >= thresholds.max_shard_count:
        return replace(hot, reason=Reason.AT_CAP)
    if now_ms < (trigger + 2) * SLOT_MS + 150:
        return hot
    (sizing,) = load.per_slot(trigger + 1, trigger + 1)
    rate = max(sizing * 4, rate)
    later_wcu = sum(other.per_slot(trigger + 1, trigger + 1)[0] for other in later) * 4
    heat_slot, earlier = first_slot, trigger - 1
    while earlier > current - 60 and (window := judge_window(earlier)):
        heat_slot, earlier = min(heat_slot, window[0]), earlier - 1
    count = size_route(rate + later_wcu, thresholds)
    return replace(
        hot,
        reason=Reason.RAISED,
        rate_wcu_per_second=rate,
        later_wcu_per_second=later_wcu,
        generation=_raise(load, load.between(heat_slot, trigger + 1), count, route, thresholds, now_ms),
    )


def _judge_throttles(
    collection: str, load: Load, route: Route, thresholds: Thresholds, now_ms: int, raised_at_ms: int | None
) -> Decision:
    current = now_ms // SLOT_MS
    last_second = sum(load.per_slot(current - 4, current - 1))
    recent = load.between(current - 7, current + 8)
    evidence = [s for s in recent if s.report.is_throttled and s.report.shard_count == load.load_class]
    slots = sorted({s.report.slot for s in evidence})
    throttled_wcu = sum(s.wcu for s in evidence)
    cool = Decision(
        collection,
        Reason.BELOW_THRESHOLD,
        shard_count=load.load_class,
        rate_wcu_per_second=last_second,
        throttled_wcu=throttled_wcu,
        per_slot_wcu=load.per_slot(current - 4, current),
    )
    if (
        len(evidence) < 4
        or len(slots) < 2
        or throttled_wcu < EVIDENCE_THROTTLED_SHARE * sum(load.per_slot(current - 7, current + 8))
    ):
        is_covered = load.load_class > 0 and last_second > thresholds.hot_sustained_wcu
        return replace(cool, reason=Reason.COVERED) if is_covered else cool
    if last_second < EVIDENCE_LOAD_SHARE * load.keys * thresholds.target_shard_wcu:
        return replace(cool, reason=Reason.NO_EVIDENCE)
    if load.load_class >= thresholds.max_shard_count:
        return replace(cool, reason=Reason.AT_CAP)
    if raised_at_ms is not None and now_ms - raised_at_ms < 5_000:
        return replace(cool, reason=Reason.COOLING_DOWN)
    generation = _raise(load, load.between(slots[0], slots[-1]), 2 * load.keys, route, thresholds, now_ms)
    return replace(cool, reason=Reason.UNLUCKY_PARTITION, generation=generation)


def _raise(load: Load, hot: list[Sample], count: int, route: Route, thresholds: Thresholds, now_ms: int) -> Generation:
    times = sorted(s.report.position for s in hot)
    since_ms = times[max(1, len(times) // 100)] if len(times) >= 3 else times[0]
    since_ms = min(since_ms, min(s.report.slot for s in hot) * SLOT_MS)
    if any(g.shard_count > load.load_class for g in route.generations):
        since_ms = now_ms - 2 * (now_ms - since_ms)
    count = max(min(count, thresholds.max_shard_count), load.load_class + 1, 2)
    return Generation(since_ms=max(0, since_ms), shard_count=count)
