"""The history check: judges everything that was written and read by the promise of the product.

The promise: no acknowledged message is ever missing from a strongly consistent read that begins later, none appears
twice in any read, every read is in order, and what is read is what was written. A message that was deleted or has
expired does not come back, and one that was edited is not read as it was before. What is added to an item (a token to
a log, an amount to a sum) counts once it is acknowledged, and never twice. A page with a staleness bound (one
that may come from a cache) shows nothing older than its bound: whatever was acknowledged that long before it was asked
for is in it, as a strong read would have shown it then, and nothing is in it that never was. The check is a pure
function of the recorded history; it knows nothing of shards, routes or Redis, so it cannot share a mistake with what
it judges.

It judges messages, a table's items and counters alike. A conversation is any partition key, a message any item under
it; its id is its sort key.

All moments are readings of one clock, in seconds; only their order matters.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any, Literal, get_args

Fault = Literal[
    "missing",
    "duplicated",
    "out_of_order",
    "altered",
    "phantom",
    "unverified",
    "resurrected",
    "undone",
    "stale",
    "misstated",
]

FAULTS: tuple[Fault, ...] = get_args(Fault)
EXAMPLES_PER_FAULT = 5


@dataclass(slots=True, kw_only=True)
class Change:
    """What was done to an item: an edit has a `digest`, an addition a `token`, a deletion neither."""

    started_at: float
    ended_at: float = inf
    """Infinite: it is unknown whether it was done."""
    digest: str | None = None
    """Of the content that the edit gave, and no other write."""
    token: str | None = None
    """Of this addition alone: a log shows it, a sum contains the `amount`."""
    amount: int = 0


@dataclass(slots=True, kw_only=True)
class Offered:
    """An item that was offered, with all repetitions of its write, and what was done to it later."""

    digest: str
    offered_at: float = -inf
    """Before it, no read shows it."""
    acknowledged_at: float = inf
    """Infinite: it may or may not be stored."""
    expires_at: float = inf
    """From when on it is not to be read any more."""
    changes: list[Change] = field(default_factory=list)

    @property
    def edits(self) -> list[Change]:
        """List its edits."""
        return [change for change in self.changes if change.digest is not None]

    @property
    def deletions(self) -> list[Change]:
        """List its deletions."""
        return [change for change in self.changes if change.digest is None and change.token is None]

    @property
    def additions(self) -> dict[str, Change]:
        """List what was added to it, by token."""
        return {change.token: change for change in self.changes if change.token is not None}

    def has_expired(self, at: float, clock_error: float) -> bool:
        """Say whether it has expired by then, whatever the clocks."""
        return self.expires_at + clock_error < at

    def must_be_gone(self, at: float, clock_error: float) -> bool:
        """Say whether it was deleted, or has expired, by then."""
        return self.has_expired(at, clock_error) or any(deletion.ended_at < at for deletion in self.deletions)

    def may_be_gone(self, at: float, clock_error: float) -> bool:
        """Say whether it may be deleted, or have expired, by then."""
        has_expired = self.expires_at - clock_error <= at and self.expires_at < inf
        return has_expired or any(deletion.started_at <= at for deletion in self.deletions)


Offers = Mapping[str, Offered]
"""Those of one conversation, by message id."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as a read returned it, with what was added to it: a log's tokens, or the value of a sum."""

    message_id: str
    digest: str
    added: tuple[str, ...] | int = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read of a conversation, from its newest or its oldest end: what was asked, and the messages that came.

    A complete read went to the other end. A bounded one stopped early: it covers the messages between the end it
    began at and its last message. A gathered one holds what many reads found one after another, of which this was the
    last: of what changed meanwhile it says nothing.
    """

    conversation_id: str
    messages: tuple[Seen, ...]
    started_at: float
    ended_at: float = inf
    newest_first: bool = False
    is_strong: bool = True
    complete: bool = True
    bound_seconds: float | None = None
    """How old what it shows may be; None where nothing is promised (an eventual read) or nothing may be (a strong one).
    """
    is_gathered: bool = False
    covers: Callable[[str], bool] = lambda _: True
    """Of a read of a part of a conversation: says of a message id whether it lies in that part."""


@dataclass(slots=True, kw_only=True)
class History:
    """Everything that was written and read. Expiries are exact to within `clock_error`, in seconds."""

    offers: dict[str, dict[str, Offered]] = field(default_factory=dict)
    """By conversation and message id, in the order in which they were offered."""
    nameless: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many writes the server was to mint an id for, and no response named it: by conversation and digest."""
    reads: list[Read] = field(default_factory=list)
    misstated: list[Finding] = field(default_factory=list)
    """Statuses that clients should not have got, as they found them."""
    clock_error: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One breach of the promise, with what is needed to look into it."""

    fault: Fault
    conversation_id: str
    message_id: str
    detail: str


class Verdict(SimpleNamespace):
    """What the history shows: `acknowledged`, `conversations`, `reads`, a count for each of `FAULTS`, and `examples`.

    Counts are of messages: one that is missing from ten reads counts once. `unverified` counts acknowledged messages
    that no strong read covers: with them, nothing is shown.
    """

    @property
    def holds(self) -> bool:
        """Say whether the promise was kept and every acknowledged message looked for."""
        return not any(self.found.values())

    @property
    def found(self) -> dict[Fault, int]:
        """Count by kind of fault."""
        return {fault: getattr(self, fault) for fault in FAULTS}


def content_digest(conversation_id: str, sender: str, body: str, attributes: Mapping[str, Any] | None = None) -> str:
    """Build the digest by which a message read is compared with the message written."""
    canonical = json.dumps([conversation_id, sender, body, attributes or {}], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=12).hexdigest()


def check_history(history: History) -> Verdict:
    """Judge a history by the promise."""
    found = find_breaches(history)
    counts = Counter(finding.fault for finding in found)
    acknowledged = [conversation_id for conversation_id, _ in _acknowledged(history)]
    return Verdict(
        acknowledged=len(acknowledged),
        conversations=len(set(acknowledged)),
        reads=len(history.reads),
        **{fault: counts[fault] for fault in FAULTS},
        examples=tuple(
            finding for fault in FAULTS for finding in [f for f in found if f.fault == fault][:EXAMPLES_PER_FAULT]
        ),
    )


def find_breaches(history: History) -> tuple[Finding, ...]:
    """List every breach of the promise; one that several reads show is named once."""
    findings: set[Finding] = set(history.misstated)
    verified: defaultdict[str, set[str]] = defaultdict(set)
    error = history.clock_error
    for read in history.reads:
        offers = history.offers.get(read.conversation_id, {})
        findings.update(_duplicates(read))
        findings.update(_disorder(read))
        findings.update(_inventions(read, offers))
        if read.is_strong:
            expected = _expected(read, offers)
            verified[read.conversation_id].update(expected)
            findings.update(_missing(read, expected, error))
            if not read.is_gathered:
                findings.update(_resurrected(read, offers, error))
                findings.update(_undone(read, offers))
                findings.update(_uncounted(read, offers))
        elif read.bound_seconds is not None:
            findings.update(_stale(read, read.bound_seconds, offers, error))
    findings.update(_phantoms(history))
    for conversation_id, message_id in _acknowledged(history):
        if message_id not in verified[conversation_id]:
            detail = "no strong read that began after its acknowledgement covers it"
            findings.add(Finding("unverified", conversation_id, message_id, detail))
    by_item = {(f.fault, f.conversation_id, f.message_id): f for f in sorted(findings, reverse=True)}
    return tuple(sorted(by_item.values()))


def _acknowledged(history: History) -> Iterator[tuple[str, str]]:
    for conversation_id, offers in history.offers.items():
        for message_id, offer in offers.items():
            if offer.acknowledged_at < inf:
                yield conversation_id, message_id


def _say(read: Read) -> str:
    extent, consistency = "complete" if read.complete else "bounded", "strong" if read.is_strong else "eventual"
    order = "newest" if read.newest_first else "oldest"
    return f"{extent} {consistency} read, {order} first, of {len(read.messages)} messages"


def _expected(read: Read, offers: Offers) -> Offers:
    """List what a strong read must hold: acknowledged before it began, within what it covers."""
    low, high = "", chr(sys.maxunicode)
    if not read.complete:
        # The extreme, not the last: a read that is out of order still covers all it walked over.
        seen = [message.message_id for message in read.messages]
        low, high = (min(seen, default=high), high) if read.newest_first else (low, max(seen, default=low))
    return {
        message_id: offer
        for message_id, offer in offers.items()
        if low <= message_id <= high and offer.acknowledged_at < read.started_at and read.covers(message_id)
    }


def _offered(read: Read, offers: Offers) -> list[tuple[Seen, Offered]]:
    """List what a read showed, and what is known of it."""
    return [(seen, offers[seen.message_id]) for seen in read.messages if seen.message_id in offers]


def _missing(read: Read, expected: Offers, clock_error: float) -> Iterator[Finding]:
    for message_id in sorted(expected.keys() - {seen.message_id for seen in read.messages}):
        if not expected[message_id].may_be_gone(read.ended_at, clock_error):
            yield Finding("missing", read.conversation_id, message_id, f"absent from a {_say(read)}")


def _resurrected(read: Read, offers: Offers, clock_error: float) -> Iterator[Finding]:
    for seen, offer in _offered(read, offers):
        if offer.must_be_gone(read.started_at, clock_error):
            detail = f"was deleted or had expired before a {_say(read)}"
            yield Finding("resurrected", read.conversation_id, seen.message_id, detail)


def _undone(read: Read, offers: Offers) -> Iterator[Finding]:
    """Find messages whose content was replaced by an edit that was answered before the read began.

    Content is replaced by an edit that began after whatever gave it had been answered. What nobody answered may come at
    any time, and is never too old.
    """
    for seen, offer in _offered(read, offers):
        since = max((edit.ended_at for edit in offer.edits if edit.digest == seen.digest), default=-inf)
        for edit in offer.edits:
            if edit.digest != seen.digest and edit.started_at > since and edit.ended_at < read.started_at:
                detail = f"digest {seen.digest}, but {edit.digest} came later, before a {_say(read)}"
                yield Finding("undone", read.conversation_id, seen.message_id, detail)
                break


def _stale(read: Read, bound_seconds: float, offers: Offers, clock_error: float) -> Iterator[Finding]:
    """Find what a strong read that began `bound_seconds` earlier would contradict.

    Expiry knows no bound: it is applied when a page is served.
    """
    then = replace(read, started_at=read.started_at - bound_seconds)
    found = (
        *_missing(then, _expected(then, offers), clock_error),
        *_resurrected(then, offers, clock_error),
        *_undone(then, offers),
    )
    for finding in found:
        yield replace(finding, fault="stale", detail=f"{finding.detail}, {bound_seconds:g} s late")
    for seen, offer in _offered(read, offers):
        if offer.has_expired(read.started_at, clock_error):
            yield Finding("resurrected", read.conversation_id, seen.message_id, f"had expired before a {_say(read)}")


def _duplicates(read: Read) -> Iterator[Finding]:
    for message_id, times in Counter(seen.message_id for seen in read.messages).items():
        if times > 1:
            yield Finding("duplicated", read.conversation_id, message_id, f"{times} times in a {_say(read)}")


def _disorder(read: Read) -> Iterator[Finding]:
    for one, two in pairwise(seen.message_id for seen in read.messages):
        if two > one if read.newest_first else two < one:
            yield Finding("out_of_order", read.conversation_id, two, f"comes after {one} in a {_say(read)}")


def _inventions(read: Read, offers: Offers) -> Iterator[Finding]:
    """Find content that was not written by then, and messages outside of the range that was read."""
    for seen in read.messages:
        if not read.covers(seen.message_id):
            detail = f"lies outside of what a {_say(read)} asked for"
            yield Finding("phantom", read.conversation_id, seen.message_id, detail)
    for seen, offer in _offered(read, offers):
        place = read.conversation_id, seen.message_id
        if seen.digest != offer.digest and all(seen.digest != edit.digest for edit in offer.edits):
            yield Finding("altered", *place, f"digest {seen.digest}, written {offer.digest}")
        if offer.offered_at > read.ended_at:
            yield Finding("phantom", *place, f"there in a {_say(read)}, and offered later")
        begun = {token for token, each in offer.additions.items() if each.started_at <= read.ended_at}
        for token, times in Counter(seen.added if isinstance(seen.added, tuple) else ()).items():
            if token not in begun:
                yield Finding("phantom", *place, f"{token} is in a {_say(read)}, and was not added by then")
            if times > 1:
                yield Finding("duplicated", *place, f"{token} is in it {times} times")


def _uncounted(read: Read, offers: Offers) -> Iterator[Finding]:
    """Find additions that were acknowledged before the read began and are not in it, and sums that cannot be."""
    for seen, offer in _offered(read, offers):
        place = read.conversation_id, seen.message_id
        begun = {token: each for token, each in offer.additions.items() if each.started_at <= read.ended_at}
        due = {token: each.amount for token, each in begun.items() if each.ended_at < read.started_at}
        if isinstance(seen.added, tuple):
            for token in sorted(due.keys() - seen.added):
                yield Finding("undone", *place, f"{token} was added before a {_say(read)}, and is not in it")
            continue
        # What is due counts; what else has begun may count or not.
        open_amounts = [each.amount for token, each in begun.items() if token not in due]
        least, most = (sum(due.values()) + sum(limit(amount, 0) for amount in open_amounts) for limit in (min, max))
        if not least <= seen.added <= most:
            expected = str(least) if least == most else f"{least} to {most}"
            detail = f"{seen.added} in a read from {read.started_at:.3f} on; should be {expected}"
            yield Finding("altered", *place, detail)


def _phantoms(history: History) -> Iterator[Finding]:
    """Find messages that nobody offered.

    An unknown id is excused by an offer with the same content whose id the client never learned, one offer for one id.
    """
    unknown = sorted(
        {
            (read.conversation_id, seen.digest, seen.message_id)
            for read in history.reads
            for seen in read.messages
            if seen.message_id not in history.offers.get(read.conversation_id, {})
        }
    )
    excused: Counter[tuple[str, str]] = Counter()
    for conversation_id, digest, message_id in unknown:
        excused[conversation_id, digest] += 1
        if excused[conversation_id, digest] > history.nameless[conversation_id, digest]:
            yield Finding("phantom", conversation_id, message_id, f"was never offered (digest {digest})")
