"""Plans for a load: N, and the WCU of each key. Pure, local.

How many keys: every WCU that DynamoDB charges, divided by those of one key. With DynamoDB's limit of 1,000 WCU/s that
gives the least number that can work, with no room for growth or for shards that share a partition; the stack sizes with
both (`detector.size_route`), so it chooses more.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, item_size_bytes, write_units
from hotpartition.core.detector import Thresholds, size_route
from hotpartition.core.errors import InvalidRequestError, ItemTooLargeError
from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.runtime.build import build_thresholds
from hotpartition.runtime.settings import Settings
from hotpartition_cli.errors import Status, UsageError
from hotpartition_cli.outcomes import Outcome
from hotpartition_messages import Message
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.write_requests import parse_write

KEY_LIMIT_WCU = 1_000
"""Units that one partition key takes in a second (DynamoDB Developer Guide, "Designing partition keys")."""
_NOW_MS = 1_767_225_600_000
_CONVERSATION = "room-1"


def default_thresholds() -> Thresholds:
    """Take the settings' own defaults, by which the stack sizes by default."""
    return build_thresholds(Settings.defaults("consumer"))


def plan_load(
    rate: float,
    item_bytes: int | None,
    item: str | None,
    *,
    target_shard_wcu: float | None,
    max_shard_count: int | None,
) -> Outcome:
    """Plan for a load; `item` is measured in place of `item_bytes`, and the last two are settings of the stack."""
    if item is not None:
        item_bytes = measure_item(_read_item(item))
    given: dict[str, Any] = {"target_shard_wcu": target_shard_wcu, "max_shard_count": max_shard_count}
    thresholds = replace(default_thresholds(), **{name: value for name, value in given.items() if value is not None})
    plan = make_plan(rate, item_bytes or 0, thresholds)
    return Outcome(plan, Status.FINE if plan["is_covered"] else Status.FINDING)


def _read_item(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{text[1:]} cannot be read: {error}") from error


def make_plan(messages_per_second: float, item_bytes: int, thresholds: Thresholds) -> dict[str, Any]:
    """Plan for a load. The names are a contract (docs/command-line.md).

    `shard_count` 0: the base key serves the load. `source_shard_count` is the formula that is often given: it forgets
    that DynamoDB charges each begun KiB, and leaves no room.

    Raises:
        UsageError: the API takes no such load.
    """
    _check(messages_per_second, item_bytes, thresholds)
    wcu = write_units(item_bytes)
    rate = messages_per_second * wcu
    wanted = size_route(rate, thresholds) if rate > thresholds.hot_sustained_wcu else 0
    count = min(wanted, thresholds.max_shard_count)
    return {
        "messages_per_second": messages_per_second,
        "item_bytes": item_bytes,
        "wcu_per_message": wcu,
        "wcu_per_second": rate,
        "least_shard_count": ceil(rate / KEY_LIMIT_WCU),
        "shard_count": count,
        "is_at_cap": count < wanted,
        "is_covered": rate <= KEY_LIMIT_WCU * max(count, 1),
        "source_shard_count": ceil(messages_per_second * item_bytes / 1024 / KEY_LIMIT_WCU),
        "before": _describe_side(rate, 1),
        "after": _describe_side(rate, max(count, 1)),
    }


def _describe_side(rate: float, keys: int) -> dict[str, float]:
    """Describe one side of the comparison: the base key alone, or the keys that new messages go to."""
    return {
        "keys": keys,
        "wcu_per_second_per_key": round(rate / keys, 1),
        "wcu_per_second_refused": round(max(0.0, rate - KEY_LIMIT_WCU * keys), 1),
    }


def measure_item(text: str) -> int:
    """Return how many bytes a message takes in storage: a JSON object with `sender`, `body`, perhaps `attributes`.

    `conversation_id` may be given as well, since ids count, in the key and once more. On a shard, as most will be.
    """
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--item should be JSON, or @FILE with JSON in it: {error}") from error
    conversation_id = fields.pop("conversation_id", _CONVERSATION) if isinstance(fields, dict) else _CONVERSATION
    try:
        new = parse_write({"body": json.dumps(fields), "pathParameters": {"conversation_id": conversation_id}})
        message = Message(
            conversation_id, mint_message_id(_NOW_MS, lambda _: 0), new.sender, new.body, new.attributes.stored
        )
        return item_size_bytes(message.to_item(KEY_FORM.shard_key(conversation_id, 0)))
    except (InvalidRequestError, ItemTooLargeError) as error:
        raise UsageError(f"--item cannot be stored: {error}") from error


def _check(messages_per_second: float, item_bytes: int, thresholds: Thresholds) -> None:
    """Check the options; the error names the option, and the allowed values."""
    if not 0 < messages_per_second < float("inf"):
        raise UsageError(f"--rate should be greater than 0, not {messages_per_second:g}")
    if not 1 <= item_bytes <= ITEM_LIMIT_BYTES:
        raise UsageError(f"--item-bytes should be from 1 to {ITEM_LIMIT_BYTES:,}, DynamoDB's limit")
    if not thresholds.target_shard_wcu > 0:
        raise UsageError("--target-shard-wcu should be greater than 0")
    if not 2 <= thresholds.max_shard_count <= MAX_SHARD_COUNT:
        raise UsageError(f"--max-shard-count should be from 2 to {MAX_SHARD_COUNT}")
