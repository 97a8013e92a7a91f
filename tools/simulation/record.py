"""The history of a run, for the checker of `tools.history_checker`, which judges it.

The checker knows reads that begin at an end of a conversation. A read between two times is given to it as the read of
a conversation of its own: of all that was offered between those times. So is a lookup of one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hotpartition_messages import Message
from hotpartition_messages.message_ids import message_time_ms
from hotpartition_messages.reading import PageRequest
from tools.history_checker import (
    FAULTS,
    Acknowledged,
    Deleted,
    Edited,
    History,
    Page,
    Read,
    Seen,
    Unresolved,
    Verdict,
    check_history,
    join_pages,
)
from tools.simulation.wiring import EPOCH_MS

_Written = Acknowledged | Unresolved | Edited | Deleted


def digest_of(sender: str, body: str) -> str:
    """Build what a message read is compared by with the message written: senders and bodies are short or made up."""
    return f"{sender} {len(body)} {body[:64]}"


def seen(messages: Iterable[Message]) -> tuple[Seen, ...]:
    """Note messages as they were read."""
    return tuple(Seen(m.message_id, digest_of(m.sender, m.body)) for m in messages)


@dataclass(slots=True)
class _Offer:
    """A message that a client wants to have stored, and when it learned that it is."""

    digest: str
    acknowledged_at: float | None = None
    expires_at: float | None = None
    edits: list[Edited] = field(default_factory=list)
    deletions: list[Deleted] = field(default_factory=list)

    def record(self, conversation_id: str, message_id: str, due_before: float) -> Acknowledged | Unresolved:
        """Build the checker's record: acknowledged, if it was by then."""
        if self.acknowledged_at is None or self.acknowledged_at >= due_before:
            return Unresolved(conversation_id=conversation_id, message_id=message_id, digest=self.digest)
        return Acknowledged(
            conversation_id=conversation_id,
            message_id=message_id,
            digest=self.digest,
            acknowledged_at=self.acknowledged_at,
            expires_at=self.expires_at,
        )


