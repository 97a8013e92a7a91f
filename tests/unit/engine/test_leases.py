"""Writers under leases: by DynamoDB's clock, in doubt the base key, one strong read each.

Most tests have one clock or one read that is wrong, late or missing, and say what a lease is worth then.
"""

from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from threading import Thread

import pytest

from hotpartition import engine
from hotpartition.core.errors import RetryLaterError, StoreUnavailableError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Route
from hotpartition.engine.leases import Leases
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.engine.writer import Writer
from hotpartition_messages.keys import build_key
from support.builders import World, message_id, new_message
from support.fakes import KEY_RANGE_THROTTLE

from .conftest import failing

START = 1_700_000_000_000
MINUTE = 60_000


class Raised(World):
    """A conversation that was raised a moment ago, and a writer with leases of ten minutes."""

    def __init__(self):
        super().__init__()
        self.raise_to(8, START - 5_000)
        self.subject = self.writer().writer

    def place(self, time_ms=None, *, after_ms=0, conversation_id="c"):
        """Place a message of a time, by default the present, which comes first; return whether it goes to a shard."""
        self.clock.now_ms += after_ms
        key = build_key(conversation_id, message_id(self.clock.now_ms if time_ms is None else time_ms, 1))
        return self.subject.place(key, size_bytes=100).partition_key != conversation_id

    def meet(self, time_ms, date_ms):
        """Place an item that others may create as well, given what was just read; return whether on a shard."""
        confirmed = JournalEntry(self.route, date_ms=date_ms)
        return self.subject.meet(build_key("c", message_id(time_ms, 1)), confirmed).partition_key != "c"

    @property
    def looks(self):
        return self.table.calls.count("get c")

    @property
    def route(self):
        return self.table.routes["c"].route

    def announce(self, at_ms):
        route = self.route.union(Route.decode([f"closing@{at_ms}"]))
        self.table.routes["c"] = JournalEntry(route, self.clock.now_ms)


@pytest.fixture
def world():
    return Raised()


def test_what_is_on_the_base_key_or_far_ahead_needs_none(world):
    """It was never raised, or is older than that; or a clock is wrong by an hour, which costs no read a write."""
    world.subject.place(build_key("quiet", message_id(START)), size_bytes=100)
    assert "get quiet" not in world.table.calls
    assert not world.place(START - 6_000)
    assert not any(world.place(world.clock.now_ms + 60 * MINUTE, after_ms=500) for _ in range(50))
    assert world.looks == 1


def test_announced_closes_are_obeyed_when_the_lease_is_renewed(world):
    """By a strong read: the writer meets the announcement before any item behind it can go to a shard."""
    assert world.place()
    world.table.lagging["c"] = world.table.routes["c"]
    world.announce(START + 12 * MINUTE)
    assert not world.place(after_ms=12 * MINUTE)
    assert world.place(START + 12 * MINUTE - 1)  # of before the close
    assert world.looks == 2


def test_a_stale_view_is_not_made_good_by_an_old_lease(world):
    """What the lease's read showed is kept with it, though the route's cache loses it."""
    world.announce(START + MINUTE)
    world.subject.routes._cache._max_entries = 1
    assert world.place()
    world.subject.place(build_key("other", message_id(START)), size_bytes=100)
    world.registry.routes["c"] = Route(world.route.generations)
    world.table.lagging["c"] = JournalEntry(Route(world.route.generations))
    assert not world.place(after_ms=2 * MINUTE)


@pytest.mark.parametrize("skew_ms", [-9 * MINUTE, 0, 9 * MINUTE])
def test_a_wrong_local_clock_changes_nothing(world, skew_ms):
    """Times of leases are DynamoDB's: an item is placed by its own time and the `Date` that was seen."""
    world.table.date_ms = lambda: (world.clock.now_ms - skew_ms) // 1000 * 1000
    ends_ms = world.table.date_ms() + 10 * MINUTE
    assert [world.place(ends_ms - 1), world.place(ends_ms), world.place(ends_ms, after_ms=1_000)] == [True, False, True]


def test_without_a_date_there_is_no_lease(world):
    """The base key, however often the journal is asked. Counters need none: their sum asks all shards."""
    world.table.date_ms = lambda: None
    assert not any(world.place(after_ms=1_000) for _ in range(3))
    world.raise_to(4, 0, conversation_id="counter/likes")
    world.adder().add("counter/likes", 1, size_bytes=100)
    assert world.table.calls[-1].startswith("add counter/likes#")
    world.table.date_ms = lambda: START
    assert world.place(after_ms=1_000)


@pytest.mark.parametrize(("back_ms", "is_ended"), [(MINUTE, False), (2 * MINUTE, True)])
def test_a_date_that_jumps_back_ends_all_leases(world, back_ms, is_ended):
    """By more than servers may differ: one of both clocks is wrong. The next read gives a lease again."""
    world.raise_to(8, START - 5_000, conversation_id="other")
    assert world.place()
    world.table.date_ms = lambda: START - back_ms
    world.subject.place(build_key("other", message_id(START)), size_bytes=100)
    assert world.place()
    assert world.looks == 1 + is_ended


