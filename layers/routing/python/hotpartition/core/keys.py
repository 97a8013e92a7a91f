"""Partition and sort keys: what is stored where, and which ids are allowed.

| item | `pk` | `sk` |
|---|---|---|
| message | base key (the conversation id) or shard key `<conversation id>#<shard index>` | `m#<message id>` |
| routing item (journal) | base key | `r#` |

These forms are a storage contract, pinned by golden tests: data written under them stays. `r#` sorts after every
`m#`, so a newest-first query of the base key without an upper bound meets the routing item first.
"""

from __future__ import annotations

import re

from hotpartition.errors import InvalidConversationIdError, Problem

SEPARATOR = "#"
MESSAGE_PREFIX = "m#"
ROUTING_SORT_KEY = "r#"

MAX_CONVERSATION_ID_LENGTH = 256
CONVERSATION_ID_PATTERN = r"^[A-Za-z0-9_.:@-]{1,256}$"
CONVERSATION_ID_RULE = "1 to 256 characters out of A-Z a-z 0-9 _ . : @ -, and neither '.' nor '..'"

_CONVERSATION_ID = re.compile(r"[A-Za-z0-9_.:@-]{1,256}")


def parse_conversation_id(text: str) -> str:
    """Return the conversation id, or refuse it.

    `#` is reserved: with it, the base key `a#1` would be shard 1 of `a`. `.` and `..` do not survive in URL paths.

    Raises:
        InvalidConversationIdError: naming the rule.
    """
    if not _CONVERSATION_ID.fullmatch(text) or text in {".", ".."}:
        raise InvalidConversationIdError((Problem("conversation_id", f"should be {CONVERSATION_ID_RULE}"),))
    return text


def build_shard_key(conversation_id: str, shard_index: int) -> str:
    """Build the partition key of one shard; indexes count from 0."""
    return f"{conversation_id}{SEPARATOR}{shard_index}"


def parse_partition_key(partition_key: str) -> tuple[str, int | None]:
    """Split a partition key into conversation id and shard index; the base key has none."""
    conversation_id, separator, index = partition_key.partition(SEPARATOR)
    return conversation_id, int(index) if separator else None


def build_message_sort_key(message_id: str) -> str:
    """Build a message's sort key from its canonical (ULID) id."""
    return MESSAGE_PREFIX + message_id
