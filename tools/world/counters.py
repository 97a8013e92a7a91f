"""Counters in the world: the functions that add and sum up, and what runs of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from hotpartition.core.counter_items import build_addition, counter_size_bytes
from hotpartition.core.errors import RetryLaterError
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore, decode_cell, describe_counters
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.engine.counters import Adder, Summer
from hotpartition_messages.keys import KEY_FORM
from tools.history import Added, Finding, Seen
from tools.world.clock import Process
from tools.world.functions import NoResponseError, TooManyRequestsError
from tools.world.product import TABLE, World, build_reading, build_write_jobs, open_reader_calls
from tools.world.run import Run
from tools.world.scenario import TABLE_NAME, Scenario

AUDIT_SECONDS = 60.0
SUM = "sum"
"""What the history calls the one item of a counter."""
COUNTER = "c"
COUNTERS = describe_counters(TABLE_NAME, COUNTER, journal=TABLE.journal, keys=KEY_FORM)
REFUSALS = (RetryLaterError, NoResponseError, TooManyRequestsError)


def counter_key(counter_id: str) -> str:
    """Build a counter's base key, which is no conversation's."""
    return f"counter/{counter_id}"


def build_call(counter_id: str, amount: int, token: str | None = None) -> Callable[[Adder], None]:
    """Build the call that adds to a counter. With a token, the addition counts once."""
    key = counter_key(counter_id)
    size_bytes = counter_size_bytes("pk", "sk", key, COUNTER)
    if token is None:
        return lambda adder: adder.add(key, amount, size_bytes=size_bytes)
    addition = build_addition(TABLE_NAME, COUNTER, key, token, amount)
    return lambda adder: adder.add_once(key, addition, size_bytes=size_bytes)


def build_adder(world: World, process: Process, index: int) -> Adder:
    """Build one environment of the write function, for counters."""
    engine, jobs = build_write_jobs(world, process, index)
    calls = world.calls("writer")
    return Adder(
        jobs.messages.writer,
        DynamoDBCounterStore(calls, COUNTERS),
        journal=DynamoDBJournal(calls, COUNTERS.journal),
        form=KEY_FORM,
        clock=engine.clock,
        budget_ms=engine.budget_ms,
    )


def build_summer(world: World, process: Process, index: int) -> Summer:
    """Build one environment of the read function, for counters."""
    calls = open_reader_calls(world, process)
    cells = DynamoDBItemStore(calls, COUNTERS, decode_cell)
    gatherer = build_reading(world, process, index, calls).gatherer(store=cells)
    return Summer(gatherer, is_alone=True, form=KEY_FORM)


class CounterRun(Run):
    """A run of additions: the functions that add and sum up, and what clients noted."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed, chance="counters/")
        self.adding = self.world.open_calls(scenario.writers, build_adder, "adders")
        self.reading = self.world.open_calls(scenario.reading, build_summer, "summers")

    def random(self, name: str) -> Random:
        """Make a source of chance of its own."""
        return self.world.random(f"counters/{name}")

    def offer(self, counter: str, amount: int, token: str) -> Added:
        """Note that somebody begins to add."""
        self.record.note_offer(counter, SUM, "")
        return self.record.note_addition(counter, SUM, token, began=self.engine.now, amount=amount)

    def read(self, counter: str) -> bool:
        """Read a counter strongly, and note it; say whether it could be read."""
        began_at = self.engine.now
        try:
            value = self.reading.invoke(lambda summer: summer.sum_up(counter_key(counter), is_strong=True))
        except REFUSALS:
            return False
        self.record.note_lookup(counter, SUM, [Seen(SUM, "", value)], began_at, self.engine.now)
        return True

    def audit(self, counters: Sequence[str]) -> tuple[Finding, ...]:
        """Read everything once more, when all is over, and list what is wrong."""

        def read() -> None:
            for counter in counters:
                while not self.read(counter):
                    self.engine.sleep(0.1)

        self.engine.run_to_end(read, AUDIT_SECONDS)
        return self.record.breaches()
