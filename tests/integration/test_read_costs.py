"""What reading a sharded conversation costs in DynamoDB: items read, and rounds of queries one after another."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from hotpartition.core.route import Generation, Route, choose_placement
from hotpartition.core.route_history import Cause
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.read_repair import ReadRepair
from hotpartition.engine.route_cache import RouteCache, RouteSource
from hotpartition_messages.keys import KEY_FORM, build_key, position_of
from hotpartition_messages.reading import MessageReader, PageRequest
from support.builders import build_message
from support.dynamodb_server import Exchange
from support.fakes import FakeClock, FakeRegistry, FakeTelemetry, InlineBackground
from support.tables import TABLE_NAME

pytestmark = pytest.mark.slow

NOW_MS = 1_700_000_000_000
SHARDS = 16
MESSAGES = 800
MOST_ITEMS = 125
MOST_ROUNDS = 2


@dataclass
class Costs:
    """Items that DynamoDB read for queries, and how often the reader had to wait for a round of them."""

    exchanges: list[Exchange] = field(default_factory=list)
    rounds: int = 0
    store: Any = field(default=None, repr=False)

    @property
    def queries(self) -> int:
        return sum(exchange.operation == "Query" for exchange in self.exchanges)

    @property
    def gets(self) -> int:
        return sum(exchange.operation == "GetItem" for exchange in self.exchanges)

    @property
    def items(self) -> int:
        return sum(exchange.response["ScannedCount"] for exchange in self.exchanges if exchange.operation == "Query")

    def fetch(self, *arguments: Any, **options: Any) -> Any:
        self.rounds += 1
        return self.store.fetch(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.fixture
def sharded(dynamodb):
    """A conversation whose newest 800 messages are spread over 16 shards, 30 older ones on its base key."""
    generation = Generation(since_ms=NOW_MS, shard_count=SHARDS)
    route, random = Route(frozenset({generation})), Random(3)
    puts = []
    for offset in (*range(-30, 0), *range(MESSAGES)):
        message = build_message(NOW_MS + offset, random.getrandbits(80))
        placement = choose_placement(route, build_key("c", message.message_id), KEY_FORM)
        puts.append({"PutRequest": {"Item": message.to_item(placement.partition_key)}})
    for start in range(0, len(puts), 25):
        dynamodb.client.batch_write_item(RequestItems={TABLE_NAME: puts[start : start + 25]})
    dynamodb.journal.add("c", [generation], cause=Cause("raised"), now_ms=NOW_MS)
    return generation


def read(dynamodb, request, *, known=()):
    """Read one page by a cold environment whose Redis knows these generations; returns it and its costs."""
    costs = Costs(dynamodb.server.exchanges, store=dynamodb.store)
    dynamodb.server.clear()
    registry, telemetry = FakeRegistry(), FakeTelemetry()
    registry.add("c", known)
    cache = RouteCache(ttl_seconds=2, max_entries=10, random=lambda: 0.0)
    gatherer = Gatherer(
        store=costs,
        routes=ReadRepair(
            registry=registry,
            routes=RouteSource(cache=cache, registry=registry, telemetry=telemetry, timer=lambda: 0.0, journal=None),
            background=InlineBackground(),
            telemetry=telemetry,
            now_ms=lambda: 0,
        ),
        telemetry=telemetry,
        clock=FakeClock(NOW_MS + MESSAGES).as_clock(),
        budget_ms=300,
        form=KEY_FORM,
        position_of=position_of,
    )
    reader = MessageReader(gatherer, now_ms=lambda: NOW_MS + MESSAGES, settle_ms=5000)
    return reader.read_page(request), costs


@pytest.mark.parametrize("is_strong", [True, False])
def test_the_newest_fifty_of_sixteen_shards_cost_little(dynamodb, sharded, is_strong):
    """At most 125 items and 2 rounds of queries, the journal's own item included."""
    page, costs = read(dynamodb, PageRequest("c", limit=50, is_strong=is_strong), known={sharded})
    assert len(page.messages) == 50
    assert costs.items <= MOST_ITEMS
    assert costs.rounds <= MOST_ROUNDS
    assert costs.gets == 0


def test_a_redis_that_knows_nothing_costs_a_round(dynamodb, sharded):
    """The base key's page is read for nothing, and then the shards as ever."""
    page, costs = read(dynamodb, PageRequest("c", limit=50))
    assert len(page.messages) == 50
    assert costs.items <= MOST_ITEMS + 51
    assert costs.rounds <= MOST_ROUNDS + 1


@pytest.mark.parametrize("newest_first", [True, False])
def test_history_from_before_the_first_raise_costs_one_query(dynamodb, sharded, newest_first):
    """And the journal's read, in either order."""
    request = PageRequest("c", newest_first=newest_first, limit=10, before_ms=NOW_MS if newest_first else None)
    page, costs = read(dynamodb, request, known={sharded})
    assert len(page.messages) == 10
    assert (costs.queries, costs.gets, costs.rounds) == (1, 1, 1)
