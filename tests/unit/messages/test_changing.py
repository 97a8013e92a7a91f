"""Edits, deletions and reads of what they leave, where a transcript would not show it."""

import pytest

from hotpartition_messages.changing import Edit, Target
from hotpartition_messages.messages import MESSAGE_ATTRIBUTES, Message
from hotpartition_messages.reading import PageRequest
from support.builders import World, build_message, message_id, new_message, read_all

NOW_MS = 1_700_000_000_000
ID = message_id(NOW_MS)


@pytest.fixture
def world():
    """One with a message."""
    world = World()
    world.writer().write(new_message("x" * 3000, message_id=ID))
    world.reports.sent.clear()
    return world


def change(world, *, body="short", tail=0, deletes=False):
    target = Target(conversation_id="c", message_id=message_id(NOW_MS, tail))
    return world.changer().delete(target) if deletes else world.changer().edit(target, Edit(body=body))


def test_a_change_is_one_transaction_and_counted_as_it_costs(world):
    """As every write: an item that shrinks costs what it was; in a transaction each of two copies costs twice."""
    change(world, body="y" * 3000)
    world.raise_to(4, NOW_MS - 1000)
    world.store(build_message(NOW_MS, body="x" * 3000), "c#1")
    change(world)
    assert [report.value for report in world.reports.sent] == [4, 16]
    assert [call for call in world.table.calls if call.startswith("replace")] == ["replace c", "replace c,c#1"]


def page(world, **request):
    return [message.body for message in read_all(world.reader(), PageRequest("c", is_strong=True, **request))]


def test_pages_are_full_whatever_is_hidden(world):
    """The limit counts what is shown; a cursor behind what is hidden goes on there."""
    change(world, body="0")
    for tail in range(1, 60):
        world.writer().write(new_message(str(tail), message_id=message_id(NOW_MS, tail)))
    for tail in range(5, 45):
        change(world, tail=tail, deletes=True)
    expected = [str(tail) for tail in (*range(59, 44, -1), 4, 3, 2, 1, 0)]
    assert page(world, limit=7) == page(world, limit=1) == expected
    assert page(world, limit=7, newest_first=False) == expected[::-1]
    first = world.reader().read_page(PageRequest("c", limit=7))
    second = world.reader().read_page(PageRequest("c", limit=7, cursor=first.next_cursor))
    assert (len(first.messages), len(second.messages)) == (7, 7)


def test_a_page_ends_early_behind_a_thousand_that_are_hidden(world):
    """So that a read is bounded; its cursor goes on behind them."""
    for tail in range(1, 2200):
        world.store(build_message(NOW_MS, tail).delete(deleted_at="2023-11-14T22:13:20.000Z"), "c")
    found = world.reader().read_page(PageRequest("c", limit=5))
    assert found.messages == ()
    assert found.next_cursor is not None
    assert page(world) == ["x" * 3000]


def test_what_is_put_has_no_other_attributes():
    """What a change puts passes the condition of the function's role."""
    message = Message("c", ID, "ann", "hi", {"M": {"a": {"N": "1"}}}, expires_at_s=1)
    item = message.edit(body="x", stored_attributes=message.stored_attributes, edited_at="t").to_item("c")
    tombstone = message.delete(deleted_at="t").to_item("c")
    assert {*item, *tombstone} == set(MESSAGE_ATTRIBUTES)
    assert [Message.from_item(stored).to_item("c") for stored in (item, tombstone)] == [item, tombstone]
