"""The keys of messages, and the conversation ids that are allowed.

| item | `pk` | `sk` |
|---|---|---|
| message | base key (the conversation id) or shard key `<conversation id>#<shard index>` | `m#<message id>` |
| routing item (journal) | base key | `r#` |

These forms are a storage contract, pinned by golden tests: data written under them stays. `r#` sorts after every
`m#`, so a newest-first query of the base key without an upper bound meets the routing item first.
"""

from __future__ import annotations

import re

from hotpartition.core.capacity import ITEM_LIMIT_BYTES
from hotpartition.core.errors import InvalidRequestError, ItemTooLargeError
from hotpartition.core.items import ItemKey
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.table import JournalPlace, TableForm
from hotpartition_messages.message_ids import MAX_MESSAGE_ID, MIN_MESSAGE_ID, message_time_ms

KEY_FORM = KeyForm("#", label="conversation_id")
MESSAGE_PREFIX = "m#"
ROUTING_SORT_KEY = "r#"
ROUTING_INDEX = "routing-index"
"""Name of the sparse index that lists routing items."""

CONVERSATION_ID_PATTERN = r"^[A-Za-z0-9_.:@-]{1,256}$"
CONVERSATION_ID_RULE = "1 to 256 characters out of A-Z a-z 0-9 _ . : @ -, and neither '.' nor '..'"


def parse_conversation_id(text: str) -> str:
    """Return the conversation id, or refuse it.

    `#` is reserved: with it, the base key `a#1` would be shard 1 of `a`. `.` and `..` do not survive in URL paths.

    Raises:
        InvalidRequestError: naming the rule.
    """
    if not re.fullmatch(CONVERSATION_ID_PATTERN, text) or text in {".", ".."}:
        raise InvalidRequestError.of("conversation_id", f"should be {CONVERSATION_ID_RULE}")
    return text


def find_journal(table_name: str) -> JournalPlace:
    """Find the routing items of the table of messages."""
    return JournalPlace(table_name, routing_sort_key=ROUTING_SORT_KEY, index_name=ROUTING_INDEX)


def describe_table(table_name: str) -> TableForm:
    """Describe the table of messages."""
    return TableForm(
        name=table_name,
        journal=find_journal(table_name),
        first_sort_key=MESSAGE_PREFIX + MIN_MESSAGE_ID,
        last_sort_key=MESSAGE_PREFIX + MAX_MESSAGE_ID,
        keys=KEY_FORM,
    )


def build_key(conversation_id: str, message_id: str) -> ItemKey[str]:
    """Build a message's key as the engine knows it. REQUIRES: a canonical message id."""
    return ItemKey(conversation_id, MESSAGE_PREFIX + message_id, message_time_ms(message_id), message_id)


def check_item_size(size_bytes: int) -> None:
    """Refuse an item too large for DynamoDB under its longest key, so that no retry across a raise becomes too large.

    `size_bytes` is its size at its base key, as DynamoDB counts.

    Raises:
        ItemTooLargeError: it is.
    """
    longest_bytes = size_bytes + KEY_FORM.longest_suffix_bytes
    if longest_bytes > ITEM_LIMIT_BYTES:
        raise ItemTooLargeError(longest_bytes, ITEM_LIMIT_BYTES)


def build_sort_key(message_id: str) -> str:
    """Build a message's sort key from its canonical (ULID) id."""
    return MESSAGE_PREFIX + message_id


def parse_sort_key(sort_key: str) -> str:
    """Return the message id in a sort key."""
    return sort_key.removeprefix(MESSAGE_PREFIX)


def position_of(sort_key: str) -> int:
    """Return the time of a message's sort key, Unix ms: its position."""
    return message_time_ms(sort_key.removeprefix(MESSAGE_PREFIX))