@dataclass(slots=True)
class Record:
    """Everything that was written and read."""

    clock_error: float = 0.0
    """How far a function's clock may be off, in seconds."""
    _offers: dict[str, dict[str, _Offer]] = field(default_factory=dict)
    _nameless: list[Unresolved] = field(default_factory=list)
    _reads: list[Read] = field(default_factory=list)
    _asides: list[tuple[Callable[[str], bool], Read]] = field(default_factory=list)
    """Reads of a part of a conversation, with what says of a message id whether it lies in that part."""

    @property
    def conversations(self) -> list[str]:
        """All that anything was offered for."""
        return sorted(self._offers)

    def acknowledged_ids(self, conversation_id: str) -> list[str]:
        """List the messages that are known to be stored, in the order in which they were offered."""
        offers = self._offers.get(conversation_id, {})
        return [message_id for message_id, offer in offers.items() if offer.acknowledged_at is not None]

    def sender_of(self, conversation_id: str, message_id: str) -> str:
        """Tell who sent a message, as its digest says."""
        return self._offers[conversation_id][message_id].digest.partition(" ")[0]

    def note_offer(
        self, conversation_id: str, message_id: str, digest: str, *, expires_at: float | None = None
    ) -> None:
        """A message with a known id is about to be written."""
        self._offers.setdefault(conversation_id, {}).setdefault(message_id, _Offer(digest, expires_at=expires_at))

    def note_nameless(self, conversation_id: str, digest: str) -> None:
        """A message was offered, and nobody learned which id it may have got."""
        self._nameless.append(Unresolved(conversation_id=conversation_id, message_id=None, digest=digest))

    def note_acknowledged(
        self, conversation_id: str, message_id: str, digest: str, at: float, *, expires_at: float | None = None
    ) -> None:
        """A message is known to be stored."""
        self.note_offer(conversation_id, message_id, digest, expires_at=expires_at)
        offer = self._offers[conversation_id][message_id]
        offer.expires_at = expires_at
        if offer.acknowledged_at is None:
            offer.acknowledged_at = at

    def note_edit(
        self, conversation_id: str, message_id: str, digest: str, *, began: float, ended: float | None
    ) -> None:
        """A message was edited, or nobody knows whether it was."""
        edit = Edited(
            conversation_id=conversation_id, message_id=message_id, digest=digest, started_at=began, ended_at=ended
        )
        self._offers[conversation_id][message_id].edits.append(edit)

    def note_deletion(self, conversation_id: str, message_id: str, *, began: float, ended: float | None) -> None:
        """A message was deleted, or nobody knows whether it was."""
        deletion = Deleted(conversation_id=conversation_id, message_id=message_id, started_at=began, ended_at=ended)
        self._offers[conversation_id][message_id].deletions.append(deletion)

    def note_read(self, request: PageRequest, pages: Sequence[Page]) -> None:
        """A read from an end, or between two times; the latter went through to its other end."""
        read = join_pages(pages)
        if request.after_ms is None and request.before_ms is None:
            self._reads.append(read)
            return
        low = -1 if request.after_ms is None else request.after_ms
        high = float("inf") if request.before_ms is None else request.before_ms
        self._asides.append((lambda i: low <= message_time_ms(i) < high, read))

    def note_lookup(
        self, conversation_id: str, message_id: str, found: Message | None, began: float, ended: float
    ) -> None:
        """A message was looked up by its id, strongly consistent."""
        read = Read(
            conversation_id=conversation_id,
            order="newest",
            consistency="strong",
            started_at=began,
            messages=() if found is None else seen([found]),
            complete=True,
            ended_at=ended,
        )
        self._asides.append((lambda i: i == message_id, read))

    def note_poll(self, conversation_id: str, found: Mapping[str, Seen], began: float, settle_seconds: float) -> None:
        """A poller found this, its last walk included, which began then.

        It accounts for the messages that were acknowledged within so many seconds of their own time.
        """
        offers = self._offers.get(conversation_id, {})

        def is_accounted_for(message_id: str) -> bool:
            at = offers[message_id].acknowledged_at
            is_in_time = at is not None and EPOCH_MS + at * 1000 - message_time_ms(message_id) <= settle_seconds * 1000
            return is_in_time or message_id in found

        read = Read(
            conversation_id=conversation_id,
            order="oldest",
            consistency="strong",
            started_at=began,
            messages=tuple(found[message_id] for message_id in sorted(found)),
            complete=True,
            is_gathered=True,
        )
        self._asides.append((is_accounted_for, read))

    def judge(self) -> Verdict:
        """Judge everything; counts of messages are those of the reads from an end."""
        names = sorted(self._offers.keys() | {nameless.conversation_id for nameless in self._nameless})
        records = [record for name in names for record in self._records_of(name, name, lambda _: True, float("inf"))]
        main = self._check(records, self._reads)
        records, reads = [], []
        for index, (lies_within, read) in enumerate(self._asides):
            renamed = replace(read, conversation_id=f"{read.conversation_id} ({index})")
            due_before = read.started_at if read.consistency == "strong" else float("-inf")
            records += self._records_of(read.conversation_id, renamed.conversation_id, lies_within, due_before)
            reads.append(renamed)
        aside = self._check(records, reads)
        return Verdict(
            acknowledged=main.acknowledged,
            conversations=main.conversations,
            reads=main.reads + aside.reads,
            **{fault: getattr(main, fault) + getattr(aside, fault) for fault in FAULTS},
            examples=main.examples + aside.examples,
        )

    def _check(self, records: Sequence[_Written], reads: Iterable[Read]) -> Verdict:
        history = History(
            acknowledged=tuple(r for r in records if isinstance(r, Acknowledged)),
            unresolved=tuple(r for r in records if isinstance(r, Unresolved)),
            reads=tuple(reads),
            edits=tuple(r for r in records if isinstance(r, Edited)),
            deletions=tuple(r for r in records if isinstance(r, Deleted)),
            clock_error=self.clock_error,
        )
        return check_history(history)

    def _records_of(
        self, conversation_id: str, name: str, lies_within: Callable[[str], bool], due_before: float
    ) -> Iterator[_Written]:
        """Yield what a part of a conversation holds, under another name.

        What was not stored by `due_before` may be read or not.
        """
        for message_id, offer in self._offers.get(conversation_id, {}).items():
            if lies_within(message_id):
                yield offer.record(name, message_id, due_before)
                yield from (replace(edit, conversation_id=name) for edit in offer.edits)
                yield from (replace(deletion, conversation_id=name) for deletion in offer.deletions)
        for offered in self._nameless:
            if offered.conversation_id == conversation_id:
                yield replace(offered, conversation_id=name)
