"""The history check: a right history passes, and every fault that is put into one is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.history import (
    FAULTS,
    Acknowledged,
    Added,
    Deleted,
    Edited,
    History,
    Page,
    Read,
    Seen,
    Unresolved,
    check_history,
    content_digest,
    find_breaches,
    join_pages,
)


def message_id(number: int) -> str:
    return f"{number:026d}"


def acknowledged(number: int, *, at: float = 0.0, conversation: str = "c") -> Acknowledged:
    return Acknowledged(
        conversation_id=conversation, message_id=message_id(number), digest=f"d{number}", acknowledged_at=at
    )


def seen(number: int) -> Seen:
    return Seen(message_id(number), f"d{number}")


def read(*numbers: int, order="oldest", consistency="strong", at: float = 10.0, complete: bool = True) -> Read:
    return Read(
        conversation_id="c",
        order=order,
        consistency=consistency,
        started_at=at,
        messages=tuple(seen(number) for number in numbers),
        complete=complete,
    )


def history(*records, clock_error: float = 0.0) -> History:
    """Build a history of records of all kinds."""

    def all_of(kind):
        return tuple(record for record in records if isinstance(record, kind))

    return History(
        acknowledged=all_of(Acknowledged),
        unresolved=all_of(Unresolved),
        reads=all_of(Read),
        edits=all_of(Edited),
        deletions=all_of(Deleted),
        additions=all_of(Added),
        clock_error=clock_error,
    )


def faults(given_history: History) -> dict[str, int]:
    verdict = check_history(given_history)
    return {name: getattr(verdict, name) for name in FAULTS if getattr(verdict, name)}


@st.composite
def right_histories(draw: st.DrawFn) -> History:
    """A history as a right system makes it: reads see all that was acknowledged before and some of the rest."""
    numbers = draw(st.lists(st.integers(0, 500), unique=True, min_size=2, max_size=25))
    writes = [acknowledged(number, at=float(draw(st.integers(0, 20)))) for number in numbers]
    maybe = draw(st.lists(st.integers(501, 520), unique=True, max_size=3))
    unresolved = [
        Unresolved(conversation_id="c", message_id=message_id(number), digest=f"d{number}") for number in maybe
    ]
    reads = [read(*sorted(numbers), at=30.0)]
    for _ in range(draw(st.integers(0, 4))):
        at = float(draw(st.integers(0, 25)))
        order = draw(st.sampled_from(["newest", "oldest"]))
        consistency = draw(st.sampled_from(["strong", "eventual"]))
        must = {int(write.message_id) for write in writes if write.acknowledged_at < at and consistency == "strong"}
        may = draw(st.sets(st.sampled_from([*numbers, *maybe])))
        held = sorted(must | may, reverse=order == "newest")
        length = draw(st.integers(0, len(held)))
        reads.append(read(*held[:length], order=order, consistency=consistency, at=at, complete=length == len(held)))
    return history(*writes, *unresolved, *reads)


@given(right_histories())
def test_a_right_history_passes(given_history):
    """What a right system does is never called a fault."""
    assert faults(given_history) == {}
    assert check_history(given_history).holds


def without(messages, at):
    return messages[:at] + messages[at + 1 :]


def doubled(messages, at):
    return (*messages, messages[at])


def swapped(messages, at):
    first, second = sorted((at, (at + 1) % len(messages)))
    return (
        *messages[:first],
        messages[second],
        *messages[first + 1 : second],
        messages[first],
        *messages[second + 1 :],
    )


def altered(messages, at):
    return (*messages[:at], Seen(messages[at].message_id, "other"), *messages[at + 1 :])


def invented(messages, at):
    return (*messages, seen(999))


@pytest.mark.parametrize(
    ("change", "fault", "at_most"),
    [
        (without, "missing", {"missing": 1}),
        (doubled, "duplicated", {"duplicated": 1, "out_of_order": 1}),
        (swapped, "out_of_order", {"out_of_order": 25}),
        (altered, "altered", {"altered": 1}),
        (invented, "phantom", {"phantom": 1}),
    ],
)
@given(right_histories(), st.data())
def test_each_fault_that_is_put_into_a_right_history_is_found(change, fault, at_most, given_history, data):
    """And no other one; a message that comes twice is out of order as well, wherever the second copy is not beside."""
    closing = given_history.reads[0]
    messages = change(closing.messages, data.draw(st.integers(0, len(closing.messages) - 1)))
    found = faults(replace(given_history, reads=(replace(closing, messages=messages), *given_history.reads[1:])))
    assert found.keys() <= at_most.keys()
    assert 1 <= found[fault] <= at_most[fault]


def test_an_eventual_read_does_not_double():
    """An eventually consistent read is judged on all but absence."""
    assert faults(history(acknowledged(1), read(1), read(1, 1, consistency="eventual"))) == {"duplicated": 1}


def test_a_message_of_another_conversation_is_a_phantom():
    """A message read under a conversation it was not written to was never offered there."""
    other = acknowledged(1, conversation="other")
    assert faults(history(other, read(1)))["phantom"] == 1


@pytest.mark.parametrize(
    ("bounded", "expected"),
    [
        (read(3, 2, order="newest", complete=False), {}),
        (read(3, 1, order="newest", complete=False), {"missing": 1}),
        (read(1, 2, order="oldest", complete=False), {}),
        (read(1, 3, order="oldest", complete=False), {"missing": 1}),
        (read(complete=False), {}),
    ],
)
def test_a_bounded_read_accounts_for_what_it_walked_over(bounded, expected):
    """A gap inside a bounded read is a loss, what lies beyond it is not."""
    writes = [acknowledged(number) for number in (1, 2, 3)]
    assert faults(history(*writes, bounded, read(1, 2, 3))) == expected


def test_a_message_that_no_strong_read_looked_for_proves_nothing():
    """Without a strong read after the acknowledgement the verdict does not hold."""
    assert faults(history(acknowledged(1), read(1, consistency="eventual"))) == {"unverified": 1}
    assert faults(history(acknowledged(1, at=20.0), read(1, at=10.0))) == {"unverified": 1}


def test_an_offer_without_an_id_excuses_one_unknown_message():
    """A write that timed out before its id was known may appear once, under any id."""
    unknown = Unresolved(conversation_id="c", message_id=None, digest="d7")
    twice = Read(
        conversation_id="c",
        order="oldest",
        consistency="strong",
        started_at=10.0,
        messages=(Seen(message_id(7), "d7"), Seen(message_id(8), "d7")),
        complete=True,
    )
    assert faults(history(unknown, read(7))) == {}
    assert faults(history(unknown, read())) == {}
    assert faults(history(unknown, twice)) == {"phantom": 1}


def page(*numbers: int, cursor: str | None, next_cursor: str | None, order="oldest") -> Page:
    return Page(
        conversation_id="c",
        order=order,
        consistency="strong",
        started_at=float(numbers[0]),
        messages=tuple(seen(number) for number in numbers),
        cursor=cursor,
        next_cursor=next_cursor,
    )


def test_pages_are_joined_along_their_cursors():
    """The read began with its first page and is complete if its last page has no cursor."""
    one = page(1, 2, cursor=None, next_cursor="x")
    two = page(3, cursor="x", next_cursor=None)
    assert join_pages([one, two]) == read(1, 2, 3, at=1.0)
    assert join_pages([one]) == read(1, 2, at=1.0, complete=False)


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ([], "at least one"),
        ([page(3, cursor="x", next_cursor=None)], "without a cursor"),
        ([page(1, cursor=None, next_cursor="y"), page(2, cursor="x", next_cursor=None)], "the one before it"),
        ([page(1, cursor=None, next_cursor=None), page(2, cursor=None, next_cursor=None)], "the one before it"),
        (
            [page(1, cursor=None, next_cursor="x"), page(2, cursor="x", next_cursor=None, order="newest")],
            "different reads",
        ),
    ],
)
def test_pages_that_do_not_belong_together_are_refused(pages, words):
    """A wrong joining would hide faults, so it is an error."""
    with pytest.raises(ValueError, match=words):
        join_pages(pages)


def test_the_digest_tells_contents_apart():
    """Every part of the content is in the digest, and the order of attributes is not."""
    digest = content_digest("c", "s", "b", {"x": 1, "y": 2})
    assert digest == content_digest("c", "s", "b", {"y": 2, "x": 1})
    others = [("d", "s", "b", {}), ("c", "t", "b", {}), ("c", "s", "x", {}), ("c", "s", "b", {"x": 2})]
    assert len({digest, *(content_digest(*other) for other in others)}) == 5
    assert content_digest("c", "s", "b") == content_digest("c", "s", "b", {})


def changed(*changes, reads, expires_at=None, clock_error=0.0, offered_at=0.0):
    """The faults of one message, acknowledged at 1, with what was done to it and how it was read."""
    one = replace(acknowledged(1, at=1.0), expires_at=expires_at, offered_at=offered_at)
    return faults(history(one, *changes, *reads, clock_error=clock_error))


def edited(digest: str, began: float, ended: float | None) -> Edited:
    return Edited(conversation_id="c", message_id=message_id(1), digest=digest, started_at=began, ended_at=ended)


def deleted(began: float, ended: float | None) -> Deleted:
    return Deleted(conversation_id="c", message_id=message_id(1), started_at=began, ended_at=ended)


def read_as(digest: str | None, at: float, **others) -> Read:
    """A read at a time that found the message with this content, or did not find it."""
    messages = () if digest is None else (Seen(message_id(1), digest),)
    return replace(read(at=at), messages=messages, ended_at=at + 0.5, **others)


class TestChanges:
    def test_an_edit_that_was_acknowledged_is_read(self):
        """Neither the first content nor an edit before it, once the later one was acknowledged."""
        one, two = edited("one", 2.0, 3.0), edited("two", 4.0, 5.0)
        assert changed(one, two, reads=[read_as("d1", 1.5), read_as("one", 3.5), read_as("two", 6.0)]) == {}
        assert changed(one, two, reads=[read_as("d1", 3.5)]) == {"undone": 1}
        assert changed(one, two, reads=[read_as("one", 6.0)]) == {"undone": 1}

    def test_while_an_edit_is_under_way_either_is_right(self):
        """Also of two that overlap, and whichever was answered first."""
        one, two = edited("one", 2.0, 5.0), edited("two", 3.0, 4.0)
        for digest in ("one", "two"):
            assert changed(one, two, reads=[read_as(digest, 6.0)]) == {}
        assert changed(one, reads=[read_as("d1", 2.5), read_as("d1", 4.9)]) == {}

    def test_an_edit_whose_outcome_nobody_knows_may_come_at_any_time(self):
        """Or never."""
        for digest in ("late", "two"):
            assert changed(edited("late", 2.0, None), edited("two", 3.0, 4.0), reads=[read_as(digest, 9.0)]) == {}

    def test_what_was_deleted_stays_away(self):
        """Once the deletion was acknowledged; while it is under way, either is right."""
        done = deleted(2.0, 4.0)
        assert (
            changed(done, reads=[read_as("d1", 1.2), read_as(None, 3.0), read_as("d1", 3.5), read_as(None, 5.0)]) == {}
        )
        assert changed(done, reads=[read_as("d1", 5.0)]) == {"resurrected": 1}
        assert changed(done, reads=[read_as(None, 1.2), read_as(None, 5.0)]) == {"missing": 1}
        assert changed(deleted(2.0, None), reads=[read_as("d1", 9.0), read_as(None, 9.5)]) == {}

    def test_what_has_expired_is_gone(self):
        """To within what the clocks are off."""
        assert changed(expires_at=5.0, reads=[read_as("d1", 4.0), read_as(None, 5.0)]) == {}
        assert changed(expires_at=5.0, reads=[read_as("d1", 6.0)]) == {"resurrected": 1}
        assert changed(expires_at=5.0, reads=[read_as(None, 4.0)]) == {"missing": 1}
        around = [read_as("d1", 6.0), read_as(None, 4.0)]
        assert changed(expires_at=5.0, clock_error=2.0, reads=around) == {}

    def test_what_was_gathered_over_time_says_nothing_of_changes(self):
        """A poller has what it saw first."""
        reads = [read_as("d1", 9.0, is_gathered=True), read_as(None, 9.0)]
        assert changed(edited("one", 2.0, 3.0), deleted(4.0, 5.0), reads=reads) == {}


def added(token: str, began: float, ended: float | None, amount: int = 0) -> Added:
    return Added(
        conversation_id="c", message_id=message_id(1), token=token, amount=amount, started_at=began, ended_at=ended
    )


def read_with(content: tuple[str, ...] | int, at: float, **others) -> Read:
    """A read at a time that found the message with these tokens, or this sum."""
    return replace(read_as("d1", at), messages=(Seen(message_id(1), "d1", content),), **others)


class TestAdditions:
    @pytest.mark.parametrize("tokens", [(), ("one",), ("two",), ("two", "one")])
    def test_what_is_under_way_may_be_there(self, tokens):
        """In any order, and whatever became of it."""
        assert changed(added("one", 2.0, 9.0), added("two", 3.0, None), reads=[read_with(tokens, 4.0)]) == {}

    @pytest.mark.parametrize(
        ("tokens", "at", "expected"),
        [
            (("two",), 6.0, {"undone": 1}),
            (("one", "one"), 6.0, {"duplicated": 1}),
            (("one", "other"), 6.0, {"phantom": 1}),
            (("one",), 1.0, {"phantom": 1}),
        ],
    )
    def test_each_token_is_there_once_it_was_acknowledged(self, tokens, at, expected):
        """And never twice, and not before somebody added it."""
        additions = added("one", 2.0, 5.0), added("two", 3.0, None)
        assert changed(*additions, reads=[read_with(tokens, at), read_with(("one",), 9.0)]) == expected

    def test_eventual_reads_may_lack_tokens(self):
        """But show none twice."""
        one = added("one", 2.0, 3.0)
        reads = [read_with(tokens, 6.0, consistency="eventual") for tokens in ((), ("one", "one"))]
        assert changed(one, reads=[*reads[:1], read_as("d1", 1.5)]) == {}
        assert changed(one, reads=[*reads, read_as("d1", 1.5)]) == {"duplicated": 1}

    def sums(self, value: int, at: float = 3.0) -> dict[str, int]:
        """The faults of a read of a sum at a time, with amounts that were acknowledged, under way, and not tried."""
        amounts = added("a", 1.0, 2.0, 5), added("b", 3.2, None, -3), added("c", 9.0, None, 7)
        return changed(*amounts, reads=[read_with(value, at)])

    @pytest.mark.parametrize("value", [5, 2])
    def test_a_sum_may_have_what_is_under_way(self, value):
        """Or lack it."""
        assert self.sums(value) == {}

    @pytest.mark.parametrize("value", [0, 10, 12, 6, 1])
    def test_a_sum_that_cannot_be_is_found(self, value):
        """Lost, doubled, or there before anybody tried."""
        assert self.sums(value) == {"altered": 1}

    @pytest.mark.parametrize("value", [0, 5])
    def test_what_is_acknowledged_meanwhile_may_be_in_a_sum(self, value):
        """It began before the read ended."""
        assert self.sums(value, at=1.5) == {}


class TestParts:
    def test_a_lookup_is_a_read_of_one_message(self):
        """What others there are does not count; what it found besides is invented."""
        writes = [acknowledged(number) for number in (1, 2)]
        covers = message_id(1).__eq__
        everything = read(1, 2, at=20.0)
        assert faults(history(*writes, everything, replace(read(1), covers=covers))) == {}
        assert faults(history(*writes, everything, replace(read(), covers=covers))) == {"missing": 1}
        assert faults(history(*writes, everything, replace(read(1, 2), covers=covers))) == {"phantom": 1}

    def test_it_verifies_what_it_covers(self):
        """And nothing else."""
        writes = [acknowledged(number) for number in (1, 2)]
        assert faults(history(*writes, replace(read(1), covers=message_id(1).__eq__))) == {"unverified": 1}

    def test_what_is_there_before_it_was_offered_is_invented(self):
        """Up to the end of the read."""
        assert changed(reads=[read_as("d1", 1.6)], offered_at=2.0) == {}
        assert changed(reads=[read_as("d1", 1.4), read_as("d1", 3.0)], offered_at=2.0) == {"phantom": 1}


def test_every_breach_is_listed_once():
    """However many reads show it; a verdict counts them, and names some."""
    given_history = history(*map(acknowledged, range(9)), read(at=11.0), read(at=12.0))
    assert len(find_breaches(given_history)) == check_history(given_history).missing == 9
    examples = check_history(given_history).examples
    assert len(examples) == 5
    assert "absent from a complete strong read" in examples[0].detail


BOUND = 5.0


@st.composite
def served_late(draw: st.DrawFn) -> tuple[tuple[Acknowledged | Edited | Deleted, ...], Read, float]:
    """A page as a cache serves it: the newest messages as they were at some instant, which is told as well."""
    numbers = draw(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=12))
    moments = st.floats(1.0, 20.0)
    records: list[Acknowledged | Edited | Deleted] = []
    state: dict[int, str] = {}
    instant, limit = draw(moments), draw(st.integers(1, 12))
    for number in numbers:
        written = draw(moments)
        records.append(acknowledged(number, at=written))
        if written <= instant:
            state[number] = f"d{number}"
        changed_at = written + draw(st.floats(0.0, 9.0))
        match draw(st.sampled_from(["left", "edited", "deleted"])):
            case "edited":
                records.append(replace(edited("edited", written, changed_at), message_id=message_id(number)))
                if changed_at <= instant:
                    state[number] = "edited"
            case "deleted":
                records.append(replace(deleted(written, changed_at), message_id=message_id(number)))
                if changed_at <= instant:
                    del state[number]
    shown = sorted(state, reverse=True)[:limit]
    page = replace(
        read(order="newest", consistency="eventual", at=instant, complete=len(shown) == len(state)),
        messages=tuple(Seen(message_id(number), state[number]) for number in shown),
        bound_seconds=BOUND,
    )
    return tuple(records), page, instant


def staleness(records: tuple[Acknowledged | Edited | Deleted, ...], page: Read) -> set[str]:
    """List what is called late of a page, and no other fault than that nobody looked for the messages."""
    verdict = check_history(history(*records, page))
    assert {name for name in FAULTS if getattr(verdict, name)} <= {"stale", "unverified"}
    return {finding.message_id for finding in verdict.examples if finding.fault == "stale"}


class TestStaleness:
    @given(served_late(), st.floats(0.0, BOUND))
    def test_a_page_within_its_bound_is_right(self, served, age):
        """Whatever was written, edited or deleted since."""
        records, page, instant = served
        assert staleness(records, replace(page, started_at=instant + age, ended_at=99.0)) == set()

    @pytest.mark.parametrize(
        ("change", "late"),
        [
            (lambda at: acknowledged(3, at=at), 3),
            (lambda at: edited("new", 0.5, at), 1),
            (lambda at: deleted(0.5, at), 1),
        ],
        ids=["written", "edited", "deleted"],
    )
    def test_what_was_acknowledged_a_bound_ago_shows(self, change, late):
        """Up to the bound it may not; nor in an eventual read that promises nothing."""
        page = replace(read(2, 1, order="newest", consistency="eventual", at=10.0), bound_seconds=BOUND)
        writes = [acknowledged(number) for number in (1, 2)]
        assert staleness((*writes, change(4.9)), page) == {message_id(late)}
        assert staleness((*writes, change(5.1)), page) == set()
        assert staleness((*writes, change(4.9)), replace(page, bound_seconds=None)) == set()

    def test_expiry_knows_no_bound(self):
        """It is applied when a page is served."""
        page = replace(read_as("d1", 9.0), consistency="eventual", bound_seconds=BOUND)
        assert changed(expires_at=8.0, reads=[page, read_as("d1", 7.5)]) == {"resurrected": 1}

    def test_a_page_invented_or_altered_is_no_older_page(self):
        """None of its messages may be one that never was."""
        page = replace(read(7, order="newest", consistency="eventual"), bound_seconds=BOUND)
        assert faults(history(acknowledged(1, at=9.0), read(1, at=20.0), page)) == {"phantom": 1}
