"""Edits, deletions and expiry: nothing deleted comes back, and no edit is lost or undone, wherever copies lie."""

import pytest

from hotpartition.core.errors import StoreUnavailableError, ThrottledError
from hotpartition.core.route import choose_shards
from hotpartition_messages.attributes import encode_attributes
from hotpartition_messages.changing import Edit, Target
from hotpartition_messages.errors import (
    MessageChangedError,
    MessageConflictError,
    MessageGoneError,
    MessageNotFoundError,
)
from hotpartition_messages.messages import MESSAGE_ATTRIBUTES, Message
from hotpartition_messages.reading import PageRequest
from support.builders import World, build_message, message_id, new_message, read_all
from support.fakes import KEY_RANGE_THROTTLE

NOW_MS = 1_700_000_000_000
ID = message_id(NOW_MS)
TARGET = Target(conversation_id="c", message_id=ID)


@pytest.fixture
def world():
    world = World()
    world.writer().write(new_message(message_id=ID))
    return world


def edited(world, body="edited", **target):
    return world.changer().edit(Target(conversation_id="c", message_id=ID, **target), Edit(body=body))


def read(world):
    return world.reader().read_message("c", ID, is_strong=True)


def page(world, **request):
    return [m.body for m in read_all(world.reader(), PageRequest("c", is_strong=True, **request))]


def before_first_change(world, act):
    """Do something just before stored items are changed for the first time."""
    left = [act]

    def on_call(call):
        if call.startswith("replace") and left:
            left.pop()()

    world.table.on_call = on_call


def lose(act):
    """Do something, and let the attempt have no response."""

    def attempt():
        act()
        raise StoreUnavailableError("no response")

    return attempt


def copies(world):
    return {pk: Message.from_item(item) for (pk, _), item in world.table.items.items()}


class TestEdit:
    def test_the_message_is_replaced_in_its_place(self, world):
        """The next version, with what is new; the rest stays."""
        before = read(world)
        after = world.changer().edit(TARGET, Edit(attributes=encode_attributes({"likes": 1})))
        assert read(world) == after
        assert (after.body, dict(after.attributes), after.sender) == ("hello", {"likes": 1}, before.sender)
        assert (before.version, before.edited_at) == (1, None)
        assert (after.version, after.edited_at) == (2, "2023-11-14T22:13:20.000Z")
        assert before.etag != after.etag
        assert len(world.table.items) == 1

    def test_a_repetition_changes_nothing(self, world):
        """Whoever did not hear that the edit was done repeats it, with the tag that it had."""
        tag = read(world).etag
        first = edited(world, if_match=frozenset({tag}))
        assert edited(world, if_match=frozenset({tag})) == first
        assert copies(world)["c"].version == 2

    def test_a_tag_of_another_state_is_refused(self, world):
        """Two who read the same message: the second does not overwrite what it has not seen."""
        tag = read(world).etag
        edited(world, "one", if_match=frozenset({tag}))
        with pytest.raises(MessageChangedError) as caught:
            edited(world, "two", if_match=frozenset({tag}))
        assert caught.value.etag == read(world).etag
        assert edited(world, "two", if_match=frozenset({tag, caught.value.etag})).version == 3

    def test_a_repetition_of_the_write_is_still_known(self, world):
        """By its first content: 200 for that, 409 for other content, also for that of the edit."""
        edited(world)
        edited(world, "edited again")
        written = world.writer().write(new_message(message_id=ID))
        assert (written.is_replay, written.message.body) == (True, "edited again")
        for body in ("edited", "edited again", "other"):
            with pytest.raises(MessageConflictError):
                world.writer().write(new_message(body, message_id=ID))

    def test_it_is_counted_and_reported(self, world):
        """As every write: an item that shrinks costs what it was."""
        world.writer().write(new_message("x" * 3000, message_id=message_id(NOW_MS, 2)))
        world.reports.sent.clear()
        target = Target(conversation_id="c", message_id=message_id(NOW_MS, 2))
        changer = world.changer()
        changer.edit(target, Edit(body="short"))
        (report,) = world.reports.sent
        assert (report.collection, report.value) == ("c", 4)


class TestDelete:
    def test_it_is_gone_from_everywhere(self, world):
        """410 for who asks for it, nothing on a page, and its content is nowhere."""
        world.writer().write(new_message("other", message_id=message_id(NOW_MS, 1)))
        world.changer().delete(TARGET)
        with pytest.raises(MessageGoneError):
            read(world)
        assert page(world) == ["other"]
        (tombstone,) = [item for item in world.table.items.values() if "deleted_at" in item]
        assert tombstone["deleted_at"] == {"S": "2023-11-14T22:13:20.000Z"}
        assert "ann" not in str(tombstone)
        assert "hello" not in str(tombstone)

    def test_it_cannot_be_written_edited_or_deleted_again(self, world):
        """A retry gets 410; a deletion that is repeated has happened."""
        world.changer().delete(TARGET)
        with pytest.raises(MessageGoneError):
            world.writer().write(new_message(message_id=ID))
        with pytest.raises(MessageGoneError):
            edited(world)
        stored = dict(world.table.items)
        world.changer().delete(TARGET)
        world.changer().delete(Target(conversation_id="c", message_id=ID, if_match=frozenset({'"1-x"'})))
        assert world.table.items == stored


