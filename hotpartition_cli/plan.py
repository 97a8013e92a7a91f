"""Plans for a load: N, and the WCU of each key. Pure, local.

How many keys: every WCU that DynamoDB charges, divided by those of one key. With DynamoDB's limit of 1,000 WCU/s that
gives the least number that can work, with no room for growth or for shards that share a partition; the stack sizes with
both (`detector.size_route`), so it chooses more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from pathlib import Path

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, item_size_bytes, write_units
from hotpartition.core.detector import Thresholds, size_route
from hotpartition.core.errors import HotPartitionError, SettingsError
from hotpartition.runtime.build import build_thresholds
from hotpartition.runtime.settings import Settings
from hotpartition_cli.errors import Status, UsageError
from hotpartition_cli.outcomes import Outcome
from hotpartition_messages import Message
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.requests import parse_json
from hotpartition_messages.write_requests import parse_write

KEY_LIMIT_WCU = 1_000
"""Units that one partition key takes in a second (DynamoDB Developer Guide, "Designing partition keys")."""
MAX_RATE = 1e12
_NOW_MS = 1_767_225_600_000
_CONVERSATION = "room-1"


def plan_load(rate: float, item_bytes: int | None, item: str | None, **sizing: float | None) -> Outcome:
    """Plan for a load of messages a second. The document's names are a contract (docs/command-line.md).

    `item` is measured in place of `item_bytes`; `sizing` has settings of the stack, None for the default.
    `shard_count` 0: the base key serves the load. `source_shard_count` is the formula that is often given: it forgets
    that DynamoDB charges each begun KiB, and leaves no room.

    Raises:
        UsageError: the API takes no such load, or the stack no such settings.
    """
    size = (item_bytes or 0) if item is None else measure_item(_read_item(item))
    if not 0 < rate <= MAX_RATE:
        raise UsageError(f"--rate should be greater than 0 and at most {MAX_RATE:g}, not {rate:g}")
    if not 1 <= size <= ITEM_LIMIT_BYTES:
        raise UsageError(f"--item-bytes should be from 1 to {ITEM_LIMIT_BYTES:,}, DynamoDB's limit")
    thresholds = _read_thresholds({name: value for name, value in sizing.items() if value is not None})
    wcu = write_units(size)
    load = rate * wcu
    wanted = size_route(load, thresholds) if load > thresholds.hot_sustained_wcu else 0
    count = min(wanted, thresholds.max_shard_count)
    is_covered = load <= KEY_LIMIT_WCU * max(count, 1)
    document = {
        "messages_per_second": rate,
        "item_bytes": size,
        "wcu_per_message": wcu,
        "wcu_per_second": load,
        "least_shard_count": ceil(load / KEY_LIMIT_WCU),
        "shard_count": count,
        "is_at_cap": count < wanted,
        "is_covered": is_covered,
        "source_shard_count": ceil(rate * size / 1024 / KEY_LIMIT_WCU),
        "before": _describe_side(load, 1),
        "after": _describe_side(load, max(count, 1)),
    }
    return Outcome(document, Status.FINE if is_covered else Status.FINDING)


def _read_item(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{text[1:]} cannot be read: {error}") from error


def _read_thresholds(sizing: Mapping[str, float]) -> Thresholds:
    """Read what the stack sizes by: the settings' own defaults, but for what is given."""
    try:
        return build_thresholds(Settings.defaults("consumer", lambda name: f"--{name.replace('_', '-')}", **sizing))
    except SettingsError as error:
        raise UsageError("; ".join(error.problems)) from error


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
        fields = parse_json(text)
    except ValueError as error:
        raise UsageError(f"--item should be JSON, or @FILE with JSON in it: {error}") from error
    conversation_id = fields.pop("conversation_id", _CONVERSATION) if isinstance(fields, dict) else _CONVERSATION
    try:
        new = parse_write({"body": json.dumps(fields), "pathParameters": {"conversation_id": conversation_id}})
        message = Message(
            conversation_id, mint_message_id(_NOW_MS, lambda _: 0), new.sender, new.body, new.attributes.stored
        )
        return item_size_bytes(message.to_item(KEY_FORM.shard_key(conversation_id, 0)))
    except HotPartitionError as error:
        raise UsageError(f"--item cannot be stored: {error}") from error
