"""The keys of a table, as its owner and as DynamoDB know them, and the attributes that a `ShardedTable` adds.

| attribute | where | meaning |
|---|---|---|
| `hp_changes` (N) | items that were changed | how often: of two copies, the more often changed one is the item |
| `hp_shards` (N) | items on shards, `fixed` only | the N that they were written under |
| `hp_noted` (S) | items on shards that are about to be moved | by which run (`control/folding.py`) |

All are taken out of whatever is returned. Nothing else is stored beside the owner's attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from boto3.dynamodb.types import Binary

from hotpartition.core.capacity import (
    CONTAINER_OVERHEAD_BYTES,
    ELEMENT_OVERHEAD_BYTES,
    number_size_bytes,
    text_size_bytes,
)
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.python_values import Attributes

CHANGES = "hp_changes"
SHARDS = "hp_shards"
NOTED = "hp_noted"
RESERVED = frozenset({CHANGES, SHARDS, NOTED})

Place = tuple[Any, ...]
"""Where an item lies in its collection's order: its sort key in comparable form; in an index, both sort keys."""
_TYPES: dict[str, tuple[type, ...]] = {"S": (str,), "N": (int, Decimal), "B": (bytes, bytearray, Binary)}
_EMPTY = ("", b"", Binary(b""))

SCALARS = tuple(kind for kinds in _TYPES.values() for kind in kinds)
"""The types of keys, and of values that choose shards."""


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index: the names of its keys. `sort` is None for an index without a sort key.

    Where it has several of a kind, `partition` is the table's partition key if that is one of them.
    """

    partition: str
    sort: str | None
    also_hashed: tuple[str, ...] = ()
    also_sorted: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of all its keys."""
        return frozenset({self.partition, *self.also_hashed, *self.also_sorted} | ({self.sort} if self.sort else set()))


@dataclass(frozen=True)
class Schema:
    """The names and types of a table's keys, and its indexes."""

    partition: str
    sort: str
    sort_type: str
    indexes: Mapping[str, Index]
    form: KeyForm = field(default_factory=KeyForm)
    """How the partition keys of shards are built."""
    reserved: frozenset[str] = RESERVED
    """The attributes that are ours: no owner writes or sees them."""

    @classmethod
    def of(cls, table: Any) -> Schema:
        """Read the keys of a boto3 `Table`, which asks DynamoDB (`DescribeTable`) once. REQUIRES: it has a sort key.

        Raises:
            NotImplementedError: the partition key of a table is not a string.
        """
        types = {entry["AttributeName"]: entry["AttributeType"] for entry in table.attribute_definitions}
        names = _key_names(table.key_schema, "")
        assert names.sort is not None  # noqa: S101  required
        if types[names.partition] != "S":
            raise NotImplementedError(
                f"the partition key of {table.name} ({names.partition}) is no string, so no shard can be named in it. "
                "Use a table whose partition key is of type S"
            )
        indexes = [*(table.local_secondary_indexes or ()), *(table.global_secondary_indexes or ())]
        return cls(
            names.partition,
            names.sort,
            types[names.sort],
            {index["IndexName"]: _key_names(index["KeySchema"], names.partition) for index in indexes},
            KeyForm(label=names.partition),
        )

    @property
    def key(self) -> frozenset[str]:
        """The names of both key attributes."""
        return frozenset({self.partition, self.sort})

    def is_key(self, key: Any) -> bool:
        """Say whether this is a complete key and nothing more; DynamoDB itself refuses any other best."""
        return self.has_key(key) and len(key) == 2

    def has_key(self, item: Any) -> bool:
        """Say whether both key attributes are there, of the right types and not empty."""
        return (
            isinstance(item, Mapping)
            and self.is_partition_value(item.get(self.partition))
            and isinstance(item.get(self.sort), _TYPES[self.sort_type])
            and not isinstance(item[self.sort], bool)
            and item[self.sort] not in _EMPTY
        )

    def is_partition_value(self, value: Any) -> bool:
        """Say whether this can be the partition key of an item."""
        return isinstance(value, str) and value != ""

    def collection_of(self, partition_key: str) -> str:
        """Return whose partition key this is."""
        return self.form.parse(partition_key)[0]

    def identify(self, item: Mapping[str, Any]) -> tuple[str, Any]:
        """Return what is equal for items of one key."""
        return item[self.partition], order_of(item[self.sort])

    def key_of(self, item: Mapping[str, Any]) -> Attributes:
        """Take an item's key out of it."""
        return {self.partition: item[self.partition], self.sort: item[self.sort]}

    def marks_of_change(self, item: Mapping[str, Any]) -> dict[str, int]:
        """Return the added attributes that a stored item has once it is put or changed in its place."""
        marks = {SHARDS: int(item[SHARDS])} if SHARDS in item else {}
        return {**marks, CHANGES: int(item.get(CHANGES, 0)) + 1}

    def show(self, item: Mapping[str, Any], hidden: frozenset[str] = frozenset()) -> Attributes:
        """Turn a stored item into the owner's: its own partition key, and no attribute that was not asked for."""
        left_out = self.reserved | hidden
        shown = {name: value for name, value in item.items() if name not in left_out}
        if self.partition in shown:
            shown[self.partition] = self.collection_of(shown[self.partition])
        return shown


