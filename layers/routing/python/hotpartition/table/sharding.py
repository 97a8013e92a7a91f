"""The axes of one `ShardedTable` together: from items and keys of its owner to the places where they can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hotpartition.core.items import ItemKey
from hotpartition.core.route import Route, candidate_keys, needed_keys
from hotpartition.errors import InvalidRequestError, MalformedGenerationError
from hotpartition.ports import JournalEntry
from hotpartition.table.hashing import Hashing
from hotpartition.table.journal_items import is_journal, read_entry
from hotpartition.table.routes import Routes
from hotpartition.table.schema import Attributes, Schema, text_of
from hotpartition.table.time_buckets import BucketIndex

Position = Callable[[Any], int | None]
"""Tells a sort key's position: an integer that never falls as the sort key grows.

It is called with bounds of queries as well, which need be no whole sort keys; for those it may return None.
"""


class Target(NamedTuple):
    """One item, as its owner names it. `hashed` is None where it is not known what its shard was chosen by."""

    collection: str
    sort_value: Any
    position: int
    hashed: str | None


@dataclass(frozen=True, slots=True)
class Sharding:
    """How one table is sharded."""

    schema: Schema
    routes: Routes
    hashing: Hashing
    position: Position | None
    index: BucketIndex | None = None
    """An index by time, if there is one."""

    def index_keys(self, partition_key: str, attributes: Mapping[str, Any]) -> Attributes:
        """Build what is stored in an item for the index by time, under a partition key; nothing without one."""
        return {} if self.index is None else self.index.keys_of(partition_key, attributes[self.schema.sort])

    def target_of_item(self, item: Mapping[str, Any]) -> Target:
        """Return which item this is.

        Raises:
            InvalidRequestError: its partition key is none, or it lacks what its shard is chosen by.
        """
        return self._target(item, self.hashing.of_item(self.schema, item))

    def target_of_key(self, key: Mapping[str, Any], hashed: Any) -> Target:
        """Return which item has a key; `hashed` is what the caller tells of it, or None.

        Raises:
            InvalidRequestError: its partition key is none.
        """
        text = self.hashing.of_key(self.schema, key) if hashed is None else text_of(hashed)
        return self._target(key, text)

    def refuse_reserved(self, item: Mapping[str, Any]) -> None:
        """Refuse an item with attributes of ours, or with the sort key of a routing item.

        Raises:
            InvalidRequestError: naming what is reserved.
        """
        for name in sorted(self.schema.reserved & item.keys()):
            raise InvalidRequestError.of(name, "is reserved for ShardedTable. Call the attribute something else")
        if is_journal(self.routes.journal, self.schema, item):
            raise InvalidRequestError.of(self.schema.sort, f"{item[self.schema.sort]!r} is reserved for ShardedTable")

    def key_of_stored(self, target: Target) -> ItemKey:
        """Build the engine's key of an item that is stored already: what its shard was chosen by matters no more."""
        return ItemKey(target.collection, text_of(target.sort_value), target.position, target.hashed or "")

    def key_of_new(self, target: Target, *, must_meet: bool = False) -> ItemKey:
        """Build the engine's key of an item that is to be created; `must_meet`: the same one by whoever creates it.

        Raises:
            InvalidRequestError: nothing tells what its shard is chosen by.
        """
        sort_key = text_of(target.sort_value)
        hashed = self.hashing.of_nothing(sort_key if must_meet else None) if target.hashed is None else target.hashed
        return ItemKey(target.collection, sort_key, target.position, hashed)

    def next_places(self, route: Route, target: Target, *, asked: Collection[str]) -> tuple[str, ...]:
        """List the partition keys that are asked next for an item; none: what was not found is not there.

        All its choices are asked, found or not: a late copy at one may be older than the item at another.
        """
        form = self.schema.form
        if target.hashed is None:
            keys = needed_keys(route, target.collection, target.position, form)
        else:
            keys = candidate_keys(route, self.key_of_new(target), form, choices=self.routes.choices)
        return tuple(key for key in keys if key not in asked)

    def read_entry(self, collection: str, routing_item: Mapping[str, Any] | None) -> JournalEntry:
        """Read a collection's routing item; None where there is none.

        Raises:
            MalformedGenerationError: it cannot be read; an operator is told.
        """
        try:
            return read_entry(routing_item)
        except MalformedGenerationError as error:
            self.routes.name_unreadable(collection, error)
            raise

    def position_of(self, sort_value: Any) -> int | None:
        """Return the position of a sort key or bound; 0 where the table gives none, None where it cannot be told."""
        return 0 if self.position is None else self.position(sort_value)

    def _target(self, attributes: Mapping[str, Any], hashed: str | None) -> Target:
        collection = self.schema.form.check(attributes[self.schema.partition])
        sort_value = attributes[self.schema.sort]
        return Target(collection, sort_value, self.position_of(sort_value) or 0, hashed)
