"""What can be worked out instead of drawn: the estimate's error, false raises, lookups, and what an entry takes.

Writes of 1 WCU arrive at random (Poisson) and meet environments at random, so the counts of one conversation in the
environments of one slot are independent Poisson numbers. A count c crosses floor(c / z) sampling points, and one more
with odds of frac(c / z), because the first lies at u z with u uniform (counter.py). All else follows from that.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, exp, floor, sqrt

import numpy as np
from numpy.typing import NDArray

from hotpartition.core.detector import SLOTS_PER_SECOND
from hotpartition.core.reports import WriteReport
from hotpartition.core.sampler import SLOT_MS
from hotpartition.engine.route_cache import TTL_JITTER
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.reports import FIELD, STREAM_AGE_MS

Odds = NDArray[np.float64]
"""Odds of 0, 1, 2, … crossings."""

NEGLIGIBLE = 1e-18

STREAM_ENTRY_OVERHEAD_BYTES = 24
"""What Redis adds to the values of a stream entry: ids, lengths, and the tree above nodes of a hundred entries.

Measured: `MEMORY USAGE` of streams of 5,000 to 100,000 reports, Redis 8.2.3, is 112 bytes an entry for 88 bytes of
values; the field's name is stored once in a node. A test measures it again."""


@lru_cache(maxsize=4096)
def slot_odds(rate_wcu: float, z: float, environments: int) -> Odds:
    """Compute how many crossings a fleet reports of one conversation in one slot.

    Its steady load, in writes of one unit, is shared evenly by the environments; `z` is the sampling distance, WCU.
    """
    return repeated(_cell_odds(rate_wcu * SLOT_MS / 1000 / environments, z), environments)


def excess_odds(rate_wcu: float, z: float, environments: int, *, slots: int, limit_wcu: float) -> float:
    """Compute the odds that the estimate of one window of `slots` is above a limit, in WCU (not per second)."""
    window = repeated(slot_odds(rate_wcu, z, environments), slots)
    return float(window[floor(limit_wcu / z + 1e-9) + 1 :].sum())


def relative_error(rate_wcu: float, z: float, environments: int) -> float:
    """Compute the standard deviation of (estimate - offered) / offered in a second, for writes of one unit.

    A count c of one environment and slot is reported as a number with mean c and variance z² f (1 - f), where f is the
    fractional part of c / z. Where every count is 0 or 1 this sums up to sqrt(R (z - 1)) WCU/s for R WCU/s in a second.
    """
    mean = rate_wcu * SLOT_MS / 1000 / environments
    counts = _poisson(mean)
    fractions = np.arange(len(counts)) / z % 1.0
    variance = float((counts * z * z * fractions * (1 - fractions)).sum())
    return sqrt(variance * environments * SLOTS_PER_SECOND) / rate_wcu


def lookups_per_second(rates: Odds, environments: int, *, ttl_seconds: float) -> float:
    """Compute how often a fleet asks the registry for routes, of conversations with these rates of requests.

    One (environment, conversation) pair with Poisson requests asks, then is served from its cache for a TTL, then
    asks with the next request: rate / (1 + rate x mean TTL). The mean TTL is shorter than `ttl_seconds` by half of the
    jitter. Early refreshes, which depend on how long Redis takes (a millisecond in a TTL of seconds), are left out.
    """
    pair_rates, mean_ttl = rates / environments, ttl_seconds * (1 - TTL_JITTER / 2)
    return float((environments * pair_rates / (1 + pair_rates * mean_ttl)).sum())


def stream_entry_bytes(report: WriteReport) -> int:
    """Compute what a report takes in a Redis stream."""
    return len(report.encode()) + STREAM_ENTRY_OVERHEAD_BYTES


def command_bytes(report: WriteReport, table_name: str) -> int:
    """Compute how many bytes the XADD of a report sends: the Redis protocol's array of lengths and texts, no TLS."""
    minid = str(report.position - STREAM_AGE_MS)
    parts = ["XADD", reports_key(table_name, 0), "MINID", "~", minid, "*", FIELD, report.encode()]
    return len(f"*{len(parts)}\r\n") + sum(len(f"${len(part)}\r\n{part}\r\n".encode()) for part in parts)


def six_digits(value: float) -> float:
    """Keep six digits: what is beyond says nothing, and could differ between machines."""
    return float(f"{value:.6g}")


def repeated(odds: Odds, times: int) -> Odds:
    """Add up independent numbers of one distribution; sums of positive terms, so that small odds stay exact."""
    total: Odds = np.ones(1)
    while times:
        if times % 2:
            total = _trimmed(np.convolve(total, odds))
        odds, times = _trimmed(np.convolve(odds, odds)), times // 2
    return total


def _cell_odds(mean: float, z: float) -> Odds:
    counts = _poisson(mean)
    shares = np.arange(len(counts)) / z
    sure = np.floor(shares + 1e-12).astype(int)
    more = np.clip(shares - sure, 0.0, 1.0)
    cell = np.zeros(ceil(len(counts) / z) + 2)
    np.add.at(cell, sure, counts * (1 - more))
    np.add.at(cell, sure + 1, counts * more)
    return _trimmed(cell)


def _poisson(mean: float) -> Odds:
    odds, term, count = [], exp(-mean), 0
    while count <= mean or term > NEGLIGIBLE:
        odds.append(term)
        count += 1
        term *= mean / count
    return np.array(odds)


def _trimmed(odds: Odds) -> Odds:
    return odds[: int(np.flatnonzero(odds >= NEGLIGIBLE)[-1]) + 1]
