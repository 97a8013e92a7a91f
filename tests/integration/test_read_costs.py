"""What reading a sharded conversation costs in DynamoDB: items read, and rounds of queries one after another."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from hotpartition.core.route import Generation, Route, choose_placement
from hotpartition.core.route_history import Cause
from hotpartition_messages.adaptive_reader import build_message_reader
from hotpartition_messages.keys import KEY_FORM, build_key
from hotpartition_messages.reading import PageRequest
from hotpartition_messages.settings import ReadSettings
from support.builders import World, build_message
from support.fakes import FakeClock
from support.tables import TABLE_NAME

pytestmark = pytest.mark.slow

NOW_MS = 1_700_000_000_000
SHARDS = 16
MESSAGES = 800
MOST_ITEMS = 125
MOST_ROUNDS = 2


class CountedStore:
    """The message store, and how often the reader had to wait for a round of queries."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.rounds = 0

    def fetch(self, *arguments: Any, **options: Any) -> Any:
        self.rounds += 1
        return self._store.fetch(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def items_read(dynamodb):
    """How many items DynamoDB read for queries."""
    return sum(e.response["ScannedCount"] for e in dynamodb.server.exchanges if e.operation == "Query")


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
    """Read one page by a cold environment whose Redis knows these generations; returns it and the rounds it took."""
    store, world = CountedStore(dynamodb.store), World(clock=FakeClock(NOW_MS + MESSAGES))
    dynamodb.server.clear()
    world.registry.add("c", known)
    page = build_message_reader(world.ends(), ReadSettings.defaults(), store).read_page(request)
    return page, store.rounds


@pytest.mark.parametrize("is_strong", [True, False])
def test_the_newest_fifty_of_sixteen_shards_cost_little(dynamodb, sharded, is_strong):
    """At most 125 items and 2 rounds of queries, the journal's own item included."""
    page, rounds = read(dynamodb, PageRequest("c", limit=50, is_strong=is_strong), known={sharded})
    assert len(page.messages) == 50
    assert items_read(dynamodb) <= MOST_ITEMS
    assert rounds <= MOST_ROUNDS
    assert "GetItem" not in dynamodb.server.operations


def test_a_redis_that_knows_nothing_costs_a_round(dynamodb, sharded):
    """The base key's page is read for nothing, and then the shards."""
    page, rounds = read(dynamodb, PageRequest("c", limit=50))
    assert len(page.messages) == 50
    assert items_read(dynamodb) <= MOST_ITEMS + 51
    assert rounds <= MOST_ROUNDS + 1


@pytest.mark.parametrize("newest_first", [True, False])
def test_history_from_before_the_first_raise_costs_one_query(dynamodb, sharded, newest_first):
    """And the journal's read, in either order."""
    request = PageRequest("c", newest_first=newest_first, limit=10, before_ms=NOW_MS if newest_first else None)
    page, rounds = read(dynamodb, request, known={sharded})
    assert len(page.messages) == 10
    assert (dynamodb.server.operations, rounds) == ({"Query": 1, "GetItem": 1}, 1)
