"""Eras: N(t) behind closes against a slow reference, what readers and writers obey, and what is stored.

Rules that hold for all routes are drawn; the edges of leases, closes and full routes are written out, one by one.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.closes import CloseTimes, Refusal, is_leased, may_confirm, plan_close
from hotpartition.core.errors import MalformedGenerationError
from hotpartition.core.route import (
    MAX_SETTLED_MEMBERS,
    Close,
    Generation,
    Route,
    candidate_keys,
    choose_placements,
    keys_of_hashed,
    needed_keys,
)
from hotpartition_messages.keys import KEY_FORM, build_key
from hotpartition_messages.message_ids import message_time_ms
from support.builders import message_id, route_of

TIMES = CloseTimes(lease_ms=600_000, margin_ms=60_000, pause_ms=3_600_000)
NOW = 1_700_000_000_000

times = st.integers(0, 40)
bounds = st.none() | times
generations = st.builds(Generation, since_ms=times, shard_count=st.integers(1, 8))
closes = st.builds(Close, at_ms=times, is_confirmed=st.booleans())
routes = st.builds(Route, st.frozensets(generations, max_size=6), st.frozensets(closes, max_size=4))
ids = st.builds(message_id, times, st.integers(0, (1 << 80) - 1))


def slow_count(route, position, *, obeys_announced=False):
    """The rule as it is written down: the largest n with c <= since <= t, c being the last close up to t."""
    begun = [0] + [c.at_ms for c in route.closes if (c.is_confirmed or obeys_announced) and c.at_ms <= position]
    return max((g.shard_count for g in route.generations if max(begun) <= g.since_ms <= position), default=0)


@given(routes, times)
def test_n_is_the_largest_of_its_era(route, position):
    """What readers obey, and the view of writers, which obey announcements as well."""
    assert route.shard_count_at(position) == slow_count(route, position)
    assert route.as_announced.shard_count_at(position) == slow_count(route, position, obeys_announced=True)
    assert route.shard_count_at(None) == slow_count(route, 100)


@given(routes, bounds, bounds)
def test_a_range_needs_the_largest_n_in_it(route, first, last):
    """Of every position in the range, both ends included; without positions there are no keys but the base key."""
    until = 100 if last is None else last
    counts = [slow_count(route, position) for position in range(first or 0, until + 1)]
    expected = max(counts, default=route.shard_count_at(until))
    assert route.most_shards_between(first, last) == expected
    keys = needed_keys(route, "c", last, KEY_FORM, from_position=first)
    assert keys == ("c", *(f"c#{shard}" for shard in range(expected)))
    assert keys_of_hashed(route, "c", None, last, KEY_FORM, from_position=first) == keys


@given(routes, st.frozensets(generations), st.frozensets(closes), ids, times)
def test_what_a_writer_places_lies_where_readers_look(known, more, unconfirmed, identifier, later):
    """The theorem of docs/architecture.md: a writer may know fewer generations, and obeys at least readers' closes."""
    writer = Route(known.generations, known.closes | unconfirmed).as_announced
    journal, time_ms = Route(known.generations | more, known.closes), message_time_ms(identifier)
    for placed in choose_placements(writer, build_key("c", identifier), KEY_FORM):
        for until in (time_ms, max(time_ms, later), None):
            assert placed.partition_key in needed_keys(journal, "c", until, KEY_FORM, from_position=time_ms)
        assert placed.partition_key in candidate_keys(journal, build_key("c", identifier), KEY_FORM)


@given(routes, routes)
def test_views_merge_by_union(one, other):
    """Order does not matter, nothing gets lost, and what is missing can be listed."""
    union = one.union(other)
    assert union == other.union(one) == Route.of(one.members | other.members)
    assert union.covers(one)
    assert union.covers(other)
    assert union.minus(one) == other.members - one.members
    assert bool(union) == bool(union.members)


@given(routes, routes)
def test_a_read_obeys_the_journals_closes_alone(hint, journal):
    """Generations of a hint are asked for as well; a close that only a hint has may be invented."""
    assert hint.checked_by(journal) == Route(hint.generations | journal.generations, journal.closes)


@given(routes)
def test_the_writers_view_keeps_all_it_came_from(route):
    """So a route that is known to be covered by it brings nothing new."""
    assert route.as_announced.covers(route)
    assert route.as_announced.as_announced == route.as_announced
    assert route.as_announced.generations == route.generations


@given(routes, generations, times)
def test_a_completed_raise_holds_from_its_beginning_on(route, added, later):
    """Behind every confirmed close, and for writers in the present era and behind a pending close; nothing is left."""
    raised = Route(route.generations | {added}, route.closes)
    completed = Route(raised.generations | raised.complete_raise([added]), route.closes)
    assert completed.shard_count_at(added.since_ms + later) >= added.shard_count
    present = max([0, *sorted({close.at_ms for close in route.closes})[-2:-1]])
    if added.since_ms + later >= present:
        assert completed.as_announced.shard_count_at(added.since_ms + later) >= added.shard_count
    assert completed.complete_raise([added]) == frozenset()


