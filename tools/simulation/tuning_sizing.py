"""What a shard's size costs: shards thrown onto partitions, and what those refuse of a load, as a fluid.

Shards fall onto physical partitions by chance. A partition admits what it has room for, of all that comes to it alike;
what it refuses of a shard's first choices comes to all other shards as second choices, and so on (`choose_shards`).
Solved by iteration for many throws at once. There is no time in it: bursts, caches and waits are the simulator's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotpartition.core.route import MAX_CHOICES
from hotpartition.core.sampler import SLOT_MS
from hotpartition.runtime.settings import WriterSettings

PARTITIONS = 32
ROOM_WCU = 1_000.0 - 10_000.0 / PARTITIONS
"""What a partition takes beside the other traffic of the step's scenario."""
ROUNDS = 60
"""Of the iteration: what changes in the last one is below a thousandth of the load."""

_WRITER = WriterSettings.defaults()

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throws:
    """What came of each throw: the N that was chosen, and shares of the load."""

    shard_counts: Integers
    refused_first: Floats
    """Refused by its first choice."""
    refused_everywhere: Floats
    """Refused by all its choices: it has to wait."""


def throw_shards(load_wcu: float, target_shard_wcu: float, *, throws: int, seed: int) -> Throws:
    """Size a load as the detector does, from one slot's reports, throw its shards, and see what is refused.

    Args:
        load_wcu: the conversation's load, WCU/s.
        target_shard_wcu: what a shard is sized for.
        throws: how many.
        seed: of everything that is drawn.
    """
    random = np.random.default_rng(seed)
    distance = _WRITER.sampling.sampling_distance_wcu
    estimates = random.poisson(load_wcu * SLOT_MS / 1000 / distance, throws) * distance * 1000 / SLOT_MS
    counts = np.maximum(2, np.ceil(estimates / target_shard_wcu)).astype(np.int64)
    first, everywhere = np.zeros(throws), np.zeros(throws)
    for count in np.unique(counts):
        same = counts == count
        homes = random.integers(PARTITIONS, size=(int(same.sum()), count))
        first[same], everywhere[same] = _share_refused(homes, load_wcu)
    return Throws(shard_counts=counts, refused_first=first, refused_everywhere=everywhere)


def _share_refused(homes: Integers, load_wcu: float) -> tuple[Floats, Floats]:
    """Return what the first choices refuse and what all do, as shares of the load; `homes` is throw by shard."""
    throws, shards = homes.shape
    rows = np.arange(throws)[:, None]
    choices = min(MAX_CHOICES, shards)
    arriving = np.zeros((choices, throws, shards))
    arriving[0] = load_wcu / shards
    for _ in range(ROUNDS):
        total = np.zeros((throws, PARTITIONS))
        np.add.at(total, (rows, homes), arriving.sum(axis=0))
        refusing = np.maximum(0.0, 1.0 - ROOM_WCU / np.maximum(total, 1.0))[rows, homes]
        refused = arriving * refusing
        for choice in range(1, choices):
            before = refused[choice - 1]
            arriving[choice] = (before.sum(axis=1, keepdims=True) - before) / (shards - 1)
    return refused[0].sum(axis=1) / load_wcu, refused[-1].sum(axis=1) / load_wcu
