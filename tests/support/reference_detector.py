"""The detector's decision once more, as plainly as it can be said: every report kept, everything computed each time.

The product keeps running sums, caches what a slot amounts to and leaves most conversations out. `decide_plainly` does
none of that, so the two can be compared, decision by decision, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from hotpartition.core.detector import Decision, Reason, Thresholds
from hotpartition.core.reports import Report
from hotpartition.core.route import Generation, Route

SLOT_MS = 250


@dataclass(frozen=True)
class Sample:
    """A crossing, the WCU that it alone stands for, and its load class."""

    report: Report
    wcu: float
    load_class: int


def is_in_horizon(report: Report, now_ms: int) -> bool:
    return now_ms // SLOT_MS - 60 <= report.slot <= now_ms // SLOT_MS + 8


def decide_plainly(
    collection: str, reports: Iterable[Report], route: Route, thresholds: Thresholds, *, now_ms: int
) -> tuple[Decision, ...]:
    """Decide from all reports that were ever taken in, in the order of their arrival."""
    samples = list_samples(reports, route, now_ms // SLOT_MS - 60)
    last = (now_ms - 150) // SLOT_MS - 1
    window = range(last - 19, last + 1)

    def per_slot(load_class: int, *, refused: bool = False) -> list[float]:
        own = [s for s in samples if s.load_class == load_class and s.report.is_throttled >= refused]
        return [sum(s.wcu for s in own if s.report.slot == slot) for slot in window]

    classes = sorted({s.load_class for s in samples if s.report.slot in window})
    out, coolest, mean_of_all = [], [], 0.0
    for m in classes:
        keys, wcu, refused = max(m, 1), per_slot(m), per_slot(m, refused=True)
        second, mean = sum(wcu[-4:]), sum(wcu) / 5
        mean_of_all += mean
        sustained = thresholds.hot_sustained_wcu * keys
        if m == 0 and sum(each > 0 for each in refused) >= 2 and sum(refused) > 0.05 * sum(wcu):
            sustained *= 0.5
        facts = {"shard_count": m, "throttled_wcu": sum(refused), "per_slot_wcu": tuple(wcu)}
        if second <= thresholds.hot_at_once_wcu * keys and mean <= sustained:
            coolest.append(Decision(collection, Reason.BELOW_THRESHOLD, rate_wcu_per_second=second, **facts))
            continue
        ahead = {s.report.slot for s in samples if s.load_class == m and s.report.slot > last}
        newest = [sum(s.wcu for s in samples if s.load_class == m and s.report.slot == slot) for slot in ahead]
        rate = max(second, mean, max([wcu[-1], *newest]) * 4)
        facts["rate_wcu_per_second"] = rate
        if m >= thresholds.max_shard_count:
            out.append(Decision(collection, Reason.AT_CAP, **facts))
            continue
        later = sum(per_slot(n)[-1] for n in classes if n > m) * 4
        count = max(2, min(ceil((rate + later) / thresholds.target_shard_wcu), thresholds.max_shard_count), m + 1)
        times = sorted(s.report.position for s in samples if s.load_class == m and s.report.slot in window)
        since = min(now_ms - 5_000, times[max(1, len(times) // 100)] if len(times) >= 3 else times[0])
        if shard_count_at(route, float("inf")) > m:
            since = now_ms - 2 * (now_ms - since)
        generation = Generation(max(0, since), count)
        out.append(Decision(collection, Reason.RAISED, later_wcu_per_second=later, generation=generation, **facts))
    if not any(decision.generation for decision in out) and mean_of_all >= thresholds.hot_sustained_wcu / 2:
        out += _undo_close(collection, route, mean_of_all, now_ms)
    nothing = Decision(collection, Reason.BELOW_THRESHOLD)
    return tuple(out) or (max(coolest, key=lambda d: d.rate_wcu_per_second, default=nothing),)


def _undo_close(collection: str, route: Route, rate: float, now_ms: int) -> list[Decision]:
    """Keep the N before the next close, if that lowers it."""
    at_ms = min((close.at_ms for close in route.closes if close.at_ms > now_ms), default=None)
    if at_ms is None or shard_count_at(route, at_ms) >= (before := shard_count_at(route, at_ms - 1)):
        return []
    facts = {"shard_count": before, "rate_wcu_per_second": rate, "generation": Generation(at_ms, before)}
    return [Decision(collection, Reason.STILL_WARM, **facts)]


def list_samples(reports: Iterable[Report], route: Route, first_slot: int) -> list[Sample]:
    """Take each crossing once, a throttled one before another, and count it from its source's last one on."""
    crossings: dict[tuple[int, str, float], Report] = {}
    for report in reports:
        crossing = (report.slot, report.source, report.value)
        if report.slot >= first_slot and (crossing not in crossings or report.is_throttled):
            crossings[crossing] = report
    samples, counted = [], {}
    for crossing, report in sorted(crossings.items(), key=lambda item: item[0]):
        wcu = report.value - counted.get(crossing[:2], 0.0)
        counted[crossing[:2]] = report.value
        samples.append(Sample(report, wcu, shard_count_at(route, report.position)))
    return samples


def shard_count_at(route: Route, position: float) -> int:
    """N(t), by which writers place: announced closes count."""
    began = max([0, *(close.at_ms for close in route.closes if close.at_ms <= position)])
    return max([0, *(g.shard_count for g in route.generations if began <= g.since_ms <= position)])
