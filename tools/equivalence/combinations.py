"""The axes of a `ShardedTable`, and every combination of them that is compared with boto3's `Table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from hotpartition.table import ShardedTable, at_random, by_attribute, by_sort_key, fixed

PARTITION, SORT, ATTRIBUTE = "PK", "SK", "device"
HASHED: Mapping[str, Any] = {
    "by_sort_key": by_sort_key,
    "by_attribute": lambda: by_attribute(ATTRIBUTE),
    "at_random": at_random,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One point in the space: how many shards, what is hashed, and the type of the sort key."""

    shards: str
    hashed: str
    sort_type: str = "S"

    @property
    def name(self) -> str:
        """What it is called in results."""
        return f"{self.shards}, {self.hashed}, sort key {self.sort_type}"


COMBINATIONS: Sequence[Combination] = (
    *(Combination(shards=shards, hashed=hashed) for shards, hashed in product(("fixed",), HASHED)),
    *(Combination(shards="fixed", hashed="by_sort_key", sort_type=kind) for kind in "NB"),
)


class Subject(Protocol):
    """The table under test, and how it is raised."""

    def build(self) -> ShardedTable:
        """Build the table anew, as another process of the owner's would."""
        ...

    def raise_to(self, collection: str, count: int) -> ShardedTable:
        """Raise N of a collection, unless it is as large already, and build the table anew."""
        ...


@dataclass(slots=True)
class FixedSubject:
    """A table of fixed shards is raised by naming one more number in its owner's code, for all collections."""

    combination: Combination
    table: Any
    counts: list[int]

    def build(self) -> ShardedTable:
        """Build the table anew."""
        return ShardedTable(self.table, shards=fixed(*self.counts), hashed=HASHED[self.combination.hashed]())

    def raise_to(self, collection: str, count: int) -> ShardedTable:
        """Name one more number; smaller ones change nothing."""
        del collection
        if count > self.counts[-1]:
            self.counts.append(count)
        return self.build()


def build_subject(combination: Combination, table: Any, shards: int) -> Subject:
    """Build the table under test."""
    return FixedSubject(combination, table, [shards])
