"""Counters in the world: the functions that add and sum up, and what runs of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from hotpartition.core.counter_items import build_addition, counter_size_bytes
from hotpartition.core.errors import RetryLaterError
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore, decode_cell, describe_counters
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.engine.counters import Adder, Summer
from hotpartition_messages.keys import KEY_FORM
from tools.history import Added, Finding, Seen
from tools.world.clock import Process
from tools.world.functions import Function, NoResponseError, TooManyRequestsError
from tools.world.product import TABLE, World, build_reading, build_write_jobs, open_reader_calls
from tools.world.run import Run
from tools.world.scenario import TABLE_NAME, Scenario

AUDIT_SECONDS = 60.0
SUM = "sum"
"""What the history calls the one item of a counter."""
COUNTER = "c"
COUNTERS = describe_counters(TABLE_NAME, COUNTER, journal=TABLE.journal, keys=KEY_FORM)
REFUSALS = (RetryLaterError, NoResponseError, TooManyRequestsError)


class NewAddition(NamedTuple):
    """A requested addition. With a token, it counts once."""

    counter_id: str
    amount: int
    token: str | None = None


def counter_key(counter_id: str) -> str:
    """Build a counter's base key, which is no conversation's."""
    return f"counter/{counter_id}"


def build_adder(world: World, process: Process, index: int) -> Callable[[NewAddition], None]:
    """Build one environment of the write function, for counters."""
    engine, jobs = build_write_jobs(world, process, index)
    calls = world.calls("writer")
    adder = Adder(
        jobs.messages.writer,
        DynamoDBCounterStore(calls, COUNTERS),
        journal=DynamoDBJournal(calls, COUNTERS.journal),
        form=KEY_FORM,
        clock=engine.clock,
        budget_ms=engine.budget_ms,
    )

    def add(new: NewAddition) -> None:
        key = counter_key(new.counter_id)
        size_bytes = counter_size_bytes("pk", "sk", key, COUNTER)
        if new.token is None:
            adder.add(key, new.amount, size_bytes=size_bytes)
        else:
            addition = build_addition(TABLE_NAME, COUNTER, key, new.token, new.amount)
            adder.add_once(key, addition, size_bytes=size_bytes)

    return add


def build_summer(world: World, process: Process, index: int) -> Callable[[str], int]:
    """Build one environment of the read function, for counters."""
    calls = open_reader_calls(world, process)
    cells = DynamoDBItemStore(calls, COUNTERS, decode_cell)
    gatherer = build_reading(world, process, index, calls).gatherer(store=cells)
    summer = Summer(gatherer, is_alone=True, form=KEY_FORM)
    return lambda counter_id: summer.sum_up(counter_key(counter_id), is_strong=True)


class CounterRun(Run):
    """A run of additions: the functions that add and sum up, and what clients noted."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed, chance="counters/")
        engine, world = self.engine, self.world
        self.adding: Function[NewAddition, None] = Function(
            engine, scenario.writers, partial(build_adder, world), world.random("adders")
        )
        self.reading: Function[str, int] = Function(
            engine, scenario.reading, partial(build_summer, world), world.random("summers")
        )

    def random(self, name: str) -> Random:
        """Make a source of chance of its own."""
        return self.world.random(f"counters/{name}")

    def offer(self, counter: str, token: str, amount: int) -> Added:
        """Note that somebody begins to add."""
        self.record.note_offer(counter, SUM, "")
        return self.record.note_addition(counter, SUM, token, began=self.engine.now, amount=amount)

    def read(self, counter: str) -> bool:
        """Read a counter strongly, and note it; say whether it could be read."""
        began_at = self.engine.now
        try:
            value = self.reading.invoke(counter)
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
