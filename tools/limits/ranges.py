"""Where partition keys lie. Pure functions."""

from __future__ import annotations

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
