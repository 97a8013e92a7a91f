"""Stored items and what the owner is shown of them; of several copies, which one is the item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hotpartition.table.schema import CHANGES, Attributes, Schema


class Copy(NamedTuple):
    """One stored copy of an item: under which partition key, and how often it was changed."""

    partition_key: str
    changes: int
    item: Attributes

    @property
    def rank(self) -> tuple[int, int, str]:
        """What orders copies, the valid one first: the most changed, and always the same one of equals."""
        return -self.changes, len(self.partition_key), self.partition_key


def copy_of(schema: Schema, item: Attributes) -> Copy:
    """Read a stored item."""
    return Copy(item[schema.partition], int(item.get(CHANGES, 0)), item)


def sort_copies(copies: Iterable[Copy]) -> list[Copy]:
    """Sort copies of one item, the valid one first."""
    return sorted(copies, key=lambda copy: copy.rank)


def show(schema: Schema, item: Mapping[str, Any], hidden: frozenset[str] = frozenset()) -> Attributes:
    """Turn a stored item into the owner's: its own partition key, and no attribute that was not asked for."""
    shown = {name: value for name, value in item.items() if name not in schema.reserved and name not in hidden}
    if schema.partition in shown:
        shown[schema.partition] = schema.collection_of(shown[schema.partition])
    return shown
