"""Global indexes whose keys a `ShardedTable` writes, so that none of them is the hot key itself.

An index that is refused refuses the table's writes. So its hash key is an attribute that belongs to the library, and
has a shard behind its value:

| index | the hash key (S) | its shard | the range key |
|---|---|---|---|
| `ShardedIndex` | the value of the owner's attribute | by the item's own key, under the index's N | the owner's |
| `TimeBuckets` | `<collection>#<bucket>` | the item's shard in the table; none at a base key | a copy of the sort key |

What is written is taken out of whatever is returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from hotpartition.core.backoff import Clock
from hotpartition.core.items import ItemKey
from hotpartition.core.keys import KeyForm
from hotpartition.core.route import choose_placement
from hotpartition.errors import InvalidRequestError
from hotpartition.table.expressions import find_update
from hotpartition.table.routes import Fixed, FixedRoutes
from hotpartition.table.schema import Attributes, Index, Schema, text_of
from hotpartition.table.time_buckets import TimeBuckets


@dataclass(frozen=True, slots=True)
class ShardedIndex:
    """A global index of a `ShardedTable` whose hash key has few values, as a status has.

    The index's own hash key is another attribute, a string, which the table writes. The index is queried by the owner's
    attribute:

        table.query(IndexName="by-status", KeyConditionExpression=Key("status").eq("OPEN"))

    Example:
        >>> by_status = ShardedIndex("by-status", hash="status", shards=fixed(8))
        >>> ShardedTable(table, shards=fixed(0), indexes=[by_status])
    """

    index: str
    hash: str
    """The owner's attribute: a string. Items without it are not in the index."""
    shards: Fixed
    """`fixed(n)`: the highest load of one value, in WCU/s, divided by 500 or so."""

    def __post_init__(self) -> None:
        shards = self.shards
        if not isinstance(shards, Fixed) or shards.choices > 1 or not shards.written.shard_count_at(0):
            raise ValueError(f"ShardedIndex({self.index!r}): shards should be fixed(n), n at least 1, with one choice")


class Changes(NamedTuple):
    """What an update sets and removes for an index."""

    sets: Attributes
    removes: Sequence[str] = ()


class KeptIndex(Protocol):
    """An index of one table, bound to its keys."""

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that are written for the index."""
        ...

    def check(self, item: Mapping[str, Any]) -> None:
        """Refuse an item that the index cannot take.

        Raises:
            InvalidRequestError: naming the attribute.
        """
        ...

    def keys_of(self, partition_key: str, item: Mapping[str, Any]) -> Attributes:
        """Build what is written for the index into an item under this partition key."""
        ...

    def changes_of(self, partition_key: str, key: Mapping[str, Any], request: Mapping[str, Any]) -> Changes:
        """Build what an update of an item does for the index.

        Raises:
            InvalidRequestError: what the update does to the attribute cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """`KeptIndex` of `TimeBuckets`."""

    buckets: TimeBuckets
    names: Index
    sort: str
    """The table's sort key."""
    form: KeyForm

    @property
    def attributes(self) -> frozenset[str]:
        """Implement `KeptIndex.attributes`."""
        return frozenset({self.names.partition, self.names.sort or ""} - {self.sort})

    def check(self, item: Mapping[str, Any]) -> None:
        """Implement `KeptIndex.check`: `keys_of` raises what the owner's `time_of` raises."""

    def keys_of(self, partition_key: str, item: Mapping[str, Any]) -> Attributes:
        """Implement `KeptIndex.keys_of`."""
        sort_value = item[self.sort]
        keys = {self.names.partition: self.key_for(partition_key, self.buckets.bucket_of(sort_value))}
        return keys if self.names.sort == self.sort else {**keys, self.names.sort or "": sort_value}

    def changes_of(self, partition_key: str, key: Mapping[str, Any], request: Mapping[str, Any]) -> Changes:
        """Implement `KeptIndex.changes_of`: the key tells all."""
        del request
        return Changes(self.keys_of(partition_key, key))

    def key_for(self, partition_key: str, bucket: str) -> str:
        """Build the index's hash key of a bucket, on the shard of this partition key."""
        collection, shard = self.form.parse(partition_key)
        key = f"{collection}#{bucket}"
        return key if shard is None else self.form.shard_key(key, shard)


