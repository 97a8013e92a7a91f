"""Reads the copies of items from every place where they can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from hotpartition.table.consumed import Requests
from hotpartition.table.copies import Copy, copy_of, sort_copies
from hotpartition.table.patience import Patience, naming_throttles
from hotpartition.table.schema import CHANGES, SHARDS, Attributes
from hotpartition.table.sharding import Sharding

BATCH_GET_KEYS = 100
"""BatchGetItem takes no more keys at once."""


class Locator:
    """Reads items by their keys. Safe under threads."""

    def __init__(self, sharding: Sharding, patience: Patience) -> None:
        self._schema = sharding.schema
        self._routes = sharding.routes
        self._patience = patience

    def locate(self, requests: Requests, sort_value: Any, partition_keys: Iterable[str]) -> list[Copy]:
        """Find an item's copies, strongly consistent, the valid one first; of each its key and count of changes."""
        return self.locate_many(requests, [(partition_key, sort_value) for partition_key in partition_keys])

    def locate_many(self, requests: Requests, places: Iterable[tuple[str, Any]]) -> list[Copy]:
        """Find the copies of several items at once; places are partition key and sort key."""
        names = {"#hpp": self._schema.partition, "#hps": self._schema.sort, "#hpc": CHANGES, "#hpn": SHARDS}
        keys_only = {"ProjectionExpression": "#hpp, #hps, #hpc, #hpn", "ExpressionAttributeNames": names}
        copies, _ = self.read(requests, places, {"ConsistentRead": True, **keys_only})
        return copies

    def read(
        self, requests: Requests, places: Iterable[tuple[str, Any]], options: Mapping[str, Any]
    ) -> tuple[list[Copy], Attributes]:
        """Read what lies at some places, with options as BatchGetItem takes them for a table.

        Returns:
            The copies, valid ones first, and the last response's metadata.
        """
        keys = [{self._schema.partition: place[0], self._schema.sort: place[1]} for place in places]
        items: list[Attributes] = []
        metadata: Attributes = {}
        for start in range(0, len(keys), BATCH_GET_KEYS):
            found, metadata = self._read_part(requests, keys[start : start + BATCH_GET_KEYS], options)
            items.extend(found)
        self._routes.meet(items)
        return sort_copies(copy_of(self._schema, item) for item in items), metadata

    def _read_part(
        self, requests: Requests, keys: list[Attributes], options: Mapping[str, Any]
    ) -> tuple[list[Attributes], Attributes]:
        items: list[Attributes] = []
        wanted: Any = {requests.table_name: {"Keys": keys, **options}}
        budget = self._patience.begin()
        while True:
            response = self._patience.send(partial(requests.send_many, "BatchGetItem", RequestItems=wanted))
            items.extend(response["Responses"].get(requests.table_name, ()))
            wanted = response.get("UnprocessedKeys")
            if not wanted:
                return items, response.get("ResponseMetadata", {})
            if not budget.wait():
                with naming_throttles():
                    raise _unprocessed(requests.client)


def _unprocessed(client: Any) -> ClientError:
    """Build boto3's error for keys that DynamoDB left unprocessed for as long as we asked."""
    code = "ProvisionedThroughputExceededException"
    error: ClientError = client.exceptions.ProvisionedThroughputExceededException(
        {"Error": {"Code": code, "Message": "DynamoDB left keys unprocessed"}}, "BatchGetItem"
    )
    return error
