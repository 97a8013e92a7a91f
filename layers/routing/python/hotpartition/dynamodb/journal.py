"""The routes in DynamoDB, the truth about them: `Journal` over a client (`calls.py`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from hotpartition.core.capacity import AttributeValue
from hotpartition.core.errors import ConditionFailedError, RetryLaterError, StoreRefusedError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Close, Generation
from hotpartition.core.route_history import Cause, encode_raises
from hotpartition.core.times import format_time
from hotpartition.dynamodb.calls import DynamoDBCalls, Response, date_of
from hotpartition.dynamodb.stored_route import read_entry, routing_partition_of
from hotpartition.dynamodb.table import JournalPlace

MAX_GENERATIONS = 256
"""For raises that keep a pause, as programs make them, a route is full with this many: however wrong their decisions
are, the item and each read of it stay small. No condition can check how large an N is: it is part of a text."""

_logger = logging.getLogger(__name__)


class _Guard(NamedTuple):
    """A condition on the routing item, and the values that it names."""

    condition: str
    values: Mapping[str, AttributeValue]


class DynamoDBJournal:
    """`Journal` in a table's collections, or in a table of its own."""

    def __init__(self, calls: DynamoDBCalls, place: JournalPlace) -> None:
        self._calls = calls
        self._place = place
        self._listed = set[str]()

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        """Implement `Journal.get`."""
        response = self._calls.call(*self._place.build_get(collection, is_strong=is_strong))
        return replace(read_entry(response.get("Item")), date_ms=date_of(response))

    def add(
        self, collection: str, generations: Iterable[Generation], *, cause: Cause, now_ms: int, pause_ms: int = 0
    ) -> JournalEntry:
        """Implement `Journal.add`."""
        added = sorted(set(generations))
        # ADD on a set is idempotent and commutative: no condition, no version, no order of raises.
        adds = {
            "generations": [generation.encode() for generation in added],
            "raises": encode_raises(added, cause=cause, now_ms=now_ms),
        }
        sets = {
            "updated_at": format_time(now_ms),
            "reason": cause.encode(),
            "routing_partition": routing_partition_of(collection),
        }
        guard = _keep_pause(format_time(now_ms - pause_ms)) if pause_ms else None
        try:
            response = self._update(collection, adds, sets, guard)
        except ConditionFailedError as error:
            return read_entry(error.item)
        self._list(collection)
        return read_entry(response["Attributes"])

    def add_close(
        self, collection: str, close: Close, *, cause: Cause, now_ms: int, seen: JournalEntry | None = None
    ) -> JournalEntry | None:
        """Implement `Journal.add_close`."""
        sets, guard = dict[str, str](), None
        if not close.is_confirmed:
            sets = {"updated_at": format_time(now_ms), "reason": cause.encode()}
        if seen is not None:
            guard = _Guard("updated_at = :seen", {":seen": {"S": format_time(seen.updated_at_ms or 0)}})
        try:
            response = self._update(collection, {"generations": [close.encode()]}, sets, guard)
        except ConditionFailedError:
            return None
        return replace(read_entry(response["Attributes"]), date_ms=date_of(response))

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
            _logger.warning("a raised key is not listed for operators: %s: %s", collection, error, extra=facts)
            if isinstance(error, RetryLaterError):
                return
        self._listed.add(collection)

    def _update(
        self, collection: str, adds: Mapping[str, list[str]], sets: Mapping[str, str], guard: _Guard | None
    ) -> Response:
        """Add members to string sets and set texts, each by its attribute's name; return all attributes."""
        request: dict[str, Any] = {
            "TableName": self._place.table_name,
            "Key": self._place.key_of(collection),
            "UpdateExpression": f"ADD {', '.join(f'{name} :{name}' for name in adds)}"
            + (f" SET {', '.join(f'{name} = :{name}' for name in sets)}" if sets else ""),
            "ExpressionAttributeValues": {
                **{f":{name}": {"SS": members} for name, members in adds.items()},
                **{f":{name}": {"S": text} for name, text in sets.items()},
            },
            "ReturnValues": "ALL_NEW",
        }
        if guard is not None:
            request["ConditionExpression"] = guard.condition
            request["ExpressionAttributeValues"] |= guard.values
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return self._calls.call("UpdateItem", request)


def _keep_pause(since: str) -> _Guard:
    """Build the condition that refuses a raise of an item that has grown from a time on, or is full."""
    return _Guard(
        # A time in the future was written by a broken clock, and delays nothing.
        "NOT updated_at BETWEEN :since AND :updated_at"
        " AND (attribute_not_exists(generations) OR size(generations) < :most)",
        {":since": {"S": since}, ":most": {"N": str(MAX_GENERATIONS)}},
    )
