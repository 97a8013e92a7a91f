"""How shards are chosen; and all axes of one `ShardedTable`: from its owner's items to where they can be."""

from __future__ import annotations

import secrets
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.items import ItemKey
from hotpartition.core.merge import ItemSizes, ItemT
from hotpartition.core.ports import ItemStore
from hotpartition.core.route import candidate_keys
from hotpartition.dynamodb.python_values import Attributes, load
from hotpartition.dynamodb.table import LOAD_PREFIX, JournalPlace
from hotpartition.engine.gatherer import Gatherer
from hotpartition.table.cached_reads import CachedReads
from hotpartition.table.indexes import Changes, KeptIndex
from hotpartition.table.requests import Boto3Table, without
from hotpartition.table.routes import TableRoutes
from hotpartition.table.schema import Place, Schema, order_of, text_of

Position = Callable[[Any], int | None]
"""Returns a sort key's position: an integer that never falls as the sort key grows.

It is called with bounds of queries as well, which need be no whole sort keys; for those it may return None.
"""


Target = ItemKey[Place]
"""One item, as its owner names it."""


@dataclass(frozen=True, slots=True)
class BySortKey:
    """The sort key."""

    attribute: None = None

    def of_key(self, schema: Schema, key: Mapping[str, Any]) -> str:
        """Return the text for an item of which only the key is known; None where the key does not contain it."""
        return text_of(key[schema.sort])

    of_item = of_key
    """Returns the text for an item that is put; None where the item does not contain it."""

    def of_nothing(self, meeting: str | None = None) -> str:
        """Return the text for a new item that does not contain it: `meeting`, if all its creations must meet."""
        del meeting
        raise AssertionError("every item has a sort key")


@dataclass(frozen=True, slots=True)
class ByAttribute:
    """An attribute that every item has. Methods as of `BySortKey`."""

    attribute: str
    """Queries for one value of it ask only where that can be."""
    from_key: Callable[[Mapping[str, Any]], Any] | None = None

    def of_item(self, schema: Schema, item: Mapping[str, Any]) -> str:
        """Return the text for an item that is put.

        Raises:
            InvalidRequestError: the item does not have the attribute, or it is not a string, number or binary.
        """
        if self.attribute not in item:
            named = self.of_key(schema, item)
            if named is None:
                raise InvalidRequestError.of(self.attribute, "is what the shard is chosen by: every item must have it")
            return named
        return self.of_value(schema, item, item[self.attribute])

    def of_key(self, schema: Schema, key: Mapping[str, Any]) -> str | None:
        """Return the text for a key."""
        if self.from_key is None:
            return None
        return text_of(self.from_key({schema.partition: key[schema.partition], schema.sort: key[schema.sort]}))

    def of_value(self, schema: Schema, key: Mapping[str, Any], value: Any) -> str:
        """Return the text for a value that the attribute of an item is given.

        Raises:
            InvalidRequestError: it is not a string, number or binary, or another value than its key gives.
        """
        try:
            text = text_of(value)
        except TypeError as error:
            raise InvalidRequestError.of(self.attribute, str(error)) from error
        named = self.of_key(schema, key)
        if named not in {None, text}:
            raise InvalidRequestError.of(self.attribute, f"is {text!r}, but the item's key says {named!r} (from_key)")
        return text

    def of_nothing(self, meeting: str | None = None) -> str:
        """Refuse.

        Raises:
            InvalidRequestError: always: the caller must say where a new item goes.
        """
        del meeting
        raise InvalidRequestError.of(
            self.attribute, "is what the shard is chosen by: an update that creates an item needs it (Hashed=…)"
        )


@dataclass(frozen=True, slots=True)
class AtRandom:
    """Nothing: any shard. Methods as of `BySortKey`."""

    new_text: Callable[[], str]
    attribute: None = None

    def of_key(self, schema: Schema, key: Mapping[str, Any]) -> None:
        """Return nothing."""

    of_item = of_key

    def of_nothing(self, meeting: str | None = None) -> str:
        """Return the text for a new item."""
        return meeting or self.new_text()


Hashing = BySortKey | ByAttribute | AtRandom
"""Says by which text an item's shard is chosen."""


