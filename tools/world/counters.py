"""The write and the read function of counters, as a deployment with an HTTP face over the engine's jobs would have."""

from __future__ import annotations

from dataclasses import dataclass

from hotpartition.core.counter_items import build_addition, counter_size_bytes
from hotpartition.dynamodb.counter_store import describe_counters
from hotpartition.dynamodb.table import TableForm
from hotpartition.engine.counters import Adder, Summer
from hotpartition_messages.keys import KEY_FORM, find_journal

COUNTER_NAME = "c"


@dataclass(frozen=True, slots=True)
class NewAddition:
    """A requested addition. With a token, it counts once."""

    counter_id: str
    amount: int
    token: str | None = None


def build_counter_key(counter_id: str) -> str:
    """Build a counter's base key, which is no conversation's."""
    return f"counter/{counter_id}"


def describe_counter_table(table_name: str) -> TableForm:
    """Describe the counters in the table of messages."""
    return describe_counters(table_name, COUNTER_NAME, journal=find_journal(table_name), keys=KEY_FORM)


class CounterWriter:
    """Adds to counters. One per execution environment."""

    def __init__(self, adder: Adder, table_name: str) -> None:
        self._adder = adder
        self._table_name = table_name

    def add(self, new: NewAddition) -> None:
        """Add to a counter; with a token, unless that was done before."""
        key = build_counter_key(new.counter_id)
        size_bytes = counter_size_bytes("pk", "sk", key, COUNTER_NAME)
        if new.token is None:
            self._adder.add(key, new.amount, size_bytes=size_bytes)
            return
        addition = build_addition(self._table_name, COUNTER_NAME, key, new.token, new.amount)
        self._adder.add_once(key, addition, size_bytes=size_bytes)


class CounterReader:
    """Reads counters. One per execution environment."""

    def __init__(self, summer: Summer) -> None:
        self._summer = summer

    def read(self, counter_id: str, *, is_strong: bool) -> int:
        """Return the sum of a counter; 0 for one that was never added to."""
        return self._summer.sum_up(build_counter_key(counter_id), is_strong=is_strong)
