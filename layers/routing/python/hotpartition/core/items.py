"""An item as the engine knows it: its collection, its position there, and the text that chooses its shard."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, TypeVar


class Ordered(Protocol):
    """Values with an order: texts, numbers, bytes, and tuples of them."""

    def __lt__(self, other: Any, /) -> bool: ...

    def __le__(self, other: Any, /) -> bool: ...

    def __gt__(self, other: Any, /) -> bool: ...

    def __ge__(self, other: Any, /) -> bool: ...


KeyT = TypeVar("KeyT", bound=Ordered)
"""The type of a table's sort keys in the engine."""


class ItemKey(NamedTuple, Generic[KeyT]):
    """One item of a table, as its owner names it.

    `position` is an integer that never falls as the sort key grows, and what a generation's `since` means; messages
    have their time in ms. 0 everywhere for a table without: then every read asks all shards. `hashed` is the text that
    the shard is chosen by; None where that is not known: it may lie on any shard then, and cannot be placed.
    """

    collection: str
    sort_key: KeyT
    position: int
    hashed: str | None
