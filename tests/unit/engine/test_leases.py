"""Writers under leases: by DynamoDB's clock, in doubt the base key, one strong read each."""

from threading import Thread

import pytest

from hotpartition.core.closes import CloseTimes
from hotpartition.core.errors import RetryLaterError, StoreUnavailableError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Route
from hotpartition_messages.keys import build_key
from support.builders import World, message_id, new_message
from support.fakes import KEY_RANGE_THROTTLE

from .conftest import failing

START = 1_700_000_000_000
TIMES = CloseTimes(lease_ms=600_000, margin_ms=60_000)
MINUTE = 60_000


@pytest.fixture
def world():
    world = World()
    world.raise_to(8, START - 5_000)
    return world


def place(world, writer, time_ms=None, tail=1):
    """Place a message of a time, by default the writer's present; return whether it goes to a shard."""
    key = build_key("c", message_id(world.clock.now_ms if time_ms is None else time_ms, tail))
    return writer.writer.place(key, size_bytes=100).partition_key != "c"


def looks(world):
    return world.table.calls.count("get c")


def close_at(world, at_ms, *, kinds=("closing",), in_redis=False):
    route = world.table.routes["c"].route.union(Route.decode(f"{kind}@{at_ms}" for kind in kinds))
    world.table.routes["c"] = JournalEntry(route, world.clock.now_ms)
    if in_redis:
        world.registry.add("c", route.members)


def test_a_lease_is_one_strong_read_in_ten_minutes(world):
    """For items up to ten minutes behind it; the first is the route's own look-up."""
    writer = world.writer()
    for _ in range(121):
        assert place(world, writer)
        world.clock.now_ms += 10_000
    assert looks(world) == 3


def test_what_is_on_the_base_key_needs_none(world):
    """Never raised, or older than the raise: no look at the journal but the one for what Redis showed."""
    writer = world.writer()
    writer.write(new_message(conversation_id="quiet"))
    assert "get quiet" not in world.table.calls
    assert not place(world, writer, START - 6_000)
    assert looks(world) == 1


def test_announced_closes_are_obeyed_when_the_lease_is_renewed(world):
    """The writer that knew nothing of it meets the announcement before any item behind it can go to a shard."""
    writer = world.writer()
    assert place(world, writer)
    close_at(world, START + 12 * MINUTE)
    world.clock.now_ms = START + 12 * MINUTE - 1
    assert place(world, writer)
    world.clock.now_ms += 1
    assert not place(world, writer)
    assert place(world, writer, START + 12 * MINUTE - 1, tail=2)  # of before the close
    writer.write(new_message())
    assert world.table.calls[-1] == "put c"


def test_a_raise_behind_a_close_is_used(world):
    """A key that is hot again is spread again."""
    close_at(world, START + 1, kinds=("closing", "closed"))
    world.raise_to(4, START + 1)
    world.clock.now_ms = START + 1
    assert place(world, world.writer())


def test_a_stale_view_is_not_made_good_by_an_old_lease(world):
    """What the lease's read showed is kept with it, though the route's cache loses it."""
    close_at(world, START + MINUTE)
    writer = world.writer()
    writer.writer.routes._cache._max_entries = 1
    assert place(world, writer)
    writer.write(new_message(conversation_id="other"))
    world.registry.routes["c"] = Route(world.table.routes["c"].route.generations)
    world.table.lagging["c"] = JournalEntry(Route(world.table.routes["c"].route.generations))
    world.clock.now_ms = START + 2 * MINUTE
    assert not place(world, writer)


@pytest.mark.parametrize("skew_ms", [-9 * MINUTE, 0, 9 * MINUTE])
def test_a_wrong_local_clock_changes_nothing(world, skew_ms):
    """Times of leases are DynamoDB's: an item is placed by its own time and the `Date` that was seen."""
    world.table.date_ms = lambda: (world.clock.now_ms - skew_ms) // 1000 * 1000
    writer = world.writer()
    date_ms = world.table.date_ms()
    assert place(world, writer, date_ms + 10 * MINUTE - 1)
    assert not place(world, writer, date_ms + 10 * MINUTE)
    world.clock.now_ms += 1_000
    assert place(world, writer, date_ms + 10 * MINUTE)


def test_an_item_of_the_far_future_asks_no_more(world):
    """A clock that is wrong by an hour costs no read for each write."""
    writer = world.writer()
    for _ in range(50):
        assert not place(world, writer, world.clock.now_ms + 60 * MINUTE)
        world.clock.now_ms += 500
    assert looks(world) == 1


def test_without_a_date_there_is_no_lease(world):
    """The base key, however often the journal is asked."""
    world.table.date_ms = lambda: None
    writer = world.writer()
    for _ in range(3):
        assert not place(world, writer)
        world.clock.now_ms += 1_000
    world.table.date_ms = lambda: START
    assert place(world, writer)


@pytest.mark.parametrize(("back_ms", "is_ended"), [(MINUTE, False), (2 * MINUTE, True)])
def test_a_date_that_jumps_back_ends_all_leases(world, back_ms, is_ended):
    """By more than servers may differ: one of both clocks is wrong. The next read gives a lease again."""
    world.raise_to(8, START - 5_000, conversation_id="other")
    writer = world.writer()
    assert place(world, writer)
    world.table.date_ms = lambda: START - back_ms
    writer.write(new_message(conversation_id="other"))
    assert place(world, writer)
    assert looks(world) == 1 + is_ended


