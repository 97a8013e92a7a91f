"""Global indexes whose keys a `ShardedTable` writes, so that none of them is the hot key itself.

An index that is refused refuses the table's writes. So its hash key is an attribute that belongs to the library, and
has a shard behind its value:

| index | the hash key (S) | its shard | the range key |
|---|---|---|---|
| `ShardedIndex` | the value of the owner's attribute | by the item's own key, under the index's N | the owner's |
| `TimeBuckets` | `<collection>#<bucket>` | the item's shard in the table; none at a base key | a copy of the sort key |

These attributes are removed from all results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.items import ItemKey
from hotpartition.core.keys import KeyForm
from hotpartition.core.route import choose_placement
from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.expressions import find_update
from hotpartition.table.routes import Fixed, TableRoutes
from hotpartition.table.schema import Index, Schema, text_of

Granularity = Literal["minute", "hour", "day"]

MAX_BUCKETS = 1_000
"""One query asks no more: each costs a query for every shard, found or not."""

_BUCKETS: Mapping[str, tuple[str, timedelta]] = {
    "minute": ("%Y-%m-%dT%H:%M", timedelta(minutes=1)),
    "hour": ("%Y-%m-%dT%H", timedelta(hours=1)),
    "day": ("%Y-%m-%d", timedelta(days=1)),
}
"""The form of a bucket's name, and how long it lasts."""


def time_of_text(sort_value: Any) -> datetime:
    """Read the time that a sort key begins with: ISO 8601, up to the first `#`. Without an offset it is UTC.

    Raises:
        ValueError: it does not begin with a time.
    """
    if not isinstance(sort_value, str):
        raise ValueError(f"{sort_value!r} is not a string: TimeBuckets(time_of=…) reads its time")  # noqa: TRY004
    time = datetime.fromisoformat(sort_value.partition("#")[0])
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """A global index of a `ShardedTable` for ranges of time.

    The table's sort key must grow with the time. The index is queried by the table's own keys:

        table.query(IndexName="by-time", KeyConditionExpression=Key("PK").eq("room-1") & Key("SK").between(a, b))

    Its hash key is a string. Its range key is the table's sort key, or an attribute of the same type.

    Example:
        >>> ShardedTable(table, shards=fixed(16), hashed=at_random(), indexes=[TimeBuckets("hour", index="by-time")])
    """

    granularity: Granularity
    index: str
    time_of: Callable[[Any], datetime] = time_of_text
    """Returns the time of a sort key, or of a bound of a query."""

    def __post_init__(self) -> None:
        if self.granularity not in _BUCKETS:
            raise ValueError(f"granularity should be one of {', '.join(_BUCKETS)}, not {self.granularity!r}")

    def bucket_of(self, sort_value: Any) -> str:
        """Return the name of the bucket that a sort key is in."""
        return self.time_of(sort_value).astimezone(UTC).strftime(_BUCKETS[self.granularity][0])

    def list_between(self, first: Any, last: Any) -> list[str]:
        """List the buckets between two sort keys, oldest first.

        Raises:
            ValueError: they are more than one query may ask.
        """
        time, end = (self.time_of(each).astimezone(UTC) for each in (first, last))
        form, length = _BUCKETS[self.granularity]
        if (end - time) / length > MAX_BUCKETS:
            raise ValueError(
                f"a query of {(end - time) / length:,.0f} buckets: should be at most {MAX_BUCKETS:,}. Ask for a "
                "shorter time, or choose larger buckets"
            )
        time = datetime.strptime(time.strftime(form), form).replace(tzinfo=UTC)
        return [(time + step * length).strftime(form) for step in range((end - time) // length + 1)]


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
        is_plain = isinstance(shards, Fixed) and shards.choices == 1 and shards.suffix == KeyForm.separator
        if not is_plain or not shards.written.shard_count_at(0):
            raise ValueError(f"ShardedIndex({self.index!r}): shards should be fixed(n), n at least 1, with one choice")


class Changes(NamedTuple):
    """The attributes that an update sets and removes for an index."""

    sets: Attributes
    removes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """The index of `TimeBuckets`, bound to the keys of one table. Methods as of `HashIndex`."""

    buckets: TimeBuckets
    names: Index
    sort: str
    """The table's sort key."""
    form: KeyForm

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that are written for the index."""
        return frozenset({self.names.partition, self.names.sort or ""} - {self.sort})

    def check(self, item: Mapping[str, Any]) -> None:
        """Refuse nothing: `keys_of` raises what the owner's `time_of` raises."""

    def keys_of(self, partition_key: str, item: Mapping[str, Any]) -> Attributes:
        """Build the attributes that the index adds to an item under this partition key."""
        sort_value = item[self.sort]
        keys = {self.names.partition: self.key_for(partition_key, self.buckets.bucket_of(sort_value))}
        return keys if self.names.sort == self.sort else {**keys, self.names.sort or "": sort_value}

    def changes_of(self, partition_key: str, key: Mapping[str, Any], request: Mapping[str, Any]) -> Changes:
        """Build what an update of an item does for the index: it follows from the key."""
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
    """A `ShardedIndex`, bound to the keys of one table."""

    index: ShardedIndex
    names: Index
    schema: Schema
    """The table's."""
    form: KeyForm
    """How the index's hash keys are built."""

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that are written for the index."""
        return frozenset({self.names.partition})

    def check(self, item: Mapping[str, Any]) -> None:
        """Refuse an item that the index cannot take.

        Raises:
            InvalidRequestError: naming the attribute.
        """
        if self.index.hash in item:
            self._check_value(item[self.index.hash])

    def keys_of(self, partition_key: str, item: Mapping[str, Any]) -> Attributes:
        """Build the attributes that the index adds to an item under this partition key."""
        if self.index.hash not in item:
            return {}
        return {self.names.partition: self._key_for(partition_key, item, item[self.index.hash])}

    def changes_of(self, partition_key: str, key: Mapping[str, Any], request: Mapping[str, Any]) -> Changes:
        """Build what an update of an item does for the index.

        Raises:
            InvalidRequestError: the update of the attribute cannot be read.
        """
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

    def build_routes(self, schema: Schema, clock: Clock, budget_ms: float) -> TableRoutes:
        """Build the routes of the index's own shards. The N in items is about the table: nothing is learned from it."""
        return replace(self.index.shards.build_routes(None, schema, clock, budget_ms), marks=None)

    def build_schema(self, schema: Schema) -> IndexSchema:
        """Describe the index as a table; `schema` is the table's, with all that is reserved."""
        return IndexSchema(
            self.names.partition,
            schema.sort,
            schema.sort_type,
            {},
            self.form,
            table=schema,
            hash=self.index.hash,
        )

    def _check_value(self, value: Any) -> None:
        if not isinstance(value, str) or not value:
            raise InvalidRequestError.of(
                self.index.hash, f"is what the index {self.index.index} is kept by: should be a text, not {value!r}"
            )
        self.form.check(value)

    def _key_for(self, partition_key: str, item: Mapping[str, Any], value: str) -> str:
        """Build the index's hash key of a value: by the item's own key, the same one whenever it has this value."""
        hashed = f"{self.schema.collection_of(partition_key)}#{text_of(item[self.schema.sort])}"
        key = ItemKey(value, "", 0, hashed)
        return choose_placement(self.index.shards.written, key, self.form).partition_key


KeptIndex = BucketIndex | HashIndex
"""An index of one table."""


def bind(index: ShardedIndex | TimeBuckets, schema: Schema) -> KeptIndex:
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
    return HashIndex(index, names, schema, KeyForm(label=index.hash, has_base=False))
