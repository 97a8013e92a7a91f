"""An index with one hot value: updates of items whose own keys are many, through an index key as it is, and on shards.

Two states of the index: each of its keys has a partition of its own, as split for heat leaves it after some minutes; or
all were just thrown onto 32 partitions, where two of eight shards often share one.

Every update sets the attribute that the index is kept by, so it is a write of the index under that one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from hotpartition.table import ShardedIndex, fixed
from tools.partition_model import Partitions
from tools.patterns.model import PATTERNS, WRITES_PER_SECOND
from tools.patterns.run import BUDGET_MS
from tools.patterns.table import INDEX, INDEX_KEY, INDEX_PARTITIONS, Client, Server
from tools.simulation.engine import Engine, Process, SimulatedExecutor
from tools.simulation.scenarios import STEP
from tools.simulation.store import Observer
from tools.simulation.wiring import SimulatedTable, World

SECONDS = 10.0
PLAIN_SECONDS = 5.0
"""Enough for what throttles from the third second on; each of its updates is tried five times."""
PARTITION_KEYS = 10_000
INDEX_SHARDS = 8
STATUS = "status"


@dataclass(slots=True)
class HotIndexSample:
    """One run: updates, those that DynamoDB refused at least once, and those that failed for good."""

    updates: int = 0
    throttled: int = 0
    failed: int = 0


class HotIndex(NamedTuple):
    """An index: how many shards it has (0: it is a plain one), and whether each key has a partition of its own."""

    title: str
    shards: int
    is_apart: bool = True
    seconds: float = SECONDS
    """How long a run takes."""


PLAIN, SHARDED, THROWN = (
    HotIndex("plain index", 0, seconds=PLAIN_SECONDS),
    HotIndex(f"ShardedIndex(fixed({INDEX_SHARDS}))", INDEX_SHARDS),
    HotIndex(f"ShardedIndex(fixed({INDEX_SHARDS})), thrown onto 32 partitions", INDEX_SHARDS, is_apart=False),
)
HOT_INDEXES = (PLAIN, SHARDED, THROWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class HotIndexResult:
    """What became of the updates: of all seeds together, and in the worst of them."""

    title: str
    seeds: int
    updates: int
    throttled_share: float
    throttled_share_worst: float
    failed_share: float

    @classmethod
    def of(cls, index: HotIndex, samples: Sequence[HotIndexSample]) -> HotIndexResult:
        """Sum runs up."""
        updates = sum(sample.updates for sample in samples)
        return cls(
            title=index.title,
            seeds=len(samples),
            updates=updates,
            throttled_share=round(sum(sample.throttled for sample in samples) / updates, 5),
            throttled_share_worst=round(max(sample.throttled / sample.updates for sample in samples), 5),
            failed_share=round(sum(sample.failed for sample in samples) / updates, 5),
        )


def simulate_hot_index(index: HotIndex, seed: int) -> HotIndexSample:
    """Run updates through an index."""
    run = _Run(index, seed)
    with closing(run.engine):
        return run.play(index.seconds)


class _Run:
    def __init__(self, index: HotIndex, seed: int) -> None:
        engine = self.engine = Engine()
        self.shards = index.shards
        self.world = World(engine, seed, STEP, observer=Observer(), seeds="hot-index/")
        self.server = Server(
            self.world, PATTERNS["buckets"], seed, Partitions(is_key_apart=True) if index.is_apart else INDEX_PARTITIONS
        )
        self.random = Random(f"hot-index/{seed}")
        self.numbers = count()
        self.sample = HotIndexSample()
        self.idle: list[SimulatedTable] = []

    def _open(self) -> SimulatedTable:
        name, table = f"writer-{next(self.numbers)}", Client(self.server)
        index = ShardedIndex(INDEX, hash=STATUS, shards=fixed(self.shards or 1))
        client: Any = table
        opened = SimulatedTable(
            client,
            shards=fixed(0),
            indexes=[index] if self.shards else [],
            clock=self.world.clock(self.world.random(name)),
            budget_ms=BUDGET_MS,
        )
        opened.simulated = SimulatedExecutor(self.engine, Process(), table.meta.config.max_pool_connections)
        return opened

    def play(self, seconds: float) -> HotIndexSample:
        """Play a Poisson process of updates."""

        def arrive() -> None:
            if self.engine.now < seconds:
                self.engine.after(self.random.expovariate(WRITES_PER_SECOND), arrive)
                self.engine.spawn(self._update)

        arrive()
        self.engine.run_until(seconds + 1.0)
        self.sample.throttled = len(self.server.refused_keys)
        return self.sample

    def _update(self) -> None:
        self.sample.updates += 1
        table = self.idle.pop() if self.idle else self._open()
        number = next(self.numbers)
        try:
            table.update_item(
                Key={"PK": f"order-{self.random.randrange(PARTITION_KEYS)}", "SK": f"{number:08}"},
                UpdateExpression="SET #status = :status",
                ExpressionAttributeNames={"#status": STATUS if self.shards else INDEX_KEY},
                ExpressionAttributeValues={":status": "OPEN"},
            )
        except ClientError:
            self.sample.failed += 1
        finally:
            self.idle.append(table)