@pytest.mark.parametrize(("takes_ms", "pause_ms"), [(0, 100), (1_000, 10_000)])
def test_a_journal_that_cannot_be_read_gives_none(world, takes_ms, pause_ms):
    """The base key meanwhile, and no storm of reads: a slow one takes a tenth of the time."""
    writer = world.writer()
    assert place(world, writer)
    world.clock.now_ms += 11 * MINUTE

    def fail(call):
        if call == "get c":
            world.clock.now_ms += takes_ms
            raise StoreUnavailableError("away")

    world.table.on_call = fail
    for expected in (2, 2, 3):
        assert not place(world, writer)
        assert looks(world) == expected
        world.clock.now_ms += pause_ms - 1 if expected == 2 else pause_ms
    world.table.on_call = lambda _: None
    assert place(world, writer)


def test_a_look_that_may_be_behind_gives_none(world):
    """Leases are strongly consistent reads: whoever confirms a close relies on that."""
    writer = world.writer()
    assert place(world, writer)
    world.table.lagging["c"] = world.table.routes["c"]
    close_at(world, START + 12 * MINUTE)
    world.clock.now_ms = START + 12 * MINUTE
    assert not place(world, writer)
    assert looks(world) == 2


def test_no_write_waits_for_another_ones_look(world):
    """It takes the base key meanwhile."""
    writer = world.writer()
    assert place(world, writer)
    world.clock.now_ms += 11 * MINUTE
    others = []

    def write_meanwhile(call):
        if call == "get c":
            other = Thread(target=lambda: others.append(place(world, writer, tail=2)), daemon=True)
            other.start()
            other.join(timeout=60)

    world.table.on_call = write_meanwhile
    assert place(world, writer)
    assert others == [False]


def meet(world, writer, time_ms, date_ms):
    """Place an item that others may create as well, given what was just read; return whether on a shard."""
    confirmed = JournalEntry(world.table.routes["c"].route, date_ms=date_ms)
    return writer.writer.meet(build_key("c", message_id(time_ms, 1)), confirmed).partition_key != "c"


def test_who_must_meet_has_its_lease_from_what_it_has_just_read(world):
    """And later from the others', while it holds. It is passed on once: closing in band checks the key then."""
    writer, renewed = world.writer(), []
    writer.writer._leases.on_renewed = lambda key, entry: renewed.append((key.collection, entry.date_ms))
    assert meet(world, writer, START, START)
    assert meet(world, writer, START + 9 * MINUTE, None)
    assert looks(world) == 1
    at_ms = START + 11 * MINUTE
    for _ in range(3):
        assert meet(world, writer, at_ms, at_ms)
        assert not meet(world, writer, at_ms + 30 * MINUTE, at_ms + 2 * MINUTE)  # far ahead: no lease, and no check
    assert renewed == [("c", at_ms)]


def test_who_must_meet_obeys_announcements(world):
    writer, at_ms = world.writer(), START + 12 * MINUTE
    assert meet(world, writer, START, START)
    close_at(world, at_ms)
    assert not meet(world, writer, at_ms, START)
    assert [meet(world, writer, time_ms, at_ms) for time_ms in (at_ms - 1, at_ms)] == [True, False]


@pytest.mark.parametrize(
    ("ahead_ms", "date_ms"),
    [
        (11 * MINUTE - 1, START),
        (10 * MINUTE, START),
        (20 * MINUTE, None),
        (20 * MINUTE, START - 2 * MINUTE),  # behind what others had
    ],
)
def test_who_must_meet_agrees_with_those_who_read_up_to_a_margin_later(world, ahead_ms, date_ms):
    """Far ahead nobody has a lease; where another one may have it, the item is created later."""
    writer = world.writer()
    assert not meet(world, writer, START + 11 * MINUTE, START)
    with pytest.raises(RetryLaterError):
        meet(world, writer, START + ahead_ms, date_ms)


def test_without_leases_announcements_are_obeyed(world):
    """Whoever closes should not, but may not know."""
    close_at(world, START - 1_000, in_redis=True)
    assert place(world, world.writer(lease_seconds=0), START - 2_000)
    assert not place(world, world.writer(lease_seconds=0))


def test_a_write_that_lost_its_lease_gives_up_when_its_time_is_up(world):
    """No lease and a hot base key: it is refused within its budget, and never goes round in circles."""
    world.table.date_ms = lambda: None
    world.table.on_call = failing("put c", always=KEY_RANGE_THROTTLE)
    with pytest.raises(type(KEY_RANGE_THROTTLE)):
        world.writer().write(new_message())
    assert len([call for call in world.table.calls if call == "put c"]) < 20


def test_counters_need_none(world):
    """Their sum asks all shards that there ever were."""
    world.table.date_ms = lambda: None
    world.raise_to(4, 0, conversation_id="counter/likes")
    world.adder().add("counter/likes", 1, size_bytes=100)
    assert [call[:18] for call in world.table.calls if call.startswith("add")] == ["add counter/likes#"]
