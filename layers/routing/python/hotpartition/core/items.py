"""What the engine knows of an item: which collection it is of, where it lies in it, and what its shard is chosen by."""

from __future__ import annotations

from typing import NamedTuple


class ItemKey(NamedTuple):
    """One item of a table, as its owner names it.

    `position` is an integer that never falls as the sort key grows, and what a generation's `since` means; messages
    have their time in ms. 0 everywhere for a table that has none: then every read asks all shards. `hashed` is the text
    that the shard is chosen by.
    """

    collection: str
    sort_key: str
    position: int
    hashed: str
