"""How a table looks to the adapters: the names of its keys, and where its routing items lie. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hotpartition.core.capacity import AttributeValue
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.calls import Call

LARGEST_NUMBER = "9." + 37 * "9" + "E+125"
"""The routing items' sort key where sort keys are numbers: nobody's time or count."""
LOAD_PREFIX = "hotpartition#load#"
"""The prefix of load items' partition keys, forbidden for collections of tables that have load items."""
_LONGEST_NAME_BYTES = 256
"""Of a collection in the key of its load item, which is to stay below 1 KB; a longer one is hashed."""


@dataclass(frozen=True)
class JournalPlace:
    """Where the routing items of one table lie.

    Either in their collections, at the base key and a sort key of their own (`sort_key` is that attribute's name,
    `routing_sort_key` its value): then reading one beside the newest items is free, and `index_name` names the sparse
    index that lists them; without one, the directory does. Or in a table of their own, whose only key is
    `partition_key`: then `sort_key` is empty, and listing reads that table.

    Directory: an item for each `routing_partition`. Their `collections` (SS) name whatever was raised; only ever added
    to, by each raise, and read by operators alone. If they vanished, raised keys could not be listed, and no more.
    """

    table_name: str
    partition_key: str = "pk"
    sort_key: str = "sk"
    routing_sort_key: str = "r#"
    index_name: str = ""
    sort_type: str = "S"
    """The type of `sort_key`: that of the table's items."""

    @property
    def is_apart(self) -> bool:
        """Whether the routing items have a table of their own."""
        return not self.sort_key

    @property
    def has_directory(self) -> bool:
        """Whether nothing but a directory lists the routing items."""
        return not (self.is_apart or self.index_name)

    def key_of(self, collection: str) -> dict[str, AttributeValue]:
        """Build the key of a collection's routing item."""
        key: dict[str, AttributeValue] = {self.partition_key: {"S": collection}}
        if self.sort_key:
            value: Any = self.routing_sort_key.encode() if self.sort_type == "B" else self.routing_sort_key
            key[self.sort_key] = {self.sort_type: value}
        return key

    def load_key_of(self, collection: str, place: int) -> dict[str, AttributeValue]:
        """Build the key of one of a collection's load items, which is never that of a collection."""
        name = collection.encode()
        if len(name) > _LONGEST_NAME_BYTES:
            collection = blake2b(name, digest_size=32).hexdigest()
        return self.key_of(f"{LOAD_PREFIX}{place}#{collection}")

    def build_load_get(self, collection: str, place: int) -> Call:
        """Build the request that reads a load item, eventually consistent."""
        key = self.load_key_of(collection, place)
        return Call("GetItem", {"TableName": self.table_name, "Key": key, "ConsistentRead": False})

    def directory_key(self, routing_partition: str) -> dict[str, AttributeValue]:
        """Build the key of a part of the directory."""
        return self.key_of(f"{LOAD_PREFIX}raised#{routing_partition}")

    def build_get(self, collection: str, *, is_strong: bool) -> Call:
        """Build the request that reads a collection's routing item."""
        request = {"TableName": self.table_name, "Key": self.key_of(collection), "ConsistentRead": is_strong}
        return Call("GetItem", request)


@dataclass(frozen=True)
class TableForm:
    """A table: the names of its keys, the form of its shard keys, and the journal that belongs to it.

    Items' sort keys lie between `first_sort_key` and `last_sort_key`. REQUIRES: a routing item in the same collection
    lies behind `last_sort_key`.
    """

    name: str
    journal: JournalPlace
    first_sort_key: str
    last_sort_key: str
    keys: KeyForm
    partition_key: str = "pk"
    sort_key: str = "sk"

    def key_of(self, partition_key: str, sort_key: str) -> dict[str, AttributeValue]:
        """Build an item's key."""
        return {self.partition_key: {"S": partition_key}, self.sort_key: {"S": sort_key}}