def test_a_raise_that_reaches_far_back_leaves_out_what_stayed_void():
    """It is added at confirmed closes, in the present era, and behind the pending close."""
    announced = frozenset(Close(at_ms, False) for at_ms in range(100, 10_000, 100))
    route = Route(frozenset({Generation(0, 4)}), announced | {Close(500, True)})
    added = {Generation(at_ms, 8) for at_ms in (500, 9_800, 9_900)}
    assert route.complete_raise([Generation(0, 8)]) == added


def test_a_raise_never_fills_a_route():
    """Of a full one the last two eras are completed; of one that is nearly so, the latest that there is room for."""
    closed = frozenset(Close(at_ms, True) for at_ms in range(100, 18_700, 100))
    route = Route(frozenset({Generation(0, 4)}), closed)
    assert len(route.members) == MAX_SETTLED_MEMBERS - 5
    missing = route.complete_raise([Generation(0, 8)])
    assert sorted(generation.since_ms for generation in missing) == [18_200, 18_300, 18_400, 18_500, 18_600]
    full = Route(route.generations | missing, closed)
    assert full.complete_raise([Generation(50, 16)]) == {Generation(18_500, 16), Generation(18_600, 16)}


def test_what_a_pending_close_would_undo_is_the_n_before_it():
    """Nothing, where no close comes, or N is as large behind it."""
    route = Route.decode(["4@5", "16@50", "closing@100"]).as_announced
    assert route.undone_after(60) == route.undone_after(99) == Generation(100, 16)
    assert route.undone_after(100) is None
    assert route.union(Route.decode(["20@99"])).undone_after(60) == Generation(100, 20)
    assert route.union(Route.decode(["8@100"])).undone_after(60) == Generation(100, 16)
    assert route.union(Route.decode(["16@100"])).undone_after(60) is None
    assert route_of((16, 50)).undone_after(60) is None


def test_the_members_of_a_route_are_a_storage_contract():
    """Stored journals hold these very texts; a version that knows no closes refuses them, so it does not go on."""
    stored = {"8@1699999999000", "closing@1700000000000", "closed@1700000000000"}
    closes = frozenset(Close(1_700_000_000_000, is_confirmed) for is_confirmed in (False, True))
    route = Route(frozenset({Generation(1_699_999_999_000, 8)}), closes)
    assert route.encode() == stored
    assert Route.decode(stored) == route
    for text in stored - {"8@1699999999000"}:
        with pytest.raises(MalformedGenerationError):
            Generation.decode(text)


class TestPlanning:
    """When a close may be announced, and when it may be confirmed."""

    def test_a_raised_route_is_closed_behind_every_lease(self):
        """Two margins behind the longest lease, since announcing takes time."""
        assert plan_close(route_of((4, NOW - 1)), NOW, TIMES) == Close(NOW + 1_000 + 600_000 + 120_000, False)

    @pytest.mark.parametrize(
        ("members", "date_ms", "refusal"),
        [
            (["4@5"], None, Refusal.NO_DATE),
            ([], NOW, Refusal.NOT_RAISED),
            (["4@5", "closed@6"], NOW, Refusal.NOT_RAISED),
            (["4@5", f"closing@{NOW + 1}"], NOW, Refusal.PENDING),
            (["4@5", f"closed@{NOW - 2_878_000}", f"4@{NOW - 1}"], NOW, Refusal.TOO_SOON),
            (["4@5", f"closing@{NOW - 2_878_000}"], NOW, Refusal.TOO_SOON),
            ([f"4@{since}" for since in range(192)], NOW, Refusal.FULL),
        ],
    )
    def test_it_is_refused(self, members, date_ms, refusal):
        assert plan_close(Route.decode(members), date_ms, TIMES) is refusal

    @pytest.mark.parametrize("step", ["closing", "closed"])
    def test_an_hour_after_a_close_there_may_be_another(self, step):
        """Also after one that stayed void: what fails each time must not fill the route."""
        hour_ago = Route.decode(["4@5", f"{step}@{NOW - 2_879_000}", f"4@{NOW - 1}"])
        assert isinstance(plan_close(hour_ago, NOW, TIMES), Close)

    def test_it_is_confirmed_only_if_announced_before_every_lease_that_matters(self):
        """At the edge: the `Date` is a whole second, rounded down."""
        close = Close(NOW, False)
        assert may_confirm(close, NOW - 661_000, TIMES)
        assert not may_confirm(close, NOW - 660_999, TIMES)
        assert not may_confirm(close, None, TIMES)

    def test_a_lease_is_for_items_of_times_before_its_end(self):
        """The item's own time counts, not when it is put."""
        assert is_leased(NOW + 599_999, NOW, 600_000)
        assert not is_leased(NOW + 600_000, NOW, 600_000)
        assert is_leased(5, NOW, 600_000)
