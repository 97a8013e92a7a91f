"""What the DynamoDB proxy knows of a table: its keys, its indexes and their ARNs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from hotpartition.core.capacity import Item
from tools.local.dynamodb_meter import ServiceError
from tools.local.partitions import PartitionKey


@dataclass(frozen=True, slots=True)
class IndexShape:
    """A global secondary index. `projected` is None when all attributes are."""

    name: str
    arn: str
    key_attributes: tuple[str, ...]
    projected: frozenset[str] | None

    def entry(self, item: Item | None) -> dict[str, Any] | None:
        """Build the index entry of an item, or None if the item lacks one of the index's keys (sparse index)."""
        if item is None or any(name not in item for name in self.key_attributes):
            return None
        if self.projected is None:
            return dict(item)
        return {name: value for name, value in item.items() if name in self.projected}

    def partition_key(self, entry: Item) -> PartitionKey:
        """Name the index partition that holds the entry."""
        return PartitionKey(self.arn, key_text(entry[self.key_attributes[0]]))


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table's keys and its global secondary indexes."""

    name: str
    arn: str
    key_attributes: tuple[str, ...]
    indexes: tuple[IndexShape, ...] = ()

    @classmethod
    def from_description(cls, table: Mapping[str, Any]) -> Self:
        """Read DescribeTable's response."""
        keys = _key_names(table["KeySchema"])
        indexes = tuple(
            _index_shape(index, table["TableArn"], keys) for index in table.get("GlobalSecondaryIndexes") or ()
        )
        return cls(table["TableName"], table["TableArn"], keys, indexes)

    def partition_key(self, item: Item) -> PartitionKey:
        """Name the physical partition of an item or key."""
        return PartitionKey(self.arn, key_text(self.primary_key(item)[self.key_attributes[0]]))

    def primary_key(self, item: Item) -> dict[str, Any]:
        """Extract the key attributes of an item; one that is missing is a ValidationException."""
        if any(name not in item for name in self.key_attributes):
            message = "The provided key element does not match the schema"
            raise ServiceError(400, {"__type": "com.amazon.coral.validate#ValidationException", "message": message})
        return {name: item[name] for name in self.key_attributes}

    def index(self, name: str) -> IndexShape | None:
        """Find an index by name."""
        return next((index for index in self.indexes if index.name == name), None)


def key_text(value: Mapping[str, Any]) -> str:
    """Return a key attribute's content as text, whatever its type."""
    return str(next(iter(value.values())))


def _index_shape(index: Mapping[str, Any], table_arn: str, table_keys: tuple[str, ...]) -> IndexShape:
    keys = _key_names(index["KeySchema"])
    projection = index.get("Projection", {})
    projected: frozenset[str] | None = None
    if projection.get("ProjectionType", "ALL") != "ALL":
        projected = frozenset((*keys, *table_keys, *projection.get("NonKeyAttributes", ())))
    arn = index.get("IndexArn") or f"{table_arn}/index/{index['IndexName']}"
    return IndexShape(index["IndexName"], arn, keys, projected)


def _key_names(schema: list[Mapping[str, str]]) -> tuple[str, ...]:
    ordered = sorted(schema, key=lambda element: element["KeyType"] != "HASH")
    return tuple(element["AttributeName"] for element in ordered)
