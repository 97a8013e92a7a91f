"""The history check for items that are created, changed and deleted: pure, and knows nothing of shards.

The promise: an item whose creation was acknowledged is in every strong read that begins later, once and in its place,
until somebody begins to delete it; once that is acknowledged, it is in none. An acknowledged change is in every strong
read of its item that begins later, exactly once, and no later read is older than that. What is read was written.

A *log* item is changed by anybody: each change appends a token of its own. A *register* is overwritten by one writer,
with numbers that rise. An attempt whose outcome nobody knows may have happened or not; both are right.

All moments are readings of one clock, in seconds; only their order matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

Fault = Literal["lost", "doubled", "resurrected", "update lost", "update doubled", "out of order", "invented"]

NEVER = float("inf")


@dataclass(slots=True)
class Attempt:
    """Something that was tried: when it began, and when it was acknowledged, if ever."""

    began_at: float
    acknowledged_at: float = NEVER


@dataclass(slots=True)
class ItemHistory:
    """All that was done to one item. `changes` are by token (of a log) or number (of a register)."""

    creations: list[Attempt] = field(default_factory=list)
    deletions: list[Attempt] = field(default_factory=list)
    changes: dict[str, Attempt] = field(default_factory=dict)

    @property
    def created_at(self) -> float:
        """When its creation was first acknowledged."""
        return min((creation.acknowledged_at for creation in self.creations), default=NEVER)

    @property
    def offered_at(self) -> float:
        """When it was first tried to create it."""
        return min((creation.began_at for creation in self.creations), default=NEVER)

    @property
    def doomed_at(self) -> float:
        """When it was first tried to delete it."""
        return min((deletion.began_at for deletion in self.deletions), default=NEVER)

    @property
    def deleted_at(self) -> float:
        """When a deletion was first acknowledged."""
        return min((deletion.acknowledged_at for deletion in self.deletions), default=NEVER)


class Seen(NamedTuple):
    """An item as a read returned it."""

    sort_key: str
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a whole collection, or of one item of it (`only`)."""

    collection: str
    began_at: float
    ended_at: float
    items: tuple[Seen, ...]
    is_strong: bool
    newest_first: bool = False
    only: str | None = None


class Breach(NamedTuple):
    """One breach of the promise, with what is needed to look into it."""

    fault: Fault
    collection: str
    sort_key: str
    detail: str


@dataclass(slots=True)
class TableHistory:
    """Everything that was written and read."""

    items: dict[str, dict[str, ItemHistory]] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    refusals: list[tuple[str, str, float, float]] = field(default_factory=list)
    """Changes that were refused because their item was not there: collection, sort key, began at, ended at."""

    def item(self, collection: str, sort_key: str) -> ItemHistory:
        """Return the history of one item."""
        return self.items.setdefault(collection, {}).setdefault(sort_key, ItemHistory())

    def count(self, kind: Literal["creations", "deletions", "changes"]) -> int:
        """Count what was acknowledged of one kind."""
        histories = (history for items in self.items.values() for history in items.values())
        if kind == "changes":
            return sum(a.acknowledged_at < NEVER for history in histories for a in history.changes.values())
        return sum(any(a.acknowledged_at < NEVER for a in getattr(history, kind)) for history in histories)


def check_table(history: TableHistory) -> tuple[Breach, ...]:
    """Judge a history; each breach is named once, however many reads show it."""
    found = {
        breach[:3]: breach
        for breach in (
            *(breach for read in history.reads for breach in _check_read(read, history.items.get(read.collection, {}))),
            *_check_refusals(history),
        )
    }
    return tuple(found.values())


def _check_read(read: Read, items: Mapping[str, ItemHistory]) -> Iterator[Breach]:
    seen = {item.sort_key: item for item in read.items}
    for sort_key, times in Counter(item.sort_key for item in read.items).items():
        if times > 1:
            yield Breach("doubled", read.collection, sort_key, f"{times} times in one read")
    for one, two in pairwise(item.sort_key for item in read.items):
        if (two > one) if read.newest_first else (two < one):
            yield Breach("out of order", read.collection, two, f"comes after {one}")
    for sort_key in seen:
        if sort_key not in items or items[sort_key].offered_at > read.ended_at:
            yield Breach("invented", read.collection, sort_key, "nobody had tried to create it")
    if read.is_strong:
        wanted = items if read.only is None else {read.only: items.get(read.only, ItemHistory())}
        for sort_key, history in wanted.items():
            yield from _check_item(read, sort_key, history, seen.get(sort_key))


def _check_item(read: Read, sort_key: str, history: ItemHistory, seen: Seen | None) -> Iterator[Breach]:
    if seen is None:
        if history.created_at < read.began_at and history.doomed_at > read.ended_at:
            detail = f"created by {history.created_at:.3f}, absent from a read from {read.began_at:.3f} on"
            yield Breach("lost", read.collection, sort_key, detail)
        return
    if history.deleted_at < read.began_at:
        detail = f"deleted by {history.deleted_at:.3f}, there in a read from {read.began_at:.3f} on"
        yield Breach("resurrected", read.collection, sort_key, detail)
    yield from _check_changes(read, sort_key, history, seen.changes)


def _check_changes(read: Read, sort_key: str, history: ItemHistory, changes: Sequence[str]) -> Iterator[Breach]:
    times = Counter(changes)
    for change, attempt in history.changes.items():
        if attempt.acknowledged_at < read.began_at and not times[change]:
            detail = (
                f"{change}, acknowledged at {attempt.acknowledged_at:.3f}, is not in a read from {read.began_at:.3f}"
            )
            yield Breach("update lost", read.collection, sort_key, detail)
    for change, count in times.items():
        if count > 1:
            yield Breach("update doubled", read.collection, sort_key, f"{change} is there {count} times")
        if change not in history.changes or history.changes[change].began_at > read.ended_at:
            yield Breach("invented", read.collection, sort_key, f"nobody had made the change {change}")


def _check_refusals(history: TableHistory) -> Iterable[Breach]:
    """A change that finds no item, though it was created before and nobody had begun to delete it, has lost it."""
    for collection, sort_key, began_at, ended_at in history.refusals:
        item = history.item(collection, sort_key)
        if item.created_at < began_at and item.doomed_at > ended_at:
            yield Breach("lost", collection, sort_key, f"a change from {began_at:.3f} on did not find it")