@pytest.mark.parametrize(("takes_ms", "pause_ms"), [(0, 100), (1_000, 10_000)])
def test_a_journal_that_cannot_be_read_gives_none(world, takes_ms, pause_ms):
    """The base key meanwhile, and no storm of reads: a slow one takes a tenth of the time."""

    def fail(_):
        world.clock.now_ms += takes_ms
        raise StoreUnavailableError("away")

    assert world.place()
    world.table.on_call = fail
    for after_ms, looks in ((11 * MINUTE, 2), (pause_ms - 1, 2), (1, 3)):
        assert not world.place(after_ms=after_ms)
        assert world.looks == looks
    world.table.on_call = lambda _: None
    assert world.place(after_ms=pause_ms)


def test_no_write_waits_for_another_ones_look(world):
    """It takes the base key meanwhile."""
    assert world.place()
    others = []

    def place_meanwhile(_):
        other = Thread(target=lambda: others.append(world.place()), daemon=True)
        other.start()
        other.join(timeout=60)

    world.table.on_call = place_meanwhile
    assert world.place(after_ms=11 * MINUTE)
    assert others == [False]


def test_keys_are_looked_up_beside_each_other(world):
    """While one look is under way, hardly any other key has to take its base key."""
    others, placed = [f"c{number}" for number in range(20)], []
    for each in others:
        world.raise_to(8, START - 5_000, conversation_id=each)

    def place_meanwhile(words):
        if words == "get c":
            placed.extend(world.place(conversation_id=each) for each in others)

    assert all(world.place(conversation_id=each) for each in ["c", *others])
    world.table.on_call = place_meanwhile
    assert world.place(after_ms=11 * MINUTE)
    assert len(placed) == len(others)
    assert sum(placed) > len(others) / 2


def test_who_must_meet_has_its_lease_from_what_it_has_just_read(world):
    """And later from the others', while it holds. It is passed on once: closing in band checks the key then."""
    renewed, at_ms = [], START + 11 * MINUTE
    world.subject.leases.on_renewed = lambda key, entry: renewed.append((key.collection, entry.date_ms))
    assert world.meet(START, START)
    assert world.meet(START + 9 * MINUTE, None)
    assert world.looks == 1
    for _ in range(3):
        assert world.meet(at_ms, at_ms)
        assert not world.meet(at_ms + 30 * MINUTE, at_ms + 2 * MINUTE)  # far ahead: no lease, and no check
    assert renewed == [("c", at_ms)]


def test_who_must_meet_obeys_announcements(world):
    at_ms = START + 12 * MINUTE
    assert world.meet(START, START)
    world.announce(at_ms)
    assert not world.meet(at_ms, None)  # no lease is needed for the base key
    assert [world.meet(at_ms, START), world.meet(at_ms - 1, at_ms), world.meet(at_ms, at_ms)] == [False, True, False]


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
    assert not world.meet(START + 11 * MINUTE, START)
    with pytest.raises(RetryLaterError):
        world.meet(START + ahead_ms, date_ms)


def test_without_leases_announcements_are_obeyed(world):
    """Whoever closes should not, but may not know."""
    world.announce(START - 1_000)
    world.subject = world.writer(lease_seconds=0).writer
    world.registry.add("c", world.route.members)
    assert [world.place(START - 2_000), world.place()] == [True, False]


def test_a_write_that_lost_its_lease_gives_up_when_its_time_is_up(world):
    """No lease and a hot base key: it is refused within its budget, and never goes round in circles."""
    world.table.date_ms = lambda: None
    world.table.on_call = failing("put c", always=KEY_RANGE_THROTTLE)
    with pytest.raises(type(KEY_RANGE_THROTTLE)):
        world.writer().write(new_message())
    assert world.table.calls.count("put c") < 20


def test_what_a_process_keeps_of_keys_is_bounded(world, monkeypatch):
    """Its leases, and until when looks pause: those of the newest looks."""
    monkeypatch.setattr("hotpartition.engine.leases.MAX_ROUTES", 3)
    leases, names = world.subject.leases, [f"c{number}" for number in range(10)]
    for name in names:
        world.raise_to(8, START - 5_000, conversation_id=name)
        assert world.place(conversation_id=name)
    assert [*leases._held] == names[-3:]
    world.clock.now_ms += 11 * MINUTE
    for name in names:
        assert world.place(conversation_id=name)
    assert [*leases._held] == names[-3:]
    assert 0 < len(leases._pauses) <= 3


def test_each_process_keeps_its_own(world):
    """No lock, and nothing that is learned: what a class has as a default would be all processes'."""
    one, other = (world.writer().writer for _ in range(2))
    for mine, theirs in ((one, other), (one.leases, other.leases), (one.routes, other.routes)):
        kept = [each.name for each in fields(mine) if each.name.startswith("_") and getattr(mine, each.name) != 0]
        assert kept
        assert [name for name in kept if getattr(mine, name) is getattr(theirs, name)] == []


def test_what_a_process_keeps_of_keys_is_not_in_its_representation():
    """It ends up in logs, and would be worked out while other threads change what is kept."""
    modules = [import_module(f"{engine.__name__}.{each.name}") for each in iter_modules(engine.__path__)]
    parts = [each for module in modules for each in vars(module).values() if is_dataclass(each)]
    own = [part for part in parts if part.__module__.startswith(engine.__name__)]
    keeping = {part for part in own if any(not each.init for each in fields(part))}
    assert {Leases, RegistryRoutes, Writer} <= keeping
    assert [part for part in keeping if part.__repr__ is not object.__repr__] == []
