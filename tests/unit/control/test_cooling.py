"""Cooling: what is warm is marked, what is not is closed, and nothing is while load may be there that nobody sees.

It is long because nothing may be closed that became warm between mark and close: what can happen there is staged call
by call.
"""

from itertools import count

import pytest

from hotpartition.control.cooling import (
    BEGINNING,
    CHECKED_ITEMS,
    EVERYTHING,
    FIRST_CHECK_MS,
    MAX_CLOSES,
    CoolingLimits,
)
from hotpartition.core.closes import CloseTimes
from hotpartition.core.errors import MalformedGenerationError, RegistryUnavailableError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.reports import Report
from hotpartition.redis.cluster import closing_key
from support.builders import World, route_of
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS
from support.tables import TABLE_NAME

TTL_MS = 600_000
LIMITS = CoolingLimits(
    warm_wcu=400.0, close_after_ms=TTL_MS, times=CloseTimes(lease_ms=600_000, margin_ms=60_000, pause_ms=3_600_000)
)
ROUTE = route_of((4, START_MS - 3_600_000))
RUN_MS = FIRST_CHECK_MS + 5_000


def forget_cursor(world):
    world.registry.server.do("DEL", closing_key(TABLE_NAME))


def build_world(*raised):
    """A world in which a consumer has looked before, and nothing is written to the raised collections."""
    world = World()
    world.clock.now_ms = START_MS
    world.registry.keep_closing_cursor(BEGINNING)
    world.table.routes.update({c: JournalEntry(ROUTE, START_MS - 3_600_000) for c in raised})
    return world


@pytest.fixture
def world():
    return build_world("c")


def run(world, run_ms=RUN_MS, limits=LIMITS, at_ms=None):
    world.clock.now_ms = at_ms or world.clock.now_ms
    world.consumer(cooling=limits).run(run_ms)


def offer(world, wcu_per_second, *, seconds=5):
    """Reports of a load that ends now."""
    end = world.clock.now_ms // 250 + 1
    for slot in range(end - 4 * seconds, end):
        world.reports.send(Report("c", slot, "e", wcu_per_second / 4, slot * 250, 4))


def closed(world):
    return {c for c, entry in world.table.routes.items() if not entry.route.shard_count_at(None)}


def before(world, place, act):
    """Let something happen whenever the consumer makes a call of a name, before it is made."""

    def acting(call):
        return lambda *arguments: (act(), call(*arguments))[1]

    if hasattr(world.registry, place):
        setattr(world.registry, place, acting(getattr(world.registry, place)))
    elif place == "sleep":
        world.clock.on_sleep = act
    else:
        world.table.on_call = lambda name: act() if name == place else None


def raise_now(world):
    """Raise it; the list of routes lags behind."""
    listed = world.routing_items.page(None, 9)
    world.routing_items.page = lambda *_: listed
    world.table.routes["c"] = JournalEntry(ROUTE, START_MS + FIRST_CHECK_MS - 1_000)


def refuse_a_page(world):
    refusals = [KEY_RANGE_THROTTLE]
    page = world.routing_items.page

    def refuse(*asked):
        if refusals:
            raise refusals.pop()
        return page(*asked)

    world.routing_items.page = refuse


def warm_it_meanwhile(world):
    """Closes are made one a pass: its mark is looked at once more before each, the third look at a mark."""
    looks = count(1)
    before(world, "is_warm", lambda: next(looks) == 3 and world.registry.mark_warm("c", TTL_MS))


@pytest.mark.parametrize(
    ("prepare", "is_closed", "next_ms"),
    [
        (lambda world: None, True, 0),
        # Half of what makes hot keeps open; less does not, whatever its shards could take.
        (lambda world: offer(world, 390), True, 0),
        (lambda world: offer(world, 410), False, TTL_MS),
        # Its first seconds may not have marked it yet.
        (raise_now, False, TTL_MS),
        # Redis was emptied, or before an upgrade no mark was ever made: all are spared for a TTL.
        (forget_cursor, False, TTL_MS),
        # Also while the key is looked at: the cursor says so, once more before each close.
        (lambda world: before(world, "get c", lambda: forget_cursor(world)), False, TTL_MS),
        (warm_it_meanwhile, False, TTL_MS),
        # A stream cannot be read: its load is not known to be low.
        (lambda world: world.reports.away.add(0), False, 0),
        # The list of routes is refused: the next check asks for it again.
        (refuse_a_page, False, 0),
        # Whatever lies in Redis as a cursor, the next check begins anew.
        (lambda world: world.registry.keep_closing_cursor("foreign"), False, 0),
    ],
)
def test_what_has_cooled_is_closed_unless_load_may_be_there(world, prepare, is_closed, next_ms):
    """Announced and confirmed: new items go to the base key from then on; the route keeps its past."""
    prepare(world)
    run(world)
    assert closed(world) == ({"c"} if is_closed else set())
    before(world, "get c", lambda: None)
    world.reports.away.clear()
    for _ in range(2):  # A check may find only that it has to begin anew.
        run(world, at_ms=world.clock.now_ms + next_ms)
    assert closed(world) == {"c"}
    route = world.table.routes["c"].route
    assert route.shard_count_at(START_MS) == 4
    assert world.registry.routes["c"] == route