def by_sort_key() -> BySortKey:
    """Choose shards by the sort key: a point read asks the base key and one shard.

    Example:
        >>> ShardedTable(table, shards=fixed(16), hashed=by_sort_key())
    """
    return BySortKey()


def by_attribute(name: str, *, from_key: Callable[[Mapping[str, Any]], Any] | None = None) -> ByAttribute:
    """Choose shards by an attribute: a query for one value of it asks the base key and that value's shard only.

    An item keeps its value of the attribute for good: it belongs to the item as its key does. A put with the same key
    and another value would make a second item of that key, so keys should contain the value (`from_key`), for example
    at the end of the sort key: a put that does not fit is then refused.

    Args:
        name: the attribute. Every item must have it.
        from_key: returns the value from an item's key, where the sort key holds it. Point reads and changes then ask
            one shard; without it they ask all, unless they are called with `Hashed=value`.

    Example:
        >>> ShardedTable(table, shards=fixed(16), hashed=by_attribute("device_id"))
        >>> by_attribute("device_id", from_key=lambda key: key["SK"].split("#")[1])
    """
    return ByAttribute(name, from_key)


def at_random(new_text: Callable[[], str] = lambda: secrets.token_hex(8)) -> AtRandom:
    """Choose any shard: nothing in an item shows where it is, so point reads and changes ask all shards.

    `append_only=True` spares the puts this: they look nowhere. Without it, an item is created on the shard of its sort
    key, where two that create it at the same time meet.

    Args:
        new_text: makes the text that the next item's shard is chosen by.

    Example:
        >>> ShardedTable(table, shards=fixed(16), hashed=at_random(), append_only=True)
    """
    return AtRandom(new_text)


