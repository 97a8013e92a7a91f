"""The history check for items that are changed and deleted: each kind of breach is found, and nothing else."""

import pytest

from tools.simulation.table_history import Attempt, ItemHistory, Read, Seen, TableHistory, check_table


def history_of(item, *reads, refusals=()):
    """A collection with the item `b`, and another one that is always there."""
    always = ItemHistory(creations=[Attempt(0.0, 1.0)])
    return TableHistory({"room": {"a": always, "b": item}}, list(reads), list(refusals))


def read(began_at, *items, only=None, is_strong=True, newest_first=False):
    seen = tuple(Seen(*item) if isinstance(item, tuple) else Seen(item, ()) for item in items)
    return Read("room", began_at, began_at + 0.5, seen, is_strong, newest_first=newest_first, only=only)


CREATED = {"creations": [Attempt(2.0, 3.0)]}
CHANGED = {**CREATED, "changes": {"t1": Attempt(4.0, 5.0), "t2": Attempt(4.0)}}
DELETED = {**CREATED, "deletions": [Attempt(6.0, 7.0)]}


@pytest.mark.parametrize(
    ("item", "seen"),
    [
        (CREATED, read(2.5, "a")),
        (CREATED, read(2.5, "a", "b")),
        (CREATED, read(4.0, "b", "a", newest_first=True)),
        (CREATED, read(4.0, "a", is_strong=False)),
        (CHANGED, read(4.0, "a", "b")),
        (CHANGED, read(4.0, "a", ("b", ("t1", "t2")))),
        (CHANGED, read(6.0, "a", ("b", ("t2", "t1")))),
        (CHANGED, read(6.0, ("b", ("t1",)), only="b")),
        (DELETED, read(6.5, "a")),
        (DELETED, read(5.8, "a")),
        (DELETED, read(6.5, "a", "b")),
        (DELETED, read(8.0, "a")),
        ({"creations": [Attempt(2.0)]}, read(9.0, "a")),
        ({"creations": [Attempt(2.0)]}, read(9.0, "a", "b")),
        ({**CREATED, "deletions": [Attempt(6.0)]}, read(9.0, "a")),
    ],
)
def test_what_may_be_is_no_breach(item, seen):
    """Whatever was under way may have happened or not; eventually consistent reads lag."""
    assert check_table(history_of(ItemHistory(**item), seen)) == ()


@pytest.mark.parametrize(
    ("item", "seen", "fault"),
    [
        (CREATED, read(4.0, "a"), "lost"),
        (CREATED, read(4.0, only="b"), "lost"),
        (DELETED, read(4.0, "a"), "lost"),
        (CREATED, read(4.0, "a", "b", "b"), "doubled"),
        (CREATED, read(4.0, "b", "a"), "out of order"),
        (CREATED, read(0.5, "a", "b"), "invented"),
        (CREATED, read(4.0, "a", "b", "c"), "invented"),
        (CREATED, read(4.0, "a", ("b", ("t9",))), "invented"),
        (DELETED, read(8.0, "a", "b"), "resurrected"),
        (CHANGED, read(6.0, "a", "b"), "update lost"),
        (CHANGED, read(6.0, "a", ("b", ("t2",))), "update lost"),
        (CHANGED, read(6.0, "a", ("b", ("t1", "t1"))), "update doubled"),
    ],
)
def test_each_breach_is_found(item, seen, fault):
    """And named once, however many reads show it."""
    (breach,) = check_table(history_of(ItemHistory(**item), seen, seen))
    assert (breach.fault, breach.collection) == (fault, "room")


def test_a_change_that_does_not_find_its_item_has_lost_it():
    """Unless somebody had begun to delete it."""
    refused = [("room", "b", 6.2, 6.4)]
    assert [b.fault for b in check_table(history_of(ItemHistory(**CREATED), refusals=refused))] == ["lost"]
    assert check_table(history_of(ItemHistory(**DELETED), refusals=refused)) == ()
