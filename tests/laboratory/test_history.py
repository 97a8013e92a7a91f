"""The history check: a right history passes, and every fault that is put into one is found."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from tools.history import (
    Change,
    History,
    Offered,
    Read,
    Seen,
    check_history,
    content_digest,
    find_breaches,
)


def message_id(number):
    return f"{number:026d}"


def wrote(number=1, at=1.0, **more):
    return "c", number, Offered(digest=f"d{number}", acknowledged_at=at, **more)


def offered(number, *, conversation="c"):
    """A write whose outcome is unknown; without a number, its id is unknown as well."""
    return conversation, number, Offered(digest=f"d{number or 7}")


def changed(began, ended, **more):
    return Change(started_at=began, ended_at=ended, **more)


def deleted(began, ended):
    return changed(began, ended)


def edited(digest, began, ended):
    return changed(began, ended, digest=digest)


def added(token, began, ended, amount=0):
    return changed(began, ended, token=token, amount=amount)


def seen(number=1, digest=None, added=()):
    return Seen(message_id(number), digest or f"d{number}", added)


def read(*shown, at=10.0, **more):
    """A strong read of the whole conversation, from its oldest message on, which takes half a second."""
    messages = tuple(each if isinstance(each, Seen) else seen(each) for each in shown)
    return Read(**{"conversation_id": "c", "started_at": at, "ended_at": at + 0.5, "messages": messages, **more})


def saw(digest, at, **more):
    """A read that found message 1 with this content, or with None did not find it."""
    return read(*([] if digest is None else [seen(1, digest)]), at=at, **more)


def history(*records, clock_error=0.0):
    """Build a history of records of all kinds; all changes are of message 1."""
    built = History(clock_error=clock_error)
    changes = [record for record in records if isinstance(record, Change)]
    built.reads += [record for record in records if isinstance(record, Read)]
    for conversation, number, offer in (record for record in records if isinstance(record, tuple)):
        if number is None:
            built.nameless[conversation, offer.digest] += 1
        else:
            own = replace(offer, changes=changes if number == 1 else [])
            built.offers.setdefault(conversation, {})[message_id(number)] = own
    return built


def faults(given_history):
    verdict = check_history(given_history)
    found = {name: count for name, count in verdict.found.items() if count}
    assert verdict.holds is (found == {})
    return found


THREE = [wrote(1), wrote(2), wrote(3), read(1, 2, 3)]
NEWEST, OLDEST = ({"newest_first": newest_first, "complete": False} for newest_first in (True, False))
EVENTUAL = {"is_strong": False}
ONE, TWO = edited("one", 2.0, 3.0), edited("two", 4.0, 5.0)
OVERLAPPING = [edited("one", 2.0, 5.0), edited("two", 3.0, 4.0)]
FOR_ONE = {"covers": message_id(1).__eq__}
LOG = [added("one", 2.0, 5.0), added("two", 3.0, inf), read(seen(added=("one",)), at=9.0)]
SUM = [added("a", 1.0, 2.0, 5), added("b", 3.2, inf, -3), added("c", 9.0, inf, 7)]
PAGE = read(2, 1, newest_first=True, bound_seconds=5.0, **EVENTUAL)
BOTH = [wrote(1), wrote(2), read(1, 2, at=3.0)]


def log(*tokens, at=6.0, **more):
    return read(seen(added=tokens), at=at, **more)


def total(value, at=3.0):
    return read(seen(added=value), at=at)


READS = [
    # A complete read shows all that was acknowledged before it began, once, in order, as it was written.
    (THREE, ""),
    ([*THREE, read(3, 2, 1, newest_first=True)], ""),
    ([*THREE, wrote(4, at=10.0), offered(5), read(1, 2, 3), read(1, 2, 3, 4, 5), read(1, 2, 3, 4, at=11.0)], ""),
    ([*THREE, read(1, 3)], "missing"),
    ([*THREE, read(1, 3, ended_at=inf, is_gathered=True)], "missing"),  # a poll has no end; what never expires is due
    ([*THREE, read(1, 2, 3, 3)], "duplicated"),
    ([*THREE, read(1, 3, 2)], "out_of_order"),
    ([*THREE, read(2, 3, 1, newest_first=True)], "out_of_order"),
    ([*THREE, read(1, seen(2, "d"), 3)], "altered"),
    ([*THREE, read(1, 2, 3, 4)], "phantom"),
    # Absence is no fault of an eventual read; all else is.
    ([wrote(), read(1), read(**EVENTUAL)], ""),
    ([wrote(), read(1), read(1, 1, **EVENTUAL)], "duplicated"),
    # A message was offered to one conversation.
    ([offered(1, conversation="other"), read(1)], "phantom"),
    # A gap inside a bounded read is a loss, and what lies beyond it is not.
    ([*THREE, read(3, 2, **NEWEST)], ""),
    ([*THREE, read(3, 1, **NEWEST)], "missing"),
    ([*THREE, read(1, 2, **OLDEST)], ""),
    ([*THREE, read(1, 3, **OLDEST)], "missing"),
    ([*THREE, read(**NEWEST)], ""),
    ([*THREE, read(**OLDEST)], ""),
    # A message that no later strong read looked for proves nothing.
    ([wrote(), read(1, **EVENTUAL)], "unverified"),
    ([wrote(at=20.0), read(1)], "unverified"),
    # A write that timed out before its id was known may appear once, under any id.
    ([offered(None), read(7)], ""),
    ([offered(None), read()], ""),
    ([offered(None), read(7, seen(8, "d7"))], "phantom"),
    # A look-up is a read of one message. What it found besides is invented, and it verifies nothing else.
    ([wrote(1), wrote(2), read(1, 2), read(1, **FOR_ONE)], ""),
    ([wrote(1), wrote(2), read(1, 2), read(**FOR_ONE)], "missing"),
    ([wrote(1), wrote(2), read(1, 2), read(1, 2, **FOR_ONE)], "phantom"),
    ([wrote(1), wrote(2), read(1, **FOR_ONE)], "unverified"),
    # What is there before it was offered is invented, up to the end of the read.
    ([wrote(offered_at=2.0), read(1, at=1.6)], ""),
    ([wrote(offered_at=2.0), read(1, at=1.4), read(1, at=3.0)], "phantom"),
]
CHANGES = [
    # Once an edit was acknowledged, neither the first content nor an edit before it is read.
    ([ONE, TWO, saw("d1", 1.5), saw("one", 3.5), saw("two", 6.0)], ""),
    ([ONE, saw("one", 3.5)], ""),
    ([ONE, TWO, saw("d1", 3.5)], "undone"),
    ([ONE, TWO, saw("one", 6.0)], "undone"),
    # While it is under way either is right; of two that overlap, whichever was answered first.
    ([edited("one", 2.0, 5.0), saw("d1", 2.5), saw("d1", 4.9)], ""),
    ([*OVERLAPPING, saw("one", 6.0)], ""),
    ([*OVERLAPPING, saw("two", 6.0)], ""),
    # An edit whose outcome is unknown may come at any time, or never.
    ([edited("late", 2.0, inf), edited("two", 3.0, 4.0), saw("late", 9.0)], ""),
    ([edited("late", 2.0, inf), edited("two", 3.0, 4.0), saw("two", 9.0)], ""),
    # What was deleted stays away; while the deletion is under way, either is right.
    ([deleted(2.0, 4.0), saw("d1", 1.2), saw(None, 3.0), saw("d1", 3.5), saw(None, 5.0)], ""),
    ([deleted(2.0, 4.0), saw("d1", 5.0)], "resurrected"),
    ([deleted(2.0, 4.0), saw(None, 1.2), saw(None, 5.0)], "missing"),
    ([deleted(2.0, inf), saw("d1", 9.0), saw(None, 9.5)], ""),
    # What was gathered over time, as a poller does, says nothing of changes.
    ([ONE, deleted(4.0, 5.0), saw("d1", 9.0, is_gathered=True), saw(None, 9.0)], ""),
    # A log shows each token once it was acknowledged, in any order, and never twice.
    *(([*LOG, log(*tokens, at=4.0)], "") for tokens in [(), ("one",), ("two",), ("two", "one")]),
    ([*LOG, log("two")], "undone"),
    ([*LOG, log("one", "one")], "duplicated"),
    ([*LOG, log("one", "other")], "phantom"),
    ([*LOG, log("one", at=1.0)], "phantom"),
    ([*LOG, log(**EVENTUAL)], ""),
    ([*LOG, log("one", "one", **EVENTUAL)], "duplicated"),
    # A sum has what was acknowledged, and may have what is under way or begins before the read ends.
    *(([*SUM, total(value)], "") for value in (5, 2)),
    *(([*SUM, total(value)], "altered") for value in (0, 10, 12, 6, 1)),
    *(([*SUM, total(value, at=1.5)], "") for value in (0, 5)),
]
EXPIRING = [
    # What has expired is gone. That is applied when a page is served, so it knows no bound.
    ([saw("d1", 4.0), saw(None, 5.0)], ""),
    ([saw("d1", 6.0)], "resurrected"),
    ([saw(None, 4.0)], "missing"),
    ([saw("d1", 4.0), saw(None, 4.5)], ""),  # at the very moment
    ([saw("d1", 4.0), saw("d1", 6.0, bound_seconds=5.0, **EVENTUAL)], "resurrected"),
]
STALENESS = [
    # What was acknowledged a bound ago shows. Up to the bound it may not, nor where nothing is promised.
    ([*BOTH, edited("new", 2.0, 4.9), PAGE], "stale"),
    ([*BOTH, edited("new", 2.0, 5.1), PAGE], ""),
    ([*BOTH, edited("new", 2.0, 4.9), replace(PAGE, bound_seconds=None)], ""),
    ([*BOTH, deleted(2.0, 4.9), PAGE], "stale"),
    ([*BOTH, deleted(2.0, 5.1), PAGE], ""),
    ([*BOTH, wrote(3, at=4.9), read(1, 2, 3), PAGE], "stale"),
    ([*BOTH, wrote(3, at=5.1), read(1, 2, 3), PAGE], ""),
    # No older page shows what never was.
    ([wrote(at=9.0), read(1), read(7, newest_first=True, bound_seconds=5.0, **EVENTUAL)], "phantom"),
]


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        *READS,
        *(([wrote(), *records], fault) for records, fault in CHANGES),
        *(([wrote(expires_at=5.0), *records], fault) for records, fault in EXPIRING),
        *STALENESS,
    ],
)
def test_one_message_shows_one_fault(records, fault):
    """Or none. What is changed, or expires, is message 1, acknowledged at 1."""
    assert faults(history(*records)) == ({fault: 1} if fault else {})


def test_what_has_expired_is_not_read_even_if_its_write_was_not_acknowledged():
    """However late it was stored, its expiry is the one that was offered; it is exact to within the clocks."""
    unanswered = wrote(at=inf, expires_at=5.0)
    assert faults(history(unanswered, saw("d1", 4.0), saw("d1", 5.3), clock_error=0.4)) == {}
    assert faults(history(unanswered, saw("d1", 5.5), clock_error=0.4)) == {"resurrected": 1}


def test_expiry_is_judged_to_within_what_the_clocks_are_off():
    reads = [saw("d1", 6.0), saw(None, 4.0)]
    assert faults(history(wrote(expires_at=5.0), *reads, clock_error=2.0)) == {}
    found = faults(history(wrote(expires_at=5.0), *reads, clock_error=0.4))
    assert found == {"resurrected": 1, "missing": 1}


def test_the_digest_tells_contents_apart():
    """Every part of the content is in the digest, and the order of attributes is not."""
    digest = content_digest("c", "s", "b", {"x": 1, "y": 2})
    assert digest == content_digest("c", "s", "b", {"y": 2, "x": 1})
    others = [("d", "s", "b", {}), ("c", "t", "b", {}), ("c", "s", "x", {}), ("c", "s", "b", {"x": 2})]
    assert len({digest, *(content_digest(*other) for other in others)}) == 5
    assert content_digest("c", "s", "b") == content_digest("c", "s", "b", {})


def test_every_breach_is_listed_once():
    """However many reads show it; a verdict counts them, and names some."""
    given_history = history(*map(wrote, range(9)), read(at=11.0), read(at=12.0))
    verdict = check_history(given_history)
    assert len(find_breaches(given_history)) == verdict.missing == 9
    assert len(verdict.examples) == 5
    assert "absent from a complete strong read" in verdict.examples[0].detail
