"""How hot a collection is at the moment, from the same reports and slots that the detector decides by. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hotpartition.core.detector import (
    REPORT_DELAY_MS,
    SLOTS_PER_SECOND,
    SUSTAINED_SECONDS,
    SUSTAINED_SLOTS,
    CollectionReports,
)
from hotpartition.core.fleet_load import KEPT_SLOTS, FleetLoad
from hotpartition.core.read_heat import CollectionReads
from hotpartition.core.sampler import slot_of


@dataclass(frozen=True, slots=True)
class Heat:
    """The load that is offered to a collection, and which share of it is throttled."""

    wcu_per_second: float
    throttled_share: float


NO_HEAT = Heat(0.0, 0.0)


def measure_heat(reports: CollectionReports, now_ms: int) -> Heat:
    """Measure the mean load of the last five seconds' whole slots, throttled writes included, once each."""
    last = slot_of(now_ms - REPORT_DELAY_MS) - 1
    shares = [share for slot, share in reports.shares(last - SUSTAINED_SLOTS + 1) if slot <= last]
    wcu = sum(share.wcu for share in shares)
    if not wcu:
        return NO_HEAT
    throttled = sum(sample.wcu for share in shares for sample in share.samples if sample.is_throttled)
    return Heat(wcu / SUSTAINED_SECONDS, throttled / wcu)


def measure_load(load: FleetLoad, now_ms: int) -> Heat | None:
    """Measure the mean load of the last four seconds' whole slots, as a load item has it; None where it has none.

    `now_ms` is of DynamoDB's clock. A load item counts from the first refusal on: one that is younger shows too little.
    """
    now = slot_of(now_ms)
    recent = {cell: wcu for cell, wcu in load.items() if now - KEPT_SLOTS <= cell.slot < now}
    wcu = sum(wcu for cell, wcu in recent.items() if not cell.is_throttled)
    if not wcu:
        return None
    throttled = sum(wcu for cell, wcu in recent.items() if cell.is_throttled)
    return Heat(wcu * SLOTS_PER_SECOND / KEPT_SLOTS, min(1.0, throttled / wcu))


@dataclass(frozen=True, slots=True)
class ReadHeat:
    """The pages of a collection that are asked for, cached or not, and the RCU that they take or would take."""

    rcu_per_second: float
    pages_per_second: float


NO_READ_HEAT = ReadHeat(0.0, 0.0)


def measure_read_heat(reads: CollectionReads, now_ms: int) -> ReadHeat:
    """Measure the mean load of the last five seconds' whole slots."""
    last = slot_of(now_ms - REPORT_DELAY_MS) - 1
    rcu, pages = reads.load(last - SUSTAINED_SLOTS + 1, last)
    return ReadHeat(sum(rcu) / SUSTAINED_SECONDS, sum(pages) / SUSTAINED_SECONDS)