def test_a_mark_lasts_as_long_as_the_setting_says(world):
    """What was warm a moment less ago than that stays open; the next minute closes it."""
    offer(world, 1_000, seconds=3)
    run(world, 6_000)
    marked_until_ms = world.registry.warm_until_ms["c"]
    assert START_MS + TTL_MS <= marked_until_ms <= START_MS + TTL_MS + 6_000
    run(world, at_ms=marked_until_ms - FIRST_CHECK_MS - 1_000)
    assert closed(world) == set()
    run(world, at_ms=marked_until_ms)
    assert closed(world) == {"c"}


def refuse_to_spare_all(world, times):
    """Let Redis refuse the mark for all `times` times; return what is left of that."""
    mark, left = world.registry.mark_warm, [1] * times

    def refuse(collection, keep_ms):
        if collection == EVERYTHING and left:
            left.pop()
            raise RegistryUnavailableError("away")
        mark(collection, keep_ms)

    world.registry.mark_warm = refuse
    return left


@pytest.mark.parametrize("refusals", [0, 30])
@pytest.mark.parametrize("place", ["mark_warm", "closing_cursor", "is_warm", "page", "get c", "sleep"])
def test_a_consumer_that_stood_still_closes_nothing_for_one_ttl(world, place, refusals):
    """Its marks ended while the load went on; wherever between mark and close it stood for three TTLs, once.

    The mark for all is tried until Redis takes it.
    """
    stops, refused = [3 * TTL_MS], refuse_to_spare_all(world, refusals)

    def stop():
        world.clock.now_ms += stops.pop() if stops else 0

    before(world, place, stop)
    if place != "get c":  # where it looks whether it may close, so that there was no load before
        offer(world, 3_000)
        sleep = world.clock.on_sleep
        world.clock.on_sleep = lambda: (sleep(), offer(world, 3_000, seconds=1))
    run(world, RUN_MS + 3 * TTL_MS)
    assert (stops, refused, closed(world)) == ([], [], set())
    assert world.telemetry.counts.get("RegistryUnavailable", 0) == refusals
    assert world.registry.is_warm(EVERYTHING)
    world.clock.on_sleep = lambda: None
    run(world, at_ms=world.clock.now_ms + TTL_MS)
    assert closed(world) == {"c"}


def test_a_consumer_forgets_the_route_that_it_closed(world):
    """Otherwise it would judge by the old one for a minute, while the load comes back.

    There is hardly any until then.
    """
    limits = CoolingLimits(warm_wcu=400.0, close_after_ms=8_000, times=CloseTimes(lease_ms=20_000, margin_ms=1_000))
    offer(world, 600)

    def offer_again():
        wcu = 3_000 if world.table.routes["c"].route.closes else 10
        world.reports.send(Report("c", world.clock.now_ms // 250, "e", wcu / 4, world.clock.now_ms, 4))

    world.clock.on_sleep = offer_again
    run(world, 25_000, limits)
    (at_ms,) = {close.at_ms for close in world.table.routes["c"].route.closes}
    assert world.clock.now_ms < at_ms - 5_000
    assert world.table.routes["c"].route.shard_count_at(at_ms) == 4


def test_a_minute_has_so_many_closes_and_the_next_goes_on_there():
    """However many have cooled; those that are warm cost nothing of it."""
    names = [f"c{i:03}" for i in range(3 * CHECKED_ITEMS // 2)]
    world = build_world(*names)
    names = [item.collection for item in world.routing_items.page(None, len(names))[0]]
    for name in names[:CHECKED_ITEMS]:
        world.registry.mark_warm(name, 10**9)
    run(world)
    assert closed(world) == set()
    assert names[CHECKED_ITEMS - 1] in world.registry.closing_cursor()
    run(world)
    assert closed(world) == set(names[CHECKED_ITEMS : CHECKED_ITEMS + MAX_CLOSES])
    run(world)
    assert len(closed(world)) == 2 * MAX_CLOSES


UNREADABLE = MalformedGenerationError("'x' is no generation")


@pytest.mark.parametrize(
    ("error", "said", "more"),
    [
        (UNREADABLE, "routing item cannot be read", {"reason": "'x' is no generation"}),
        (KEY_RANGE_THROTTLE, "close failed, to be decided again", {}),
    ],
    ids=["malformed", "refused"],
)
def test_a_route_that_cannot_be_read_is_reported_and_not_closed(error, said, more):
    """The others go on."""
    world = build_world("c", "d")

    def refuse():
        raise error

    before(world, "get c", refuse)
    run(world, 2 * RUN_MS)
    assert closed(world) == {"d"}
    assert (said, {"collection": "c", **more}) in world.telemetry.events
