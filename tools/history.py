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
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any, Literal, get_args

Order = Literal["newest", "oldest"]
Consistency = Literal["strong", "eventual"]
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
class Offered:
    """A write that was offered, with all its repetitions. Unless it was acknowledged, it may or may not be stored.

    `message_id` is None when the server was to mint it and no response named it.
    """

    conversation_id: str
    message_id: str | None
    digest: str
    offered_at: float = -inf
    """Before it, no read shows it."""
    acknowledged_at: float | None = None
    expires_at: float | None = None
    """From when on it is not to be read any more."""


@dataclass(slots=True, kw_only=True)
class Change:
    """What was done to an item: an edit has a `digest`, an addition a `token`, a deletion neither."""

    conversation_id: str
    message_id: str
    started_at: float
    ended_at: float | None = None
    """None: nobody knows whether it was done."""
    digest: str | None = None
    """Of the content that the edit gave, and no other write."""
    token: str | None = None
    """Of this addition alone: a log shows it, a sum contains the `amount`."""
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as a read returned it, with what was added to it: a log's tokens, or the value of a sum."""

    message_id: str
    digest: str
    added: tuple[str, ...] | int = ()


def everything(message_id: str) -> bool:
    """Cover all messages: see `Read.covers`."""
    del message_id
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read of a conversation, from its newest or its oldest end: what was asked, and the messages that came.

    A complete read went to the other end. A bounded one stopped early: it covers the messages between the end it
    began at and its last message. A gathered one holds what many reads found one after another, of which this was the
    last: of what changed meanwhile it says nothing.
    """

    conversation_id: str
    order: Order
    consistency: Consistency
    started_at: float
    messages: tuple[Seen, ...]
    complete: bool
    ended_at: float = inf
    bound_seconds: float | None = None
    """How old what it shows may be; None where nothing is promised (an eventual read) or nothing may be (a strong one).
    """
    is_gathered: bool = False
    covers: Callable[[str], bool] = everything
    """Of a read of a part of a conversation: says of a message id whether it lies in that part."""


@dataclass(slots=True, kw_only=True)
class History:
    """Everything that was written and read. Expiries are exact to within `clock_error`, in seconds."""

    writes: list[Offered] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
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
    acknowledged = {
        (each.conversation_id, each.message_id) for each in history.writes if each.acknowledged_at is not None
    }
    return Verdict(
        acknowledged=len(acknowledged),
        conversations=len({conversation_id for conversation_id, _ in acknowledged}),
        reads=len(history.reads),
        **{fault: counts[fault] for fault in FAULTS},
        examples=tuple(
            finding for fault in FAULTS for finding in [f for f in found if f.fault == fault][:EXAMPLES_PER_FAULT]
        ),
    )


def find_breaches(history: History) -> tuple[Finding, ...]:
    """List every breach of the promise; one that several reads show is named once."""
    index = _Index(history)
    findings: set[Finding] = set(history.misstated)
    verified: set[tuple[str, str]] = set()
    for read in history.reads:
        findings.update(_duplicates(read))
        findings.update(_disorder(read))
        findings.update(_inventions(read, index))
        if read.consistency == "strong":
            expected = _expected(read, index)
            verified.update((read.conversation_id, message_id) for message_id in expected)
            findings.update(_missing(read, expected - index.may_be_gone(read)))
            if not read.is_gathered:
                findings.update(_resurrected(read, index))
                findings.update(_undone(read, index))
                findings.update(_uncounted(read, index))
        elif read.bound_seconds is not None:
            findings.update(_stale(read, read.bound_seconds, index))
    findings.update(_phantoms(history.reads, index))
    findings.update(_unverified(index, verified))
    by_item = {(f.fault, f.conversation_id, f.message_id): f for f in sorted(findings, reverse=True)}
    return tuple(sorted(by_item.values()))


class _Index:
    """The writes of a history, by conversation and message id."""

    def __init__(self, history: History) -> None:
        self.clock_error = history.clock_error
        self.acknowledged_at: dict[str, dict[str, float]] = defaultdict(dict)
        self.digests: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.without_id: Counter[tuple[str, str]] = Counter()
        self.offered_at: dict[tuple[str, str], float] = {}
        self.edits: dict[tuple[str, str], list[Change]] = defaultdict(list)
        self.additions: dict[tuple[str, str], dict[str, Change]] = defaultdict(dict)
        self.deletions: dict[str, list[Change]] = defaultdict(list)
        self.expiries: dict[str, dict[str, float]] = defaultdict(dict)
        for write in history.writes:
            if write.message_id is None:
                self.without_id[write.conversation_id, write.digest] += 1
                continue
            place = write.conversation_id, write.message_id
            self.digests[place].add(write.digest)
            self.offered_at[place] = write.offered_at
            if write.acknowledged_at is not None:
                self.acknowledged_at[write.conversation_id][write.message_id] = write.acknowledged_at
                if write.expires_at is not None:
                    self.expiries[write.conversation_id][write.message_id] = write.expires_at
        self.acknowledged_ids = {each: sorted(moments) for each, moments in self.acknowledged_at.items()}
        for change in history.changes:
            place = change.conversation_id, change.message_id
            if change.token is not None:
                self.additions[place][change.token] = change
            elif change.digest is not None:
                self.edits[place].append(change)
                self.digests[place].add(change.digest)
            else:
                self.deletions[change.conversation_id].append(change)

    def may_be_gone(self, read: Read) -> set[str]:
        """List what may be deleted, or have expired, before a read ended."""
        deleted = {d.message_id for d in self.deletions.get(read.conversation_id, ()) if d.started_at <= read.ended_at}
        expiries = self.expiries.get(read.conversation_id, {}).items()
        return deleted | {message_id for message_id, at in expiries if at - self.clock_error <= read.ended_at}

    def must_be_gone(self, read: Read) -> set[str]:
        """List what was deleted, or has expired, before a read began."""
        deletions = self.deletions.get(read.conversation_id, ())
        deleted = {d.message_id for d in deletions if d.ended_at is not None and d.ended_at < read.started_at}
        return deleted | self.expired_before(read)

    def expired_before(self, read: Read) -> set[str]:
        """List what has expired before a read began."""
        expiries = self.expiries.get(read.conversation_id, {}).items()
        return {message_id for message_id, at in expiries if at + self.clock_error < read.started_at}


def _say(read: Read) -> str:
    extent = "complete" if read.complete else "bounded"
    return f"{extent} {read.consistency} read, {read.order} first, of {len(read.messages)} messages"


def _expected(read: Read, index: _Index) -> set[str]:
    """List what a strong read must hold: acknowledged before it began, within what it covers."""
    moments = index.acknowledged_at.get(read.conversation_id, {})
    ids = index.acknowledged_ids.get(read.conversation_id, [])
    if not read.complete:
        if not read.messages:
            return set()
        # The extreme, not the last: a read that is out of order still covers all it walked over.
        seen = [message.message_id for message in read.messages]
        ids = ids[bisect_left(ids, min(seen)) :] if read.order == "newest" else ids[: bisect_right(ids, max(seen))]
    return {message_id for message_id in ids if moments[message_id] < read.started_at and read.covers(message_id)}


def _missing(read: Read, expected: set[str]) -> Iterator[Finding]:
    for message_id in sorted(expected - {seen.message_id for seen in read.messages}):
        yield Finding("missing", read.conversation_id, message_id, f"absent from a {_say(read)}")


def _resurrected(read: Read, index: _Index) -> Iterator[Finding]:
    for message_id in sorted(index.must_be_gone(read).intersection(seen.message_id for seen in read.messages)):
        detail = f"was deleted or had expired before a {_say(read)}"
        yield Finding("resurrected", read.conversation_id, message_id, detail)


def _undone(read: Read, index: _Index) -> Iterator[Finding]:
    """Find messages whose content was replaced by an edit that was answered before the read began.

    Content is replaced by an edit that began after whatever gave it had been answered. What nobody answered may come at
    any time, and is never too old.
    """
    for seen in read.messages:
        edits = index.edits.get((read.conversation_id, seen.message_id), ())
        given = [edit for edit in edits if edit.digest == seen.digest]
        if any(edit.ended_at is None for edit in given):
            continue
        since = max((edit.ended_at for edit in given if edit.ended_at is not None), default=-inf)
        for edit in edits:
            is_later = edit.digest != seen.digest and edit.started_at > since
            if is_later and edit.ended_at is not None and edit.ended_at < read.started_at:
                detail = f"digest {seen.digest}, but {edit.digest} came later, before a {_say(read)}"
                yield Finding("undone", read.conversation_id, seen.message_id, detail)
                break


def _stale(read: Read, bound_seconds: float, index: _Index) -> Iterator[Finding]:
    """Find what a strong read that began `bound_seconds` earlier would contradict.

    Expiry knows no bound: it is applied when a page is served.
    """
    then = replace(read, started_at=read.started_at - bound_seconds)
    found = (
        *_missing(read, _expected(then, index) - index.may_be_gone(read)),
        *_resurrected(then, index),
        *_undone(then, index),
    )
    for finding in found:
        yield replace(finding, fault="stale", detail=f"{finding.detail}, {bound_seconds:g} s late")
    for message_id in sorted(index.expired_before(read).intersection(seen.message_id for seen in read.messages)):
        yield Finding("resurrected", read.conversation_id, message_id, f"had expired before a {_say(read)}")


def _duplicates(read: Read) -> Iterator[Finding]:
    for message_id, times in Counter(seen.message_id for seen in read.messages).items():
        if times > 1:
            yield Finding("duplicated", read.conversation_id, message_id, f"{times} times in a {_say(read)}")


def _disorder(read: Read) -> Iterator[Finding]:
    for one, two in pairwise(seen.message_id for seen in read.messages):
        if two > one if read.order == "newest" else two < one:
            yield Finding("out_of_order", read.conversation_id, two, f"comes after {one} in a {_say(read)}")


def _inventions(read: Read, index: _Index) -> Iterator[Finding]:
    """Find content that was not written by then, and messages outside of the range that was read."""
    for seen in read.messages:
        place = read.conversation_id, seen.message_id
        written = index.digests.get(place)
        if written and seen.digest not in written:
            yield Finding("altered", *place, f"digest {seen.digest}, written {min(written)}")
        if index.offered_at.get(place, -inf) > read.ended_at:
            yield Finding("phantom", *place, f"there in a {_say(read)}, and offered later")
        if not read.covers(seen.message_id):
            yield Finding("phantom", *place, f"lies outside of what a {_say(read)} asked for")
        additions = index.additions.get(place, {})
        for token, times in Counter(seen.added if isinstance(seen.added, tuple) else ()).items():
            if token not in additions or additions[token].started_at > read.ended_at:
                yield Finding("phantom", *place, f"{token} is in a {_say(read)}, and was not added by then")
            if times > 1:
                yield Finding("duplicated", *place, f"{token} is in it {times} times")


def _uncounted(read: Read, index: _Index) -> Iterator[Finding]:
    """Find additions that were acknowledged before the read began and are not in it, and sums that cannot be."""
    for seen in read.messages:
        place = read.conversation_id, seen.message_id
        begun = {token: a for token, a in index.additions.get(place, {}).items() if a.started_at <= read.ended_at}
        due = {token: a.amount for token, a in begun.items() if a.ended_at is not None and a.ended_at < read.started_at}
        if isinstance(seen.added, tuple):
            for token in sorted(due.keys() - seen.added):
                yield Finding("undone", *place, f"{token} was added before a {_say(read)}, and is not in it")
            continue
        # What is due counts; what else has begun may count or not.
        open_amounts = [a.amount for token, a in begun.items() if token not in due]
        least, most = (sum(due.values()) + sum(limit(amount, 0) for amount in open_amounts) for limit in (min, max))
        if not least <= seen.added <= most:
            expected = str(least) if least == most else f"{least} to {most}"
            detail = f"{seen.added} in a read from {read.started_at:.3f} on; should be {expected}"
            yield Finding("altered", *place, detail)


def _phantoms(reads: Iterable[Read], index: _Index) -> Iterator[Finding]:
    """Find messages that nobody offered.

    An unknown id is excused by an offer with the same content whose id the client never learned, one offer for one id.
    """
    unknown = sorted(
        {
            (read.conversation_id, seen.digest, seen.message_id)
            for read in reads
            for seen in read.messages
            if (read.conversation_id, seen.message_id) not in index.digests
        }
    )
    excused: Counter[tuple[str, str]] = Counter()
    for conversation_id, digest, message_id in unknown:
        excused[conversation_id, digest] += 1
        if excused[conversation_id, digest] > index.without_id[conversation_id, digest]:
            yield Finding("phantom", conversation_id, message_id, f"was never offered (digest {digest})")


def _unverified(index: _Index, verified: set[tuple[str, str]]) -> Iterator[Finding]:
    for conversation_id, moments in index.acknowledged_at.items():
        for message_id in moments:
            if (conversation_id, message_id) not in verified:
                detail = "no strong read that began after its acknowledgement covers it"
                yield Finding("unverified", conversation_id, message_id, detail)
