"""Logs which keys DynamoDB refuses to a boto3 client, from the requests and errors that pass by."""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from hotpartition.table.expressions import Conditions

PAUSE_SECONDS = 1.0
"""Between two lines about one key."""
MOST_KEYS = 1_000
"""Keys that are counted at the same time; those that were refused longest ago are forgotten."""
THROTTLES = frozenset({"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"})
CANCELLED = "TransactionCanceledException"
THROTTLED_ACTIONS = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded"})
UNKNOWN = "an unknown key"

_logger = logging.getLogger("hotpartition.throttles")


def log_throttles(
    client: Any, partition_keys: Mapping[str, str] | None = None, *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Log, at most once a second for each key, what DynamoDB refuses to a boto3 client or resource.

    Each line names the key, how often it was refused since its last line, retries included, the table or index, and the
    reason. Nothing is sent and nothing is changed: botocore's events show requests and errors. Calling it again for the
    same client changes nothing.

    Args:
        client: a boto3 DynamoDB client, resource or `Table`.
        partition_keys: the name of each table's partition key; of other tables the line cannot name the key of a put.
        clock: a monotonic clock, in seconds; for tests.

    Example:
        >>> dynamodb = boto3.resource("dynamodb")
        >>> log_throttles(dynamodb, {"readings": "PK"})
    """
    throttles = _Throttles(partition_keys or {}, clock)
    events = getattr(client.meta, "client", client).meta.events
    events.register("needs-retry.dynamodb", throttles.look_at, unique_id="hotpartition-throttles")


@dataclass(slots=True)
class _Counted:
    """How often a key was refused since its last line, and when that was."""

    times: int = 0
    logged_at: float = float("-inf")


class _Throttles:
    """Counts refusals by key. Safe under threads."""

    def __init__(self, partition_keys: Mapping[str, str], clock: Callable[[], float]) -> None:
        self._partition_keys = partition_keys
        self._clock = clock
        self._lock = Lock()
        self._counted: OrderedDict[tuple[str, str, str], _Counted] = OrderedDict()

    def look_at(self, response: Any = None, request_dict: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Look at one attempt: an event of botocore. Returns None, so that botocore alone decides what comes next."""
        parsed = response[1] if response is not None else {}
        code = parsed.get("Error", {}).get("Code")
        if code not in {*THROTTLES, CANCELLED} or request_dict is None:
            return
        request = json.loads(request_dict.get("body") or b"{}")
        if code == CANCELLED:
            for action, why in zip(request["TransactItems"], parsed.get("CancellationReasons", ()), strict=False):
                for table, key in self._keys_of(*action.values()) if why["Code"] in THROTTLED_ACTIONS else ():
                    self._note(table, key, why["Code"])
            return
        reasons = parsed.get("ThrottlingReasons") or parsed.get("throttlingReasons") or [{}]
        for table, key in self._keys_of(request):
            for reason in reasons:
                self._note(_place_of(reason.get("resource", ""), table), key, reason.get("reason", "no reason given"))

    def _keys_of(self, request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Find the table and the partition key of a request; of one for several items, nothing says which it was."""
        table = request.get("TableName")
        if table is None:
            yield ", ".join(sorted(request.get("RequestItems", {}))) or "several tables", "one of several keys"
            return
        table = table.rpartition(":table/")[2]  # of an ARN
        name = self._partition_keys.get(table)
        given = request.get("Key") or request.get("Item") or {}
        if name is None and len(given) == 1 and "Key" in request:
            (name,) = given
        asked = Conditions.parse(request).find_equality(name or "", "KeyConditionExpression")
        yield table, _text_of(given.get(name or "")) or _text_of(asked) or UNKNOWN

    def _note(self, place: str, key: str, reason: str) -> None:
        now = self._clock()
        with self._lock:
            counted = self._counted.setdefault((place, key, reason), _Counted())
            self._counted.move_to_end((place, key, reason))
            if len(self._counted) > MOST_KEYS:
                self._counted.popitem(last=False)
            counted.times += 1
            if now - counted.logged_at < PAUSE_SECONDS:
                return
            times, counted.times, counted.logged_at = counted.times, 0, now
        facts = {"place": place, "key": key, "reason": reason, "times": times}
        _logger.warning("DynamoDB refused %s of %s %d times: %s", key, place, times, reason, extra=facts)


def _place_of(arn: str, table: str) -> str:
    """Name what an ARN names, `table/readings` or `table/readings/index/by-owner`; without one, the table."""
    return arn.partition(":table/")[2].replace("/index/", ", index ") or table


def _text_of(value: Mapping[str, Any] | None) -> str:
    return next((repr(each) for each in (value or {}).values()), "")
