"""Counters: their keys, and the jobs that add to them and read them.

| item | `pk` | `sk` |
|---|---|---|
| counter, its cells | `counter/<counter id>` (base key), `counter/<counter id>#<shard>` | `c#`, `c#00` to `c#15` |
| routing item (journal) | base key | `r#` |

`/` is in no conversation id, so no counter shares a partition key with a conversation. These forms are a storage
contract, pinned by golden tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotpartition.core.backoff import Clock
from hotpartition.core.counter_items import AMOUNT, Cell, build_addition, counter_size_bytes
from hotpartition.core.ports import ItemStore, Telemetry
from hotpartition.dynamodb.counter_store import describe_counters
from hotpartition.dynamodb.table import TableForm
from hotpartition.engine.counters import Adder, Summer
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.read_repair import ReadRepair
from hotpartition_messages.keys import KEY_FORM, find_journal

COUNTER_PREFIX = "counter/"
COUNTER_NAME = "c"
COUNTER_ATTRIBUTES = ("pk", "sk", AMOUNT)
"""Every attribute of a counter's item: an addition may name no others."""
MAX_AMOUNT = 1_000_000_000
"""Of one addition, up or down. The sum has 38 digits."""


@dataclass(frozen=True, slots=True)
class NewAddition:
    """A requested addition. REQUIRES: checked. With a token, it counts once."""

    counter_id: str
    amount: int
    token: str | None = None


def build_counter_key(counter_id: str) -> str:
    """Build a counter's base key."""
    return COUNTER_PREFIX + counter_id


def describe_counter_table(table_name: str) -> TableForm:
    """Describe the counters in the table of messages."""
    return describe_counters(table_name, COUNTER_NAME, journal=find_journal(table_name), keys=KEY_FORM)


class CounterWriter:
    """Adds to counters. One per execution environment; serves one request at a time."""

    def __init__(self, adder: Adder, table_name: str) -> None:
        self._adder = adder
        self._table_name = table_name

    def add(self, new: NewAddition, *, remaining_ms: float = float("inf")) -> None:
        """Add to a counter; with a token, unless that was done before. `remaining_ms`: the time the function has left.

        Raises:
            TokenReusedError: the token stands for another amount.
            OutcomeUnknownError: whether it was counted is not known, and without a token cannot be found out.
            RetryLaterError: repeating the request is safe: DynamoDB refused for the whole budget, or there is a token.
        """
        key = build_counter_key(new.counter_id)
        size_bytes = counter_size_bytes("pk", "sk", key, COUNTER_NAME)
        if new.token is None:
            self._adder.add(key, new.amount, size_bytes=size_bytes, remaining_ms=remaining_ms)
            return
        addition = build_addition(self._table_name, COUNTER_NAME, key, new.token, new.amount)
        self._adder.add_once(key, addition, size_bytes=size_bytes, remaining_ms=remaining_ms)


class CounterReader:
    """Reads counters. One per execution environment; serves one request at a time."""

    def __init__(self, summer: Summer) -> None:
        self._summer = summer

    def read(self, counter_id: str, *, is_strong: bool, remaining_ms: float = float("inf")) -> int:
        """Return the sum of a counter, strongly consistent or not; 0 for one that was never added to.

        Raises:
            RetryLaterError: a part of it could not be read within the budget.
            MalformedGenerationError: its routing item cannot be read.
        """
        return self._summer.sum_up(build_counter_key(counter_id), is_strong=is_strong, remaining_ms=remaining_ms)


def build_counter_reader(
    cells: ItemStore[str, Cell],
    routes: ReadRepair,
    *,
    telemetry: Telemetry,
    clock: Clock,
    budget_ms: float,
    summer: type[Summer] = Summer,
) -> CounterReader:
    """Build the job that reads counters, by the routes of the one that reads messages."""
    gatherer = Gatherer(
        store=cells, routes=routes, telemetry=telemetry, clock=clock, budget_ms=budget_ms, form=KEY_FORM
    )
    return CounterReader(summer(gatherer, is_alone=True, form=KEY_FORM))
