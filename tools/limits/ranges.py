"""Where partition keys lie, and where a range of them is best cut in two. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

SPAN: Final = 2**64
"""Number of positions; a key's position is a hash of 64 bits."""


def position_of(key: str) -> int:
    """Return a key's position: the same on every machine, for ever.

    DynamoDB hashes the partition key as well ("Partitions and data distribution in DynamoDB"); its function is not
    published, so which keys meet on one partition is as likely here as there, but not the same.
    """
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")


def even_bounds(count: int) -> list[int]:
    """Return the `count + 1` bounds of ranges of equal width."""
    return [index * SPAN // count for index in range(count + 1)]


def best_cut(weights: Mapping[int, float]) -> int | None:
    """Return the bound that halves the observed weight best, or None if all of it is on one position.

    The bound is placed next to the heavier side, so that a position that outweighs all others ends up alone after two
    cuts.
    """
    positions = sorted(weights)
    total = sum(weights.values())
    left = 0.0
    best, cut = total, None
    for lower, upper in itertools.pairwise(positions):
        left += weights[lower]
        heavier = max(left, total - left)
        if heavier < best:
            best = heavier
            cut = lower + 1 if left > total - left else upper
    return cut
