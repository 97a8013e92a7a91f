"""The routes in DynamoDB, the truth about them: `Journal` over a client (`calls.py`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from hotpartition.core.capacity import Item
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause, encode_raises
from hotpartition.core.timestamps import format_time
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.stored_route import read_entry, routing_partition_of
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.errors import ConditionFailedError, RetryLaterError, StoreRefusedError

MAX_GENERATIONS = 256
"""A raise that keeps a pause, as programs make it, finds a route full with so many: whatever goes wrong with deciding,
the item and each read of it stay small. How large an N is, no condition can check: it is a part of a text."""

_logger = logging.getLogger(__name__)


class DynamoDBJournal:
    """`Journal` in a table's collections, or in a table of its own."""

    def __init__(self, calls: DynamoDBCalls, place: JournalPlace) -> None:
        self._calls = calls
        self._place = place
        self._listed = set[str]()

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        """Implement `Journal.get`."""
        operation, request = self._place.build_get(collection, is_strong=is_strong)
        return read_entry(self._calls.call(operation, request).get("Item"))

    def add(
        self, collection: str, generations: Iterable[Generation], *, cause: Cause, now_ms: int, pause_ms: int = 0
    ) -> JournalEntry:
        """Implement `Journal.add`."""
        added = sorted(set(generations))
        # ADD on a set is idempotent and commutative: no condition, no version, no order of raises.
        adds = {"generations": [generation.encode() for generation in added]}
        history = {"raises": encode_raises(added, cause=cause, now_ms=now_ms)}
        sets = {
            "updated_at": format_time(now_ms),
            "reason": cause.encode(),
            "routing_partition": routing_partition_of(collection),
        }
        since = format_time(now_ms - pause_ms) if pause_ms else None
        try:
            attributes = self._update_forgiving(collection, adds, history, sets, since)
        except ConditionFailedError as error:
            return read_entry(error.item)
        self._list(collection)
        return read_entry(attributes)

    def _update_forgiving(
        self,
        collection: str,
        adds: Mapping[str, list[str]],
        history: Mapping[str, list[str]],
        sets: Mapping[str, str],
        since: str | None,
    ) -> Item:
        """Update, without the history where somebody gave that another type by hand: no raise may fail for it."""
        try:
            return self._update(collection, {**adds, **history}, sets, since)
        except StoreRefusedError as error:
            if not _is_type_mismatch(error):
                raise
            return self._update(collection, adds, sets, since)

    def _list(self, collection: str) -> None:
        """Add a collection to the directory, once. Operators need it; no raise fails or waits for it."""
        if not self._place.has_directory or collection in self._listed:
            return
        request = {
            "TableName": self._place.table_name,
            "Key": self._place.directory_key(routing_partition_of(collection)),
            "UpdateExpression": "ADD collections :collection",
            "ExpressionAttributeValues": {":collection": {"SS": [collection]}},
        }
        try:
            self._calls.call("UpdateItem", request)
        except (RetryLaterError, StoreRefusedError) as error:
            # Throttled; or a right is missing, or the item has DynamoDB's 400 KB.
            facts = {"collection": collection, "reason": str(error)}
            _logger.warning("a raised key is not listed for operators", extra=facts)
            if isinstance(error, RetryLaterError):
                return
        self._listed.add(collection)

    def _update(
        self, collection: str, adds: Mapping[str, list[str]], sets: Mapping[str, str], since: str | None
    ) -> Item:
        """Add members to string sets and set texts, each by its attribute's name; return all attributes.

        `since` is a time from which on the item must not have grown, nor be full by now; None: it may.
        """
        request: dict[str, Any] = {
            "TableName": self._place.table_name,
            "Key": self._place.key_of(collection),
            "UpdateExpression": f"ADD {', '.join(f'{name} :{name}' for name in adds)}"
            f" SET {', '.join(f'{name} = :{name}' for name in sets)}",
            "ExpressionAttributeValues": {
                **{f":{name}": {"SS": members} for name, members in adds.items()},
                **{f":{name}": {"S": text} for name, text in sets.items()},
            },
            "ReturnValues": "ALL_NEW",
        }
        if since is not None:
            # What lies in the future was written by a broken clock, and holds nothing up.
            request["ConditionExpression"] = (
                "NOT updated_at BETWEEN :since AND :updated_at"
                " AND (attribute_not_exists(generations) OR size(generations) < :most)"
            )
            request["ExpressionAttributeValues"] |= {":since": {"S": since}, ":most": {"N": str(MAX_GENERATIONS)}}
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        attributes: Item = self._calls.call("UpdateItem", request)["Attributes"]
        return attributes


def _is_type_mismatch(error: StoreRefusedError) -> bool:
    return error.code == "ValidationException" and "incorrect data type" in error.explanation
