"""The keys that refused of late: tried last, for a while, and no more of them than fit."""

from hotpartition.core.refusals import RecentRefusals
from hotpartition.core.route import Placement

PLACEMENTS = tuple(Placement(f"c#{index}", 8) for index in (5, 1, 2))


def test_what_refused_comes_last_until_it_is_forgotten():
    """Several keep their order."""
    refusals = RecentRefusals(ttl_ms=1_000)
    refusals.add("c#5", 0)
    assert refusals.order(PLACEMENTS, 999) == [PLACEMENTS[1], PLACEMENTS[2], PLACEMENTS[0]]
    refusals.add("c#1", 500)
    assert refusals.order(PLACEMENTS, 999) == [PLACEMENTS[2], PLACEMENTS[0], PLACEMENTS[1]]
    assert refusals.order(PLACEMENTS, 1_000) == [PLACEMENTS[0], PLACEMENTS[2], PLACEMENTS[1]]
    assert refusals.order(PLACEMENTS, 1_500) == list(PLACEMENTS)


def test_the_oldest_is_forgotten_first():
    """Memory does not grow with the number of keys."""
    refusals = RecentRefusals(max_keys=2)
    for key in ("c#5", "c#1", "c#5", "c#2"):
        refusals.add(key, 0)
    assert refusals.order(PLACEMENTS, 0) == [PLACEMENTS[1], PLACEMENTS[0], PLACEMENTS[2]]