def _key_names(key_schema: Any, table_partition: str) -> Index:
    hashed = [entry["AttributeName"] for entry in key_schema if entry["KeyType"] == "HASH"]
    hashed.sort(key=lambda name: name != table_partition)
    ranges = [entry["AttributeName"] for entry in key_schema if entry["KeyType"] == "RANGE"]
    return Index(hashed[0], ranges[0] if ranges else None, tuple(hashed[1:]), tuple(ranges[1:]))


def order_of(value: Any) -> Any:
    """Return what compares as DynamoDB sorts this key value: text as its UTF-8, numbers by value, binary by byte."""
    binary: Any = value
    return bytes(binary) if isinstance(value, (Binary, bytearray)) else value


_NUMBERS = Context(prec=38)
"""DynamoDB's numbers, whatever precision a thread has set; `plus` makes 0 of -0."""


def is_text_of(value: Any, text: str) -> bool:
    """Say whether `text_of` gives this text for a value of any type."""
    try:
        return text_of(value) == text
    except TypeError:
        return False


def text_of(value: Any) -> str:
    """Build the text of a value that the shard is chosen by: equal values have equal texts.

    Raises:
        TypeError: it is not a string, number or binary.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, _TYPES["B"]):
        return bytes(order_of(value)).hex()
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return f"{_NUMBERS.plus(_NUMBERS.normalize(Decimal(value))):f}"
    raise TypeError(f"{value!r} is no string, number or binary: no shard can be chosen by it")


def attributes_size_bytes(attributes: Mapping[str, Any]) -> int:
    """Compute what `core.capacity.item_size_bytes` says of the encoded item; what boto3 will refuse counts nothing."""
    return sum([text_size_bytes(str(name)) + _value_size_bytes(value) for name, value in attributes.items()])


def _value_size_bytes(value: Any) -> int:
    match value:
        case str():
            return text_size_bytes(value)
        case bool() | None:
            return 1
        case int() | Decimal():
            return number_size_bytes(str(value))
        case bytes() | bytearray() | Binary():
            return len(order_of(value))
        case AbstractSet():
            return sum([_value_size_bytes(element) for element in value])
        case list() | tuple():
            elements = [ELEMENT_OVERHEAD_BYTES + _value_size_bytes(element) for element in value]
            return CONTAINER_OVERHEAD_BYTES + sum(elements)
        case Mapping():
            return CONTAINER_OVERHEAD_BYTES + len(value) * ELEMENT_OVERHEAD_BYTES + attributes_size_bytes(value)
        case _:
            return 0
