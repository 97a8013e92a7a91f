"""What a shard is chosen by: the second axis of a `ShardedTable`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hotpartition.errors import InvalidRequestError
from hotpartition.table.schema import Schema, text_of


class Hashing(Protocol):
    """Says by which text an item's shard is chosen."""

    def of_item(self, schema: Schema, item: Mapping[str, Any]) -> str | None:
        """Return the text for an item that is put; None where nothing in the item tells."""
        ...

    def of_key(self, schema: Schema, key: Mapping[str, Any]) -> str | None:
        """Return the text for an item of which only the key is known; None where the key does not tell."""
        ...

    def of_nothing(self, meeting: str | None = None) -> str:
        """Return the text for a new item of which nothing tells it: `meeting`, if all who create it must meet."""
        ...

    @property
    def attribute(self) -> str | None:
        """The attribute that it is, if it is one: queries for one value of it ask only where that can be."""
        ...


@dataclass(frozen=True, slots=True)
class BySortKey:
    """The sort key."""

    attribute: None = None

    def of_item(self, schema: Schema, item: Mapping[str, Any]) -> str:
        """Implement `Hashing.of_item`."""
        return text_of(item[schema.sort])

    def of_key(self, schema: Schema, key: Mapping[str, Any]) -> str:
        """Implement `Hashing.of_key`."""
        return text_of(key[schema.sort])

    def of_nothing(self, meeting: str | None = None) -> str:
        """Implement `Hashing.of_nothing`: there is no such item."""
        del meeting
        raise AssertionError("every item has a sort key")


@dataclass(frozen=True, slots=True)
class ByAttribute:
    """An attribute that every item has."""

    attribute: str
    from_key: Callable[[Mapping[str, Any]], Any] | None = None

    def of_item(self, schema: Schema, item: Mapping[str, Any]) -> str:
        """Implement `Hashing.of_item`.

        Raises:
            InvalidRequestError: the item does not have the attribute, or it is no string, number or binary.
        """
        if self.attribute not in item:
            told = self.of_key(schema, item)
            if told is None:
                raise InvalidRequestError.of(self.attribute, "is what the shard is chosen by: every item must have it")
            return told
        return self.of_value(schema, item, item[self.attribute])

    def of_key(self, schema: Schema, key: Mapping[str, Any]) -> str | None:
        """Implement `Hashing.of_key`."""
        if self.from_key is None:
            return None
        return text_of(self.from_key({schema.partition: key[schema.partition], schema.sort: key[schema.sort]}))

    def of_value(self, schema: Schema, key: Mapping[str, Any], value: Any) -> str:
        """Return the text for a value that the attribute of an item is given.

        Raises:
            InvalidRequestError: it is no string, number or binary, or another value than its key tells.
        """
        try:
            text = text_of(value)
        except TypeError as error:
            raise InvalidRequestError.of(self.attribute, str(error)) from error
        told = self.of_key(schema, key)
        if told not in {None, text}:
            raise InvalidRequestError.of(self.attribute, f"is {text!r}, but the item's key says {told!r} (from_key)")
        return text

    def of_nothing(self, meeting: str | None = None) -> str:
        """Implement `Hashing.of_nothing`.

        Raises:
            InvalidRequestError: always: where a new item goes must be told.
        """
        del meeting
        raise InvalidRequestError.of(
            self.attribute, "is what the shard is chosen by: an update that creates an item must be told it (Hashed=…)"
        )


@dataclass(frozen=True, slots=True)
class AtRandom:
    """Nothing: any shard."""

    new_text: Callable[[], str]
    attribute: None = None

    def of_item(self, schema: Schema, item: Mapping[str, Any]) -> None:
        """Implement `Hashing.of_item`."""

    def of_key(self, schema: Schema, key: Mapping[str, Any]) -> None:
        """Implement `Hashing.of_key`."""

    def of_nothing(self, meeting: str | None = None) -> str:
        """Implement `Hashing.of_nothing`."""
        return meeting or self.new_text()


def by_sort_key() -> BySortKey:
    """Choose shards by the sort key: a point read asks the base key and one shard.

    Example:
        >>> ShardedTable(table, shards=fixed(16), hashed=by_sort_key())
    """
    return BySortKey()


def by_attribute(name: str, *, from_key: Callable[[Mapping[str, Any]], Any] | None = None) -> ByAttribute:
    """Choose shards by an attribute: a query for one value of it asks the base key and that value's shard only.

    An item keeps its value of the attribute for good: it belongs to the item as its key does. A put with the same key
    and another value would make a second item of that key, so keys should tell the value (`from_key`), as when the
    sort key ends in it: what does not fit is refused then.

    Args:
        name: the attribute. Every item must have it.
        from_key: tells the value from an item's key, where the sort key holds it. Point reads and changes then ask
            one shard; without it they ask all, unless they are called with `Hashed=value`.

    Example:
        >>> ShardedTable(table, shards=fixed(16), hashed=by_attribute("device_id"))
        >>> by_attribute("device_id", from_key=lambda key: key["SK"].split("#")[1])
    """
    return ByAttribute(name, from_key)


def at_random(new_text: Callable[[], str] = lambda: secrets.token_hex(8)) -> AtRandom:
    """Choose any shard: nothing about an item tells where it is, so point reads and changes ask all shards.

    `append_only=True` spares the puts this: they look nowhere. Without it, an item is created on the shard of its sort
    key, where two that create it at the same time meet.

    Args:
        new_text: makes the text that the next item's shard is chosen by.

    Example:
        >>> ShardedTable(table, shards=fixed(16), hashed=at_random(), append_only=True)
    """
    return AtRandom(new_text)
