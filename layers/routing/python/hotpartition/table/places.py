"""Where items can be: the partition keys under which a collection's items are stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hotpartition.core.route import Placement, Route, choose_shards
from hotpartition.errors import InvalidRequestError

SEPARATOR = "#_"
_SHARD_KEY = re.compile(r"(.+)#_([0-9]{1,4})", re.DOTALL)


class ItemKey(NamedTuple):
    """An item as routes know it. `hashed` is None where it is not known what its shard was chosen by."""

    collection: str
    position: int
    hashed: str | None


def shard_key(collection: str, index: int) -> str:
    """Build the partition key of one shard."""
    return f"{collection}{SEPARATOR}{index}"


def collection_of(partition_key: str) -> str:
    """Return whose partition key this is."""
    match = _SHARD_KEY.fullmatch(partition_key)
    return match[1] if match else partition_key


def shard_index_of(partition_key: str) -> int | None:
    """Return the shard's index; None for a base key."""
    match = _SHARD_KEY.fullmatch(partition_key)
    return int(match[2]) if match else None


def check_collection(attribute: str, collection: str) -> None:
    """Refuse a partition key that looks like one of a shard.

    Raises:
        InvalidRequestError: it does.
    """
    if _SHARD_KEY.fullmatch(collection):
        raise InvalidRequestError.of(
            attribute,
            f"{collection!r} ends like the name of a shard: a partition key must not end in {SEPARATOR}<number>",
        )


@dataclass(frozen=True, slots=True)
class Places:
    """The partition keys of one collection, by its route."""

    route: Route
    choices: int

    def for_new(self, key: ItemKey) -> tuple[Placement, ...]:
        """List where a new item may go, its first choice first. REQUIRES: `key.hashed` is known."""
        shard_count = self.route.shard_count_at(key.position)
        if not shard_count:
            return (Placement(key.collection, 0),)
        shards = choose_shards(key.hashed or "", shard_count, choices=self.choices)
        return tuple(Placement(shard_key(key.collection, shard), shard_count) for shard in shards)

    def of_item(self, key: ItemKey) -> tuple[str, ...]:
        """List where an item can be: the base key, and its choices under every generation it may be of."""
        if key.hashed is None:
            return self.of_collection(key.collection, key.position)
        return self.of_hashed(key.collection, key.hashed, key.position)

    def of_hashed(self, collection: str, hashed: str, until: int | None) -> tuple[str, ...]:
        """List where items with this hashed value, and a position up to a bound, can be."""
        return tuple(dict.fromkeys(self._of_hashed(collection, hashed, until)))

    def of_collection(self, collection: str, until: int | None) -> tuple[str, ...]:
        """List where items with a position up to a bound can be."""
        shard_count = self.route.shard_count_at(until)
        return (collection, *(shard_key(collection, index) for index in range(shard_count)))

    def _of_hashed(self, collection: str, hashed: str, until: int | None) -> Iterator[str]:
        yield collection
        counts = sorted({g.shard_count for g in self.route.generations if until is None or g.since_ms <= until})
        for count in counts:
            yield from (shard_key(collection, shard) for shard in choose_shards(hashed, count, choices=self.choices))
