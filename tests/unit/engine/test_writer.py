"""The write job: placed by what is known, counted once, stored once, refused cleanly."""

from dataclasses import replace

import pytest

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, item_size_bytes
from hotpartition.core.errors import ItemTooLargeError, StoreUnavailableError, ThrottledError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import choose_placement
from hotpartition_messages.attributes import encode_attributes
from hotpartition_messages.errors import MessageConflictError
from hotpartition_messages.keys import KEY_FORM, build_key, parse_sort_key
from hotpartition_messages.writing import NewMessage
from support.builders import World, build_message, message_id, new_message, route_of
from support.fakes import KEY_RANGE_THROTTLE

from .conftest import failing, lose_next_response

ACCOUNT_THROTTLE = ThrottledError(["TableWriteAccountLimitExceeded"])


@pytest.fixture
def world():
    return World()


def puts(world):
    return [call for call in world.table.calls if call.startswith("put")]


def test_a_quiet_conversation_costs_one_put_and_one_lookup(world):
    """Never hot: the base key, one DynamoDB request, at most one request to Redis in a cached route's TTL."""
    writer = world.writer()
    for _ in range(3):
        writer.write(new_message())
    assert world.table.calls == ["put c"] * 3
    assert world.registry.reads == 1


@pytest.mark.parametrize("other", [{"a": True}, {"a": "1"}, {}])
def test_attributes_count_as_content(world, other):
    """True is not 1, and 1 is not "1"; but 1 is 1.0."""
    writer = world.writer()
    first = writer.write(NewMessage("c", "ann", "x", encode_attributes({"a": 1.0})))
    again = NewMessage("c", "ann", "x", encode_attributes({"a": 1}), first.message.message_id)
    assert writer.write(again).is_replay
    with pytest.raises(MessageConflictError):
        writer.write(replace(again, attributes=encode_attributes(other)))


def test_an_item_over_the_limit_is_refused_before_it_is_counted(world):
    """400 KiB with names and the longest shard key; nothing was offered to DynamoDB."""
    with pytest.raises(ItemTooLargeError) as caught:
        world.writer().write(new_message("x" * ITEM_LIMIT_BYTES))
    assert caught.value.item_bytes > ITEM_LIMIT_BYTES
    assert (world.table.calls, world.reports.sent) == ([], [])


def test_what_is_stored_is_the_messages_item_at_its_place(world):
    """The item is built once, and only its key follows the placement, also when that changes between two tries."""
    identifier = message_id(world.clock.now_ms, 5)
    world.table.failures = [KEY_RANGE_THROTTLE]
    world.clock.on_sleep = lambda: world.raise_to(8, 0)
    written = world.writer().write(new_message(message_id=identifier))
    key = choose_placement(route_of((8, 0)), build_key("c", identifier), KEY_FORM).partition_key
    stored = {place: dict(item) for place, item in world.table.items.items() if place[1].startswith("m#")}
    assert stored == {(key, f"m#{identifier}"): written.message.to_item(key)}


def test_with_redis_away_a_throttle_asks_the_journal(world):
    """A raised conversation is still found by an environment that started while Redis was down."""
    world.raise_to(8, 0)
    world.registry.is_down = True
    world.table.failures = [KEY_RANGE_THROTTLE]
    world.writer().write(new_message())
    assert world.table.calls[:2] == ["put c", "get c"]  # which is the lease as well
    assert world.table.calls[2].startswith("put c#")


def test_with_redis_away_writes_go_on_by_the_last_known_route(world):
    """A cached route outlives its freshness."""
    world.raise_to(8, 0)
    writer = world.writer()
    writer.write(new_message())
    world.registry.is_down = True
    world.clock.now_ms += 60_000
    writer.write(new_message())
    assert all(call.startswith("put c#") for call in puts(world))
    assert world.telemetry.counts["RegistryUnavailable"] == 1


@pytest.mark.parametrize("failure", [KEY_RANGE_THROTTLE, ACCOUNT_THROTTLE, StoreUnavailableError("500")])
def test_when_the_budget_is_spent_the_error_names_the_id(world, failure):
    """Nothing half written, and the id to repeat with; waits are jittered, short and within the budget."""
    started = world.clock.now_ms
    world.table.failures = [failure] * 100
    with pytest.raises(type(failure)) as caught:
        world.writer(budget_ms=300).write(new_message())
    assert caught.value.sort_key
    assert world.table.items == {}
    assert world.clock.now_ms - started < 300
    assert len(puts(world)) >= 3
    world.table.failures = []
    retried = world.writer().write(new_message(message_id=parse_sort_key(caught.value.sort_key)))
    assert not retried.is_replay