@dataclass(frozen=True)
class IndexSchema(Schema):
    """A `ShardedIndex` as a table of its own, whose partition keys are values with a shard behind them."""

    table: Schema | None = None
    hash: str = ""
    """The owner's attribute."""

    def show(self, item: Mapping[str, Any], hidden: frozenset[str] = frozenset()) -> Attributes:
        """Turn an item of the index into the owner's. The index need not hold the owner's attribute."""
        assert self.table is not None  # noqa: S101  it has one
        shown = self.table.show(item, hidden)
        return shown if self.hash in hidden else {self.hash: self.collection_of(item[self.partition]), **shown}


@dataclass(frozen=True, slots=True)
class HashIndex:
    """`KeptIndex` of a `ShardedIndex`."""

    index: ShardedIndex
    names: Index
    schema: Schema
    """The table's."""

    @property
    def attributes(self) -> frozenset[str]:
        """Implement `KeptIndex.attributes`."""
        return frozenset({self.names.partition})

    def check(self, item: Mapping[str, Any]) -> None:
        """Implement `KeptIndex.check`."""
        if self.index.hash in item:
            self._check_value(item[self.index.hash])

    def keys_of(self, partition_key: str, item: Mapping[str, Any]) -> Attributes:
        """Implement `KeptIndex.keys_of`."""
        if self.index.hash not in item:
            return {}
        return {self.names.partition: self._key_for(partition_key, item, item[self.index.hash])}

    def changes_of(self, partition_key: str, key: Mapping[str, Any], request: Mapping[str, Any]) -> Changes:
        """Implement `KeptIndex.changes_of`."""
        name = self.index.hash
        update = find_update(request, name)
        if update is None:
            return Changes({})
        if update.is_removed:
            return Changes({}, [self.names.partition])
        if not update.is_plain:
            raise InvalidRequestError.of(
                name, f"is what the index {self.index.index} is kept by: set it to a value, or remove it"
            )
        self._check_value(update.value)
        return Changes({self.names.partition: self._key_for(partition_key, key, update.value)})

    def build_routes(self, schema: Schema, clock: Clock, budget_ms: float) -> FixedRoutes:
        """Build the routes of the index's own shards."""
        shards = self.index.shards
        return _IndexRoutes(shards.route, shards.written, choices=1, form=schema.form, clock=clock, budget_ms=budget_ms)

    def build_schema(self, schema: Schema) -> IndexSchema:
        """Describe the index as a table; `schema` is the table's, with all that is reserved."""
        return IndexSchema(
            self.names.partition,
            schema.sort,
            schema.sort_type,
            {},
            KeyForm(label=self.index.hash, has_base=False),
            table=schema,
            hash=self.index.hash,
        )

    def _check_value(self, value: Any) -> None:
        if not isinstance(value, str) or not value:
            raise InvalidRequestError.of(
                self.index.hash, f"is what the index {self.index.index} is kept by: should be a text, not {value!r}"
            )

    def _key_for(self, partition_key: str, item: Mapping[str, Any], value: str) -> str:
        """Build the index's hash key of a value: by the item's own key, the same one whenever it has this value."""
        hashed = f"{self.schema.collection_of(partition_key)}#{text_of(item[self.schema.sort])}"
        key = ItemKey(value, "", 0, hashed)
        return choose_placement(self.index.shards.written, key, self.schema.form).partition_key


class _IndexRoutes(FixedRoutes):
    """Routes of an index: what items say of their N is about the table's."""

    def meet(self, items: Any) -> None:
        """Learn nothing."""


def bind(index: ShardedIndex | TimeBuckets, schema: Schema) -> BucketIndex | HashIndex:
    """Find the keys of an index.

    Raises:
        ValueError: the table has no such global index, or it cannot be kept.
    """
    names = schema.indexes.get(index.index)
    of_name = f"{type(index).__name__}({index.index!r})"
    if names is None or schema.partition in names.names or names.partition == schema.sort or len(names.names) > 2:
        known = ", ".join(name for name, each in schema.indexes.items() if each.partition != schema.partition)
        raise ValueError(
            f"{of_name}: should be a global index with one hash key and at most one range key, neither of them "
            f"{schema.partition}; the table's global indexes: {known or 'none'}"
        )
    if isinstance(index, TimeBuckets):
        if names.sort is None:
            raise ValueError(f"{of_name}: the index should have a range key")
        return BucketIndex(index, names, schema.sort, schema.form)
    if index.hash == names.partition or index.hash in schema.key:
        raise ValueError(
            f"{of_name}: {index.hash} is a key already. The index's hash key should be an attribute that only the "
            f"library writes, a string, for instance {index.hash}_shard"
        )
    return HashIndex(index, names, schema)
