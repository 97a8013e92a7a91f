"""What boto3's `BatchWriter` takes for its client: turns batches of the owner's items into batches of stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotpartition.core.backoff import MAX_DELAY_MS, Clock
from hotpartition.core.route import Placement
from hotpartition.table.consumed import Requests
from hotpartition.table.copies import Copy
from hotpartition.table.locating import Locator
from hotpartition.table.patience import as_boto3_raises
from hotpartition.table.places import ItemKey, collection_of
from hotpartition.table.placing import Placer
from hotpartition.table.schema import CHANGES, SHARDS, Attributes, order_of
from hotpartition.table.sharding import Sharding

BATCH_WRITES = 25
"""BatchWriteItem takes no more at once."""

Place = tuple[str, Any]
"""A collection or partition key, and what its sort key compares as."""


class Batches:
    """Writes batches. What they replace or delete is located first, all in one request. Safe under threads."""

    def __init__(
        self,
        sharding: Sharding,
        placer: Placer,
        locator: Locator,
        requests: Requests,
        clock: Clock,
        *,
        append_only: bool,
    ) -> None:
        self._sharding = sharding
        self._schema = sharding.schema
        self._placer = placer
        self._locator = locator
        self._requests = requests
        self._clock = clock
        self._append_only = append_only

    def batch_write_item(self, RequestItems: Mapping[str, Sequence[Attributes]]) -> Attributes:  # noqa: N803
        """Write one batch, as the client's `batch_write_item`; what DynamoDB left unprocessed is in the response."""
        ((table_name, writes),) = RequestItems.items()
        left: list[Attributes] = []
        with as_boto3_raises():
            built = self._build(writes)
            for start in range(0, len(built), BATCH_WRITES):
                left += self._send(built[start : start + BATCH_WRITES])
        if left:
            self._clock.sleep(self._clock.random() * MAX_DELAY_MS / 1000)
        return {"UnprocessedItems": {table_name: left} if left else {}}

    def _send(self, built: Sequence[tuple[Attributes, Attributes]]) -> list[Attributes]:
        """Send stored writes, and return the owner's writes of what was left unprocessed."""
        name = self._requests.table_name
        response = self._requests.send_many("BatchWriteItem", RequestItems={name: [stored for stored, _ in built]})
        unprocessed = {self._place_of(stored) for stored in response.get("UnprocessedItems", {}).get(name, ())}
        for partition_key, _ in unprocessed:
            self._placer.refused(partition_key)
        return [owner for stored, owner in built if self._place_of(stored) in unprocessed]

    def _build(self, writes: Sequence[Attributes]) -> list[tuple[Attributes, Attributes]]:
        """Turn the owner's writes into stored ones, each with what it was built of."""
        keys = [self._key_of(write) for write in writes]
        copies = self._locate(writes, keys)
        return [
            (stored, write)
            for write, key in zip(writes, keys, strict=True)
            for stored in self._build_one(write, key, copies.get(self._place_of(write), ()))
        ]

    def _key_of(self, write: Attributes) -> ItemKey:
        attributes = _attributes(write)
        if not self._schema.has_key(attributes):
            # DynamoDB says best what is wrong with it.
            self._requests.send_many("BatchWriteItem", RequestItems={self._requests.table_name: [write]})
            raise NotImplementedError(f"batch_writer(): {attributes!r} has no key that is understood")
        if "PutRequest" in write:
            return self._sharding.key_of_item(attributes)
        return self._sharding.key_of_key(attributes, None)

    def _locate(self, writes: Sequence[Attributes], keys: Sequence[ItemKey]) -> dict[Place, list[Copy]]:
        places = {
            (partition_key, sort_place): (partition_key, _attributes(write)[self._schema.sort])
            for write, key in zip(writes, keys, strict=True)
            if not (self._append_only and "PutRequest" in write)
            for partition_key in self._sharding.places(key.collection).of_item(key)
            for sort_place in [self._place_of(write)[1]]
        }
        by_place: dict[Place, list[Copy]] = {}
        if places:
            for copy in self._locator.locate_many(self._requests, places.values()):
                place = (collection_of(copy.partition_key), order_of(copy.item[self._schema.sort]))
                by_place.setdefault(place, []).append(copy)
        return by_place

    def _build_one(self, write: Attributes, key: ItemKey, copies: Sequence[Copy]) -> list[Attributes]:
        attributes = _attributes(write)
        if "DeleteRequest" in write:
            gone = [copy.partition_key for copy in copies] or [key.collection]
            return [self._delete(partition_key, attributes) for partition_key in gone]
        if not copies:
            return [self._put(attributes, self._placer.place(key)[0], changes=0)]
        valid, *others = copies
        placement = Placement(valid.partition_key, int(valid.item.get(SHARDS, 0)))
        put = self._put(attributes, placement, changes=valid.changes + 1)
        return [put, *(self._delete(other.partition_key, attributes) for other in others)]

    def _put(self, item: Attributes, placement: Placement, *, changes: int) -> Attributes:
        counts = {name: value for name, value in ((CHANGES, changes), (SHARDS, placement.shard_count)) if value}
        return {"PutRequest": {"Item": {**item, self._schema.partition: placement.partition_key, **counts}}}

    def _delete(self, partition_key: str, item: Attributes) -> Attributes:
        return {"DeleteRequest": {"Key": {**self._schema.key_of(item), self._schema.partition: partition_key}}}

    def _place_of(self, write: Attributes) -> Place:
        attributes = _attributes(write)
        return attributes[self._schema.partition], order_of(attributes[self._schema.sort])


def _attributes(write: Attributes) -> Attributes:
    """Return the item or the key of a write."""
    ((_, request),) = write.items()
    attributes: Attributes = request.get("Item") or request.get("Key") or {}
    return attributes