class TestCopies:
    """A retry across a raise leaves two copies; a stale writer may add one at any time."""

    @pytest.fixture
    def two(self, world):
        world.raise_to(4, NOW_MS - 1000)
        world.writer().write(new_message(message_id=ID))
        assert len(world.table.items) == 2
        return world

    def test_an_edit_reaches_all_of_them_at_once(self, two):
        edited(two)
        assert [m.body for m in copies(two).values()] == ["edited", "edited"]
        assert page(two) == ["edited"]
        assert [call for call in two.table.calls if call.startswith("replace")] == [
            f"replace {','.join(copies(two))}",
        ]

    def test_a_late_copy_does_not_undo_an_edit(self, world):
        """The writer that was under way lands behind the edit; the higher version counts."""
        edited(world)
        world.raise_to(4, NOW_MS - 1000)
        assert not world.writer().write(new_message(message_id=ID)).is_replay
        assert read(world).body == "edited"
        assert page(world) == page(world, newest_first=False) == ["edited"]
        assert edited(world, "again").version == 3
        assert {m.version for m in copies(world).values()} == {3}

    def test_a_late_copy_does_not_bring_back_what_was_deleted(self, world):
        world.changer().delete(TARGET)
        world.raise_to(4, NOW_MS - 1000)
        world.writer().write(new_message(message_id=ID))
        assert len(world.table.items) == 2
        with pytest.raises(MessageGoneError):
            read(world)
        assert page(world) == page(world, newest_first=False) == []
        with pytest.raises(MessageGoneError):
            edited(world)
        world.changer().delete(TARGET)

    @pytest.mark.parametrize("choice", [1, 2])
    def test_a_late_copy_at_the_first_choice_hides_nothing(self, world, choice):
        """The message lies at a later choice alone, and point reads look at first choices first."""
        world.raise_to(4, NOW_MS - 1000)
        stored = dict(world.table.items.popitem()[1])
        shards = choose_shards(ID, 4)
        stored["pk"] = {"S": f"c#{shards[choice]}"}
        world.table.items[stored["pk"]["S"], stored["sk"]["S"]] = stored
        edited(world)
        assert {m.version for m in copies(world).values()} == {2}
        assert set(copies(world)) == {f"c#{shards[choice]}", f"c#{shards[0]}"}
        world.writer().write(new_message(message_id=ID))
        assert read(world).body == "edited"
        world.changer().delete(TARGET)
        with pytest.raises(MessageGoneError):
            world.writer().write(new_message(message_id=ID))
        with pytest.raises(MessageGoneError):
            read(world)
        assert page(world) == []

    def test_a_change_meanwhile_is_seen(self, two):
        """Two change the same message: the second looks again, and comes after the first."""
        before_first_change(two, lambda: edited(two, "first"))
        assert edited(two, "second").version == 3
        assert page(two) == ["second"]

    def test_a_deletion_meanwhile_is_final(self, two):
        """An edit that comes too late does not bring the message back."""
        before_first_change(two, lambda: two.changer().delete(TARGET))
        with pytest.raises(MessageGoneError):
            edited(two)
        assert page(two) == []

    def test_a_copy_that_comes_between_is_left(self, world):
        """It lies where the edit did not look; it is of version 1, so it does not count."""

        def write_elsewhere():
            world.raise_to(4, NOW_MS - 1000)
            world.writer().write(new_message(message_id=ID))

        before_first_change(world, write_elsewhere)
        edited(world)
        assert sorted(m.version for m in copies(world).values()) == [1, 2]
        assert page(world) == ["edited"]


class TestTrouble:
    @pytest.mark.parametrize("failures", [[KEY_RANGE_THROTTLE], [None, KEY_RANGE_THROTTLE]], ids=["read", "write"])
    def test_a_refusal_is_waited_for_in_its_place(self, world, failures):
        """A change can only go where its message lies, which is found again in the same way."""
        world.table.failures = [*failures, None]
        assert edited(world).version == 2
        assert world.telemetry.counts.get("WritesThrottled", 0) == len(failures) - 1

    def test_the_budget_ends(self, world):
        """503: the client repeats it."""
        world.table.on_call = lambda call: (
            world.table.failures.append(ThrottledError()) if call.startswith("replace") else None
        )
        with pytest.raises(ThrottledError):
            edited(world)

    @pytest.mark.parametrize("is_done", [True, False])
    def test_an_attempt_without_a_response_is_found_out(self, world, is_done):
        """Done or not, it is done once in the end."""
        before_first_change(world, lose(lambda: is_done and edited(world)))
        assert edited(world).version == 2
        assert copies(world)["c"].version == 2

    def test_an_attempt_without_a_response_is_not_done_over_anothers(self, world):
        """Ours may have come before the other's, so doing it again would undo that one: 503."""
        before_first_change(world, lose(lambda: edited(world, "another's")))
        with pytest.raises(StoreUnavailableError):
            edited(world)
        assert read(world).body == "another's"

    @pytest.mark.parametrize(
        "then",
        [
            lambda world: edited(world, "another's"),
            lambda world: world.changer().delete(TARGET),
            lambda world: world.table.items.clear(),
        ],
        ids=["edited", "deleted", "expired"],
    )
    def test_an_attempt_without_a_response_is_not_denied(self, world, then):
        """It was done, and another came after it: 503, not 412, 410 or 404, which say that nothing was done."""
        before_first_change(world, lose(lambda: (edited(world, "ours"), then(world))))
        with pytest.raises(StoreUnavailableError):
            edited(world, "ours", if_match=frozenset({read(world).etag}))


