"""The axes of one `ShardedTable` together: from items and keys of its owner to the places where they can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hotpartition.table.hashing import Hashing
from hotpartition.table.places import ItemKey, Places, check_collection
from hotpartition.table.routes import FixedRoutes
from hotpartition.table.schema import Schema, text_of

Position = Callable[[Any], int]
"""Tells a sort key's position: an integer that never falls as the sort key grows."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """How one table is sharded."""

    schema: Schema
    routes: FixedRoutes
    hashing: Hashing
    position: Position | None

    def key_of_item(self, item: Mapping[str, Any]) -> ItemKey:
        """Build the engine's key of an item.

        Raises:
            InvalidRequestError: its partition key is none, or it lacks what its shard is chosen by.
        """
        return self._key(item, self.hashing.of_item(self.schema, item))

    def key_of_key(self, key: Mapping[str, Any], hashed: Any) -> ItemKey:
        """Build the engine's key of an item of which only the key is known, and what the caller tells (or None).

        Raises:
            InvalidRequestError: its partition key is none.
        """
        text = self.hashing.of_key(self.schema, key) if hashed is None else text_of(hashed)
        return self._key(key, text)

    def places(self, collection: str) -> Places:
        """Return where a collection's items can be.

        Raises:
            InvalidRequestError: it looks like the partition key of a shard.
        """
        check_collection(self.schema.partition, collection)
        return Places(self.routes.get(collection), self.routes.choices)

    def places_for_new(self, collection: str) -> Places:
        """Return where a collection's new items go.

        Raises:
            InvalidRequestError: it looks like the partition key of a shard.
        """
        check_collection(self.schema.partition, collection)
        return Places(self.routes.get_for_new(collection), self.routes.choices)

    def position_of(self, sort_value: Any) -> int:
        """Return a sort key's position; 0 where the table gives none."""
        return 0 if self.position is None else self.position(sort_value)

    def _key(self, attributes: Mapping[str, Any], hashed: str | None) -> ItemKey:
        collection = attributes[self.schema.partition]
        check_collection(self.schema.partition, collection)
        return ItemKey(collection, self.position_of(attributes[self.schema.sort]), hashed)
