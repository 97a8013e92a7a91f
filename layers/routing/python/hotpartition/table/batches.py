"""Turns batches of the owner's items into batches of stored ones. boto3's `BatchWriter` takes it for its client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from hotpartition.core.backoff import MAX_DELAY_MS
from hotpartition.core.capacity import write_units
from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.requests import Requests, as_boto3_raises, without
from hotpartition.table.sharding import Sharding, Target
from hotpartition.table.table_store import StoredItem, locate, open_locator

BATCH_WRITES = 25
"""BatchWriteItem takes no more at once."""

Place = tuple[str, Any]
"""A collection or partition key, and what its sort key compares as."""


class Built(NamedTuple):
    """A stored write, and the owner's write that it was built from."""

    stored: Attributes
    write: Attributes


class Batches:
    """Writes batches. Safe under threads.

    What they replace or delete is located first, all in one request, where more than one place can hold it.
    """

    def __init__(self, sharding: Sharding) -> None:
        self._sharding = sharding
        self._schema = sharding.schema
        self._routes = sharding.routes
        self._left: set[Place] = set()
        """Unprocessed items, which will come again."""

    def batch_write_item(self, RequestItems: Mapping[str, Sequence[Attributes]], **options: Any) -> Attributes:  # noqa: N803
        """Write one batch, as the client's `batch_write_item`; what DynamoDB left unprocessed is in the response."""
        ((table_name, writes),) = RequestItems.items()
        table = self._sharding.table
        requests = table.requests(options)
        left: dict[Place, Attributes] = {}
        with as_boto3_raises():
            built = self._build(requests, writes)
            for start in range(0, len(built), BATCH_WRITES):
                left |= self._send(requests, built[start : start + BATCH_WRITES], options)
        self._left |= left.keys()
        if left:
            table.clock.sleep(table.clock.random() * MAX_DELAY_MS / 1000)
        consumed = {"ConsumedCapacity": requests.consumed} if requests.consumed else {}
        unprocessed = {table_name: list(left.values())} if left else {}
        return {"UnprocessedItems": unprocessed, "ResponseMetadata": requests.metadata, **consumed}

    def _send(self, requests: Requests, built: Sequence[Built], options: Attributes) -> dict[Place, Attributes]:
        """Send stored writes, and return the owner's writes that were left unprocessed, each once."""
        name = requests.table_name
        response = requests.send_patiently(
            "BatchWriteItem",
            lambda _: self._note_refused(self._place_of(each.stored) for each in built),
            RequestItems={name: [each.stored for each in built]},
            **without(options, "ReturnConsumedCapacity"),
        )
        unprocessed = {self._place_of(stored) for stored in response.get("UnprocessedItems", {}).get(name, ())}
        self._note_refused(unprocessed)
        return {self._place_of(each.write): each.write for each in built if self._place_of(each.stored) in unprocessed}

    def _note_refused(self, places: Iterable[Place]) -> None:
        """Take in refused writes; where a collection was raised meanwhile, the next batch finds better places."""
        # In their order: a simulated run is the same each time.
        writer, keys = self._routes.engine.writer, sorted({partition_key for partition_key, _ in places})
        for partition_key in keys:
            writer.refused(partition_key)
        for collection in sorted({self._schema.collection_of(partition_key) for partition_key in keys}):
            writer.routes.refused(collection)

    def _build(self, requests: Requests, writes: Sequence[Attributes]) -> list[Built]:
        """Turn the owner's writes into stored ones."""
        targets = [self._target_of(requests, write) for write in writes]
        if len({self._place_of(write) for write in writes}) < len(writes):
            # On different shards, DynamoDB would not see it.
            message = "Provided list of item keys contains duplicates"
            raise ClientError({"Error": {"Code": "ValidationException", "Message": message}}, "BatchWriteItem")
        sought = {
            self._place_of(write): target
            for write, target in zip(writes, targets, strict=True)
            if not (self._sharding.append_only and "PutRequest" in write)
            and self._sharding.sole_place_of(target) is None
        }
        locator = open_locator(self._sharding, requests)
        located = locate(locator, list(sought.values())) if sought else []
        copies = {place: found for place, (found, _) in zip(sought, located, strict=True)}
        return [
            Built(stored, write)
            for write, target in zip(writes, targets, strict=True)
            for stored in self._build_one(write, target, copies.get(self._place_of(write), ()))
        ]

    def _target_of(self, requests: Requests, write: Attributes) -> Target:
        if not self._is_whole(write):
            # DynamoDB describes the mistake best.
            requests.send_many("BatchWriteItem", RequestItems={requests.table_name: [write]})
            raise NotImplementedError(f"batch_writer(): {write!r} has no key that is understood")
        attributes = _attributes(write)
        self._sharding.refuse_reserved(attributes)
        if "PutRequest" in write:
            return self._sharding.target_of_item(attributes)
        return self._sharding.target_of_key(attributes, None)

    def _is_whole(self, write: Any) -> bool:
        """Say whether this is one put of an item or one delete of a key, and nothing more."""
        match write:
            case {"PutRequest": {"Item": item} as request}:
                return len(write) == len(request) == 1 and self._schema.has_key(item)
            case {"DeleteRequest": {"Key": key} as request}:
                return len(write) == len(request) == 1 and self._schema.is_key(key)
        return False

    def _build_one(self, write: Attributes, target: Target, copies: Sequence[StoredItem]) -> list[Attributes]:
        attributes = _attributes(write)
        if "PutRequest" in write and not copies:
            return [self._build_new(attributes, target)]
        for copy in copies or (None,):
            self._count(target, attributes if copy is None or "PutRequest" in write else copy.attributes)
        if "DeleteRequest" in write:
            gone = [copy.partition_key for copy in copies]
            gone = gone or [self._sharding.sole_place_of(target) or target.collection]
            return [self._delete(partition_key, attributes) for partition_key in gone]
        valid, *others = copies
        put = self._put(attributes, valid.partition_key, self._schema.marks_of_change(valid.attributes))
        return [put, *(self._delete(other.partition_key, attributes) for other in others)]

    def _build_new(self, item: Attributes, target: Target) -> Attributes:
        key = self._sharding.key_of_new(target)
        place = self._schema.identify(item)
        is_repeated = place in self._left
        self._left.discard(place)
        size_bytes = self._routes.size_of(item)
        placement = self._routes.engine.writer.place(key, size_bytes=size_bytes, is_repeated=is_repeated)
        marks = self._routes.marks_of(key.position) if placement.shard_count else {}
        return self._put(item, placement.partition_key, marks)

    def _count(self, target: Target, attributes: Attributes) -> None:
        """Count a write that goes where its item lies, by the size of the given item: a batch shows no more."""
        units = write_units(self._routes.size_of(attributes))
        self._routes.engine.writer.count(target, units)

    def _put(self, item: Attributes, partition_key: str, marks: Mapping[str, int]) -> Attributes:
        keys = self._sharding.index_keys(partition_key, item)
        return {"PutRequest": {"Item": {**item, self._schema.partition: partition_key, **keys, **marks}}}

    def _delete(self, partition_key: str, item: Attributes) -> Attributes:
        return {"DeleteRequest": {"Key": {**self._schema.key_of(item), self._schema.partition: partition_key}}}

    def _place_of(self, write: Attributes) -> Place:
        return self._schema.identify(_attributes(write))


def _attributes(write: Attributes) -> Attributes:
    """Return the item or the key of a write."""
    ((_, request),) = write.items()
    attributes: Attributes = request.get("Item") or request.get("Key") or {}
    return attributes
