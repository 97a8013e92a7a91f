"""Reads of a closed conversation: what each round asks, and whom it believes."""

import pytest

from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Close, Generation, Route
from hotpartition_messages.reading import PageRequest
from support.builders import World, message_id, new_message

START = 1_700_000_000_000
CLOSED_AT = START + 60_000
GENERATION = Generation(START - 1, 8)
CLOSED = frozenset({Close(CLOSED_AT, False), Close(CLOSED_AT, True)})
NEWEST = PageRequest("c", newest_first=True, limit=50, is_strong=True)


@pytest.fixture
def world():
    return World()


def fill(world, before, behind):
    """Write messages on both sides of the close; the clock ends behind the last."""
    world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION}), CLOSED), START)
    world.registry.add("c", world.table.routes["c"].route.members)
    writer = world.writer()
    for index in range(before):
        writer.write(new_message(str(index), message_id=message_id(START + index, index)))
    world.clock.now_ms = CLOSED_AT
    for index in range(behind):
        world.clock.now_ms += 10
        writer.write(new_message(str(index)))
    world.table.calls.clear()


def fill_base_key_and_shards(world):
    """Write by turns to shards and, as a writer without a lease does, to the base key, which could fill a page."""
    world.clock.now_ms = START
    world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION})), START)
    world.registry.add("c", {GENERATION})
    knows_nothing = World(world.clock, world.table)
    writers = knows_nothing.writer(), world.writer()
    for index in range(120):
        writers[index % 2].write(new_message(str(index), message_id=message_id(START + index, index)))
    world.table.calls.clear()


def queried(world):
    return [call.removeprefix("query ") for call in world.table.calls if call.startswith("query")]


def shards(count=8):
    return {f"c#{shard}" for shard in range(count)}


def test_the_newest_page_behind_a_close_is_one_request(world):
    """As of a conversation that was never raised, journal included."""
    fill(world, before=100, behind=60)
    page = world.reader().read_page(NEWEST)
    assert len(page.messages) == 50
    assert world.table.calls == ["query c"]


def test_a_cursor_from_before_the_close_goes_on_behind_it(world):
    """Whoever polled while the conversation was spread misses nothing of what comes behind the close."""
    fill(world, before=100, behind=0)
    world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION})), START)
    world.registry.routes["c"] = Route(frozenset({GENERATION}))
    reader = world.reader()
    page = reader.read_page(PageRequest("c", newest_first=False, limit=100, is_strong=True))
    assert len(page.messages) == 100
    world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION}), CLOSED), START)
    world.clock.now_ms = CLOSED_AT + 5
    stored = world.writer().write(new_message("behind"))
    rest = reader.read_page(
        PageRequest("c", newest_first=False, limit=100, cursor=page.next_cursor, is_strong=True)
        if page.next_cursor
        else PageRequest("c", newest_first=False, limit=100, after_ms=START + 100, is_strong=True)
    )
    assert [message.message_id for message in rest.messages] == [stored.message.message_id]


def test_a_close_that_only_redis_shows_costs_a_round_and_is_counted(world):
    """It is never obeyed: the shards are asked in the second round."""
    fill_base_key_and_shards(world)
    world.registry.add("c", {Close(START, True)})
    page = world.reader().read_page(NEWEST)
    assert [int(message.body) for message in page.messages] == [*range(119, 69, -1)]
    assert queried(world)[0] == "c"
    assert set(queried(world)[1:9]) == shards()
    assert world.telemetry.counts[MetricName.REGISTRY_AHEAD_OF_JOURNAL] == 1


def test_a_route_that_is_confirmed_has_no_close_that_only_redis_shows(world):
    """For a caller that reads no item."""
    fill_base_key_and_shards(world)
    world.registry.add("c", {Close(START, True)})
    assert world.reader().gatherer.confirm("c") == Route(frozenset({GENERATION}))


def test_an_announcement_is_not_obeyed(world):
    """It may have come too late for some writer. Redis knows nothing here: the journal alone says what is asked."""
    fill_base_key_and_shards(world)
    world.registry.routes.clear()
    world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION}), frozenset({Close(START, False)})), START)
    page = world.reader().read_page(NEWEST)
    assert [int(message.body) for message in page.messages] == [*range(119, 69, -1)]
    assert set(queried(world)[1:9]) == shards()


def test_a_redis_that_knows_no_close_costs_no_message_and_is_repaired(world):
    """The journal's close is obeyed at once, and readers after it begin with one key."""
    fill(world, before=100, behind=60)
    world.registry.routes["c"] = Route(frozenset({GENERATION}))
    assert len(world.reader().read_page(NEWEST).messages) == 50
    world.table.calls.clear()
    assert len(world.reader().read_page(NEWEST).messages) == 50
    assert world.table.calls == ["query c"]