@dataclass(frozen=True, slots=True)
class Sharding:
    """How one table is sharded."""

    schema: Schema
    routes: TableRoutes
    hashing: Hashing
    position: Position | None
    indexes: Sequence[KeptIndex]
    """Those that are kept."""
    table: Boto3Table
    """How it is reached."""
    executor: Executor
    """Runs the queries of one page at the same time."""
    append_only: bool
    """Whether items are only ever created."""
    cached: CachedReads | None
    """What `cache=True` reads through."""
    sizes: ItemSizes = field(default_factory=ItemSizes)

    def gatherer(self, store: ItemStore[Place, ItemT]) -> Gatherer[Place, ItemT]:
        """Build the gatherer over a store, for one call."""
        return self.routes.engine.gatherer(
            store=store,
            form=self.schema.form,
            is_folding=self.routes.is_folding,
            budget_from_refusal=True,
            sizes=self.sizes,
        )

    def is_journal(self, item: Mapping[str, Any]) -> bool:
        """Say whether an item of the table, or its key, is a routing item."""
        place = self.routes.journal
        if place is None:
            sort_key = self.routes.left_sort_key
            return sort_key is not None and item.get(self.schema.sort) == sort_key
        return not place.is_apart and item.get(self.schema.sort) == routing_value_of(place)

    def show_stored(self, stored: Mapping[str, Any]) -> Attributes | None:
        """Turn a stored item, key or image, in either form of values, into the owner's; None: it is not the owner's."""
        schema = self.schema
        if schema.partition not in stored:
            return None
        key = {name: _python_value(stored.get(name)) for name in schema.key}
        is_load = self.routes.journal is not None and key[schema.partition].startswith(LOAD_PREFIX)
        if is_load or self.is_journal(key):
            return None
        collection = schema.collection_of(key[schema.partition])
        is_typed = isinstance(stored[schema.partition], Mapping)
        shown = {**stored, schema.partition: {"S": collection} if is_typed else collection}
        return without(shown, *schema.reserved)

    def index_keys(self, partition_key: str, attributes: Mapping[str, Any]) -> Attributes:
        """Build the attributes that an item has for its indexes, under a partition key."""
        return {name: key for each in self.indexes for name, key in each.keys_of(partition_key, attributes).items()}

    def index_changes(self, partition_key: str, key: Mapping[str, Any], request: Mapping[str, Any]) -> Changes:
        """Build the attributes that an update sets and removes for the item's indexes.

        Raises:
            InvalidRequestError: its change of an attribute of an index cannot be read.
        """
        changes = [each.changes_of(partition_key, key, request) for each in self.indexes]
        sets = {name: value for each in changes for name, value in each.sets.items()}
        return Changes(sets, [name for each in changes for name in each.removes])

    def target_of_item(self, item: Mapping[str, Any]) -> Target:
        """Return which item this is.

        Raises:
            InvalidRequestError: its partition key is not allowed, or it lacks what its shard is chosen by.
        """
        return self._target(item, self.hashing.of_item(self.schema, item))

    def target_of_key(self, key: Mapping[str, Any], hashed: Any) -> Target:
        """Return which item has a key; `hashed` is the value that the caller gives, or None.

        Raises:
            InvalidRequestError: its partition key is not allowed, or the value is of nothing, or not the key's.
        """
        text = self.hashing.of_key(self.schema, key) if hashed is None else self.text_of_hashed(hashed, key)
        return self._target(key, text)

    def text_of_hashed(self, value: Any, key: Mapping[str, Any] | None = None) -> str:
        """Return the text of the value that a caller gives as `Hashed`; `key` is the item's, where it is known.

        Raises:
            InvalidRequestError: shards are not chosen by an attribute, or the item's key gives another value.
        """
        if not isinstance(self.hashing, ByAttribute):
            raise InvalidRequestError.of("Hashed", "is for tables with hashed=by_attribute(…). Leave it out")
        return text_of(value) if key is None else self.hashing.of_value(self.schema, key, value)

    def refuse_reserved(self, item: Mapping[str, Any]) -> None:
        """Refuse an item with reserved attributes, or with the sort key of a routing item.

        Raises:
            InvalidRequestError: naming the reserved value.
        """
        for name in sorted(self.schema.reserved & item.keys()):
            raise InvalidRequestError.of(name, "is reserved for ShardedTable. Call the attribute something else")
        if self.is_journal(item):
            raise InvalidRequestError.of(self.schema.sort, f"{item[self.schema.sort]!r} is reserved for ShardedTable")
        if self.routes.journal is not None and str(item[self.schema.partition]).startswith(LOAD_PREFIX):
            raise InvalidRequestError.of(self.schema.partition, f"{LOAD_PREFIX!r}… is reserved for ShardedTable")

    def sole_place_of(self, target: Target) -> str | None:
        """Return the only partition key that can hold an item; None where there are several, or a journal decides."""
        if self.routes.journal is not None:
            return None
        route = self.routes.get(target.collection)
        keys = candidate_keys(route, target, self.schema.form, choices=self.routes.engine.choices)
        return keys[0] if len(keys) == 1 else None

    def key_of_new(self, target: Target, *, must_meet: bool = False) -> ItemKey[str]:
        """Build the engine's key of an item to create; `must_meet`: the same key in every call that creates it.

        Raises:
            InvalidRequestError: the text that chooses its shard is missing.
        """
        sort_key = text_of(target.sort_key[0])
        hashed = self.hashing.of_nothing(sort_key if must_meet else None) if target.hashed is None else target.hashed
        return ItemKey(target.collection, sort_key, target.position, hashed)

    def position_of(self, sort_value: Any) -> int | None:
        """Return the position of a sort key or bound; 0 where the table gives none, None where it is unknown.

        Raises:
            TypeError: it is no whole number.
        """
        position = 0 if self.position is None else self.position(sort_value)
        if position is not None and not isinstance(position, int):
            raise TypeError(f"position({sort_value!r}) is {position!r}: should be a whole number, or None")
        return position

    def _target(self, attributes: Mapping[str, Any], hashed: str | None) -> Target:
        for index in self.indexes:
            index.check(attributes)
        collection = self.schema.form.check(attributes[self.schema.partition])
        sort_value = attributes[self.schema.sort]
        return ItemKey(collection, (order_of(sort_value),), self.position_of(sort_value) or 0, hashed)


def routing_value_of(place: JournalPlace) -> Any:
    """Return the sort key of routing items beside the items, as boto3's `Table` has it."""
    return load(place.key_of(""))[place.sort_key]


def _python_value(value: Any) -> Any:
    """Return a key's value; one in DynamoDB's own form is a map from its type, whose bytes a stream has as text."""
    match value:
        case {"N": text}:
            return Decimal(text)
        case {"B": str(text)}:
            return b64decode(text)
        case Mapping():
            return next(iter(value.values()))
    return value