@pytest.mark.parametrize("is_minted", [True, False])
def test_a_put_whose_response_was_lost_is_found_again(world, is_minted):
    """Stored, but the response never came. Under an id of the server's own, what the retry finds is new."""
    identifier = None if is_minted else message_id(world.clock.now_ms, 9)
    lose_next_response(world)
    assert world.writer().write(new_message(message_id=identifier)).is_replay is not is_minted
    assert len(world.table.items) == 1


def test_a_write_is_counted_once_however_often_it_is_tried(world):
    """Offered load, once per request; a throttled sample is sent again with the same value, and says so."""
    world.table.failures = [KEY_RANGE_THROTTLE, KEY_RANGE_THROTTLE]
    world.writer(sampling_distance_wcu=0.5).write(new_message())
    values = [(r.value, r.is_throttled, r.shard_count) for r in world.reports.sent]
    assert len(values) == 2
    assert values[0][0] == values[1][0]
    assert [v[1:] for v in values] == [(False, 0), (True, 0)]


@pytest.mark.parametrize(("extra", "raised", "expected"), [(0, False, 1), (1, False, 2), (0, True, 2), (-2, True, 1)])
def test_units_are_those_of_the_very_item(world, extra, raised, expected):
    """At the edge of a KiB the shard's suffix decides; sampled at every 1/1000 unit, the value is the count."""
    if raised:
        world.raise_to(4, 0)
    empty = item_size_bytes(build_message(body="").to_item("c"))
    world.writer(sampling_distance_wcu=0.001).write(new_message("x" * (1024 - empty + extra)))
    assert world.reports.sent[-1].value == pytest.approx(expected, abs=0.001)


def test_dropped_reports_are_counted(world):
    """With Redis away reports are dropped, and an operator sees how many."""
    world.reports.take_dropped = lambda: 3
    world.writer().write(new_message())
    assert world.telemetry.counts["ReportsDropped"] == 3


class TestWhatOnlyRedisKnows:
    """A writer places by a generation only once the journal has shown it to this environment."""

    @pytest.fixture
    def world(self):
        world = World()
        world.registry.routes["c"] = route_of((7, 0))
        return world

    @staticmethod
    def write(world, count, *, pause_ms):
        writer = world.writer(ttl_seconds=0.0)
        for i in range(count):
            writer.write(new_message(str(i)))
            world.clock.now_ms += pause_ms
        return writer

    @staticmethod
    def places(world):
        return {partition_key for partition_key, _ in world.table.items}

    def test_what_the_journal_has_is_looked_up_once(self, world):
        """One look-up for a new generation, which is the lease as well; none for the messages after."""
        world.table.routes["c"] = JournalEntry(route_of((7, 0)))
        self.write(world, 50, pause_ms=100)
        assert world.table.calls.count("get c") == 1
        assert "c" not in self.places(world)

    def test_what_the_journal_does_not_show_yet_is_used_as_soon_as_it_does(self, world):
        """Without leases, reads are eventually consistent and lag: the next one, a moment later, shows it."""
        world.table.routes["c"] = JournalEntry(route_of((7, 0)))
        world.table.lagging["c"] = JournalEntry()
        writer = world.writer(lease_seconds=0)
        writer.write(new_message("early"))
        del world.table.lagging["c"]
        world.clock.now_ms += 250
        writer.write(new_message("late"))
        assert [key == "c" for key, _ in world.table.items] == [True, False]

    def test_inventions_are_looked_up_less_and_less_and_a_raise_among_them_is_found(self, world):
        """An hour of writes under a generation that was never raised: once Redis shows it, it is looked up."""
        writer = self.write(world, 3_600, pause_ms=1_000)
        assert world.table.calls.count("get c") < 75
        world.raise_to(4, world.clock.now_ms)
        world.table.items.clear()
        writer.write(new_message("after"))
        assert "c" not in self.places(world)

    def test_ever_new_inventions_are_looked_up_ten_times_a_second_at_most(self, world):
        """Not with each write, however many generations somebody writes to Redis."""
        writer = world.writer(ttl_seconds=0.0)
        for i in range(500):
            world.registry.routes["c"] = route_of((7, i))
            writer.write(new_message(str(i)))
            world.clock.now_ms += 10
        assert world.table.calls.count("get c") <= 51

    def test_a_journal_that_does_not_respond_costs_no_write(self, world):
        """The write goes where the confirmed route says; the journal is asked again, not in each write."""
        world.table.on_call = failing("get c", always=KEY_RANGE_THROTTLE)
        self.write(world, 100, pause_ms=10)
        assert self.places(world) == {"c"}
        assert world.table.calls.count("get c") == 10
