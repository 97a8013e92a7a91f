"""What sampling makes of a steady load: the exact distribution of the load that a slot reports.

Writes of 1 WCU arrive at random (Poisson) and meet environments at random, so the counts c of the environments in a
slot are independent Poisson numbers. A count of c = q z + r crosses q sampling points, and one more with odds of r / z,
because the first lies at u z with u uniform (counter.py): that is the whole distribution of one (slot, environment),
and those of a slot add up by convolution. So drawing a slot from it is exact, and so is the chance of an excess.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, floor

from hotpartition.core.detector import SLOTS_PER_SECOND, SUSTAINED_SECONDS, SUSTAINED_SLOTS, Thresholds
from hotpartition.core.sampler import SLOT_MS

NEGLIGIBLE = 1e-18

Odds = tuple[float, ...]
"""Odds of 0, 1, 2, … crossings."""


@cache
def slot_odds(rate_wcu: float, sampling_distance_wcu: float, environments: int) -> Odds:
    """Tell how many crossings a fleet reports of one conversation in one slot.

    Args:
        rate_wcu: the conversation's steady load, in WCU/s.
        sampling_distance_wcu: z.
        environments: how many share it.
    """
    counts = _poisson(rate_wcu * SLOT_MS / 1000 / environments)
    one = [0.0] * (floor(len(counts) / sampling_distance_wcu) + 2)
    for count, odds in enumerate(counts):
        sure = floor(count / sampling_distance_wcu)
        more = count / sampling_distance_wcu - sure
        one[sure] += odds * (1 - more)
        one[sure + 1] += odds * more
    return repeated(_trimmed(one), environments)


def repeated(odds: Odds, times: int) -> Odds:
    """Add up independent numbers of one distribution."""
    total: Odds = (1.0,)
    while times:
        if times % 2:
            total = _convolved(total, odds)
        odds, times = _convolved(odds, odds), times // 2
    return total


def excess_odds(slot: Odds, sampling_distance_wcu: float, thresholds: Thresholds) -> tuple[float, float]:
    """Tell the odds that one window of a second, and one of five, is hot by chance, on a base key."""
    at_once = thresholds.hot_at_once_wcu / sampling_distance_wcu
    sustained = thresholds.hot_sustained_wcu * SUSTAINED_SECONDS / sampling_distance_wcu
    return (
        sum(repeated(slot, SLOTS_PER_SECOND)[floor(at_once) + 1 :]),
        sum(repeated(slot, SUSTAINED_SLOTS)[floor(sustained) + 1 :]),
    )


def _poisson(mean: float) -> list[float]:
    odds, term, count = [], exp(-mean), 0
    while count <= mean or term > NEGLIGIBLE:
        odds.append(term)
        count += 1
        term *= mean / count
    return odds


def _convolved(a: Sequence[float], b: Sequence[float]) -> Odds:
    total = [0.0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            total[i + j] += x * y
    return _trimmed(total)


def _trimmed(odds: list[float]) -> Odds:
    while odds[-1] < NEGLIGIBLE:
        odds.pop()
    return tuple(odds)
