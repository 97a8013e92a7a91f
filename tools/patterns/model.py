"""What is compared: the patterns, the workload, and what was assumed about DynamoDB.

A pattern is a point on three axes: how many shards, what is hashed, and which index with time buckets there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hotpartition.core.route import MAX_CHOICES

WRITES_PER_SECOND: Final = 5_000.0
ITEM_BYTES: Final = 1_000
"""Index keys included, so that a write is one unit in the table, and one in an index that projects everything."""
TABLE_PARTITIONS: Final = 32
"""Of the table and of each index: warmed for 32,000 WCU/s."""
DEVICES: Final = 1_000
FIXED_SHARDS: Final = 16
"""The safe starting point that the source advises for this load; its formula says 5."""
INDEX_BACKLOG_SECONDS: Final = 1.0
"""How far an index partition may fall behind before DynamoDB refuses writes to the table (assumption)."""
INDEX_LAG_SECONDS: Final = 0.02
"""Mean time from a write to its entry in an index that keeps up (assumption)."""
TRANSFER_SECONDS_PER_MB: Final = 0.02
"""How much longer a query takes for each MB that it reads (assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How long a run is, in seconds.

    The load is steady, so only its beginning and its end are played write by write (`close_up`). Between them a put
    stands for a hundred: nothing happens there but what takes minutes, since partitions split for heat and at `edge`
    the next hour begins, and with it the next bucket. Reads begin `reads` before the end; 0: there is a beginning only.
    """

    whole: float = 600.0
    close_up: float = 6.0
    edge: float = 300.0
    reads: float = 3.5


TEN_MINUTES = Course()
BEGINNING = Course(whole=4.0, close_up=4.0, reads=0.0)


class Hashed(StrEnum):
    """What a write's shard is chosen by."""

    AT_RANDOM = "at_random"
    BY_SORT_KEY = "by_sort_key"
    BY_ATTRIBUTE = "by_attribute"


class Buckets(StrEnum):
    """The index: none, one key for each entity and hour, or one for each shard of these."""

    NONE = "none"
    PLAIN = "plain"
    SHARDED = "sharded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One way to shard writes. `shards` None: as many as the load asks for; 0: the base key alone."""

    name: str
    title: str
    shards: int | None
    hashed: Hashed = Hashed.AT_RANDOM
    buckets: Buckets = Buckets.NONE
    is_in_band: bool = False
    """Whether writers find out how many, and not a consumer."""

    @property
    def choices(self) -> int:
        """How many shards may take one write. A fixed number of shards has no other choice by default."""
        return MAX_CHOICES if self.shards is None else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Who writes: `share` of all events is of one device, the rest of all others alike."""

    name: str
    share: float


EVEN = Workload(name="even", share=0.01)
SKEWED = Workload(name="skewed", share=0.6)
WORKLOADS: Mapping[str, Workload] = {each.name: each for each in (EVEN, SKEWED)}

_ALL: Sequence[Pattern] = (
    Pattern(name="none", title="one key", shards=0),
    Pattern(name="random", title="random suffix", shards=FIXED_SHARDS),
    Pattern(name="calculated", title="calculated suffix", shards=FIXED_SHARDS, hashed=Hashed.BY_ATTRIBUTE),
    Pattern(name="buckets", title="time buckets", shards=FIXED_SHARDS, buckets=Buckets.PLAIN),
    Pattern(name="buckets-sharded", title="time buckets, index shards", shards=FIXED_SHARDS, buckets=Buckets.SHARDED),
    Pattern(name="adaptive", title="adaptive", shards=None, hashed=Hashed.BY_SORT_KEY),
    Pattern(name="in-band", title="in band", shards=None, hashed=Hashed.BY_SORT_KEY, is_in_band=True),
    Pattern(name="adaptive-attribute", title="adaptive by attribute", shards=None, hashed=Hashed.BY_ATTRIBUTE),
    Pattern(
        name="adaptive-buckets",
        title="adaptive, time buckets",
        shards=None,
        hashed=Hashed.BY_SORT_KEY,
        buckets=Buckets.SHARDED,
    ),
)
PATTERNS: Mapping[str, Pattern] = {each.name: each for each in _ALL}

PLANNED_SHARDS: Sequence[int] = (3, 5, 8, 16, 32)
"""N of the random suffix, planned for less than came: 3 for 3,000 writes a second, 5 by the source's formula."""

ASSUMPTIONS: Sequence[str] = (
    (
        f"{WRITES_PER_SECOND:,.0f} writes a second of {ITEM_BYTES:,} bytes to one key for {TEN_MINUTES.whole:,.0f} s. "
        f"The first and the last {TEN_MINUTES.close_up:.0f} s are played write by write; between them a put stands for "
        "a hundred."
    ),
    f"Table and index have {TABLE_PARTITIONS} partitions each, of 1,000 WCU/s and 3,000 RCU/s, and no other traffic.",
    (
        f"An index partition may fall {INDEX_BACKLOG_SECONDS:g} s behind before writes to the table are refused; one "
        f"that keeps up lags by {INDEX_LAG_SECONDS * 1000:.0f} ms on average. AWS publishes neither."
    ),
    "Every call tries a refused write again with jitter for 300 ms; then it has failed.",
    "Reads are eventually consistent; all keys of one read are asked side by side, without hedging.",
    (
        "Latencies are those of the partition model; a query takes "
        f"{TRANSFER_SECONDS_PER_MB * 1000:.0f} ms longer for each MB that it reads."
    ),
)