class TestExpiry:
    def test_what_has_expired_is_not_shown(self, world):
        """Also while DynamoDB has not removed it; to the second."""
        end_s = NOW_MS // 1000 + 60
        written = world.writer().write(new_message("brief", message_id=message_id(NOW_MS, 1), expires_at_s=end_s))
        target = Target(conversation_id="c", message_id=written.message.message_id)
        assert dict(world.table.items["c", written.message.sort_key])["expires_at"] == {"N": str(end_s)}
        world.clock.now_ms = end_s * 1000 - 1
        assert page(world) == ["brief", "hello"]
        world.clock.now_ms += 1
        assert page(world) == ["hello"]
        with pytest.raises(MessageNotFoundError):
            world.reader().read_message("c", target.message_id)
        for change in (lambda c: c.edit(target, Edit(body="x")), lambda c: c.delete(target)):
            with pytest.raises(MessageNotFoundError):
                change(world.changer())
        with pytest.raises(MessageGoneError):
            world.writer().write(new_message("brief", message_id=message_id(NOW_MS, 1), expires_at_s=end_s))

    def test_an_edit_keeps_the_expiry_and_a_tombstone_has_none(self, world):
        """All copies expire at once, and what was deleted stays deleted."""
        identity = message_id(NOW_MS, 1)
        end_s = NOW_MS // 1000 + 60
        world.writer().write(new_message("brief", message_id=identity, expires_at_s=end_s))
        target = Target(conversation_id="c", message_id=identity)
        assert world.changer().edit(target, Edit(body="x")).expires_at_s == end_s
        world.changer().delete(target)
        (tombstone,) = [item for item in world.table.items.values() if "deleted_at" in item]
        assert "expires_at" not in tombstone

    @pytest.mark.parametrize(("wanted_s", "expected_s"), [(None, 86_400), (60, 60), (100_000, 86_400)])
    def test_the_retention_counts_from_the_messages_time(self, world, wanted_s, expected_s):
        """So every retry has the same; whoever wants it shorter gets it."""
        written = world.writer(retention_days=1).write(
            new_message(
                message_id=message_id(NOW_MS, 1), expires_at_s=None if wanted_s is None else NOW_MS // 1000 + wanted_s
            )
        )
        assert written.message.expires_at_s == NOW_MS // 1000 + expected_s


def test_pages_are_full_whatever_is_hidden(world):
    """The limit counts what is shown; a cursor behind what is hidden goes on there."""
    for tail in range(1, 60):
        world.writer().write(new_message(str(tail), message_id=message_id(NOW_MS, tail)))
    for tail in range(5, 45):
        world.changer().delete(Target(conversation_id="c", message_id=message_id(NOW_MS, tail)))
    expected = [str(tail) for tail in (*range(59, 44, -1), 4, 3, 2, 1)] + ["hello"]
    assert page(world, limit=7) == page(world, limit=1) == expected
    assert page(world, limit=7, newest_first=False) == expected[::-1]
    sizes = []
    request = PageRequest("c", limit=7)
    while True:
        found = world.reader().read_page(request)
        sizes.append(len(found.messages))
        if found.next_cursor is None:
            break
        request = PageRequest("c", limit=7, cursor=found.next_cursor)
    assert sizes == [7, 7, 6]


def test_a_page_ends_early_behind_a_thousand_that_are_hidden(world):
    """So that a read is bounded; its cursor goes on behind them."""
    for tail in range(1, 2200):
        message = build_message(NOW_MS, tail)
        world.store(message.delete(deleted_at="2023-11-14T22:13:20.000Z"), "c")
    found = world.reader().read_page(PageRequest("c", limit=5))
    assert found.messages == ()
    assert found.next_cursor is not None
    assert page(world) == ["hello"]


def test_what_is_put_has_no_other_attributes():
    """What a change puts passes the condition of the function's role."""
    message = Message("c", ID, "ann", "hi", encode_attributes({"a": 1}).stored, expires_at_s=1)
    item = message.edit(body="x", stored_attributes=message.stored_attributes, edited_at="t").to_item("c")
    tombstone = message.delete(deleted_at="t").to_item("c")
    assert {*item, *tombstone} == set(MESSAGE_ATTRIBUTES)
    assert Message.from_item(item).to_item("c") == item
    assert Message.from_item(tombstone).to_item("c") == tombstone
