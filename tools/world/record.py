"""What clients wrote and read: a history for the judge of `tools.history`.

A lookup of one item, and a read between two times, are reads of a part of a conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from hotpartition_messages import Message
from hotpartition_messages.message_ids import message_time_ms
from hotpartition_messages.reading import PageRequest, PageResult
from tools.history import Change, Finding, History, Offered, Read, Seen, Verdict, check_history
from tools.world.clock import EPOCH_MS


def digest_of(sender: str, body: str) -> str:
    """Build what a message read is compared by with the message written: senders and bodies are short or made up."""
    return f"{sender} {len(body)} {body[:64]}"


def seen(messages: Iterable[Message]) -> tuple[Seen, ...]:
    """Note messages as they were read."""
    return tuple(Seen(m.message_id, digest_of(m.sender, m.body)) for m in messages)


class Record(History):
    """A history that clients add to, and look up in what they may change."""

    __slots__ = ()

    @property
    def conversations(self) -> list[str]:
        """All that anything was offered for."""
        return sorted(self.offers)

    def acknowledged_ids(self, conversation_id: str) -> list[str]:
        """List the messages that are known to be stored, in the order in which they were offered."""
        offers = self.offers.get(conversation_id, {})
        return [message_id for message_id, offer in offers.items() if offer.acknowledged_at < inf]

    def sender_of(self, conversation_id: str, message_id: str) -> str:
        """Tell who sent a message, as its digest says."""
        return self.offers[conversation_id][message_id].digest.partition(" ")[0]

    def was_changed(self, conversation_id: str, message_id: str, *, after: float, before: float) -> bool:
        """Say whether an item is known to have been changed between two moments."""
        changes = self.offers[conversation_id][message_id].changes
        return any(after < change.started_at and change.ended_at < before for change in changes)

    def note_offer(
        self,
        conversation_id: str,
        message_id: str,
        digest: str,
        *,
        offered_at: float = -inf,
        expires_at: float = inf,
    ) -> Offered:
        """An item with a known id is about to be written."""
        new = Offered(digest=digest, offered_at=offered_at, expires_at=expires_at)
        return self.offers.setdefault(conversation_id, {}).setdefault(message_id, new)

    def note_nameless(self, conversation_id: str, digest: str) -> None:
        """A message was offered, and nobody learned which id it may have got."""
        self.nameless[conversation_id, digest] += 1

    def note_misstated(self, conversation_id: str, message_id: str, detail: str) -> None:
        """A client got a status that it should not have got."""
        self.misstated.append(Finding("misstated", conversation_id, message_id, detail))

    def note_acknowledged(
        self, conversation_id: str, message_id: str, digest: str, at: float, *, expires_at: float = inf
    ) -> None:
        """An item is known to be stored."""
        offer = self.note_offer(conversation_id, message_id, digest)
        offer.expires_at = expires_at
        offer.acknowledged_at = min(offer.acknowledged_at, at)

    def note_change(self, conversation_id: str, message_id: str, *, began: float, **what: Any) -> Change:
        """An item is changed, as `what` says in the words of `Change`; `ended_at` is set once it is acknowledged."""
        change = Change(started_at=began, **what)
        self.offers[conversation_id][message_id].changes.append(change)
        return change

    def note_read(
        self, request: PageRequest, pages: Sequence[PageResult], began: float, ended: float, **more: Any
    ) -> None:
        """A read from an end, or between two times; the latter went through to its other end."""
        if request.after_ms is not None or request.before_ms is not None:
            low = -1 if request.after_ms is None else request.after_ms
            high = inf if request.before_ms is None else request.before_ms
            more["covers"] = lambda i: low <= message_time_ms(i) < high
        self.note_whole_read(
            request.conversation_id,
            [each for page in pages for each in seen(page.messages)],
            began,
            ended,
            is_strong=request.is_strong,
            newest_first=request.newest_first,
            complete=pages[-1].next_cursor is None,
            **more,
        )

    def note_lookup(
        self, conversation_id: str, message_id: str, found: Sequence[Seen], began: float, ended: float
    ) -> None:
        """An item was looked up by its id, strongly consistent."""
        self.note_whole_read(conversation_id, found, began, ended, covers=lambda i: i == message_id)

    def note_whole_read(
        self, conversation_id: str, found: Iterable[Seen], began: float, ended: float, **more: Any
    ) -> None:
        """All of a conversation was read, or as much of it as `more` says in the words of `Read`."""
        messages = tuple(found)
        read = Read(conversation_id=conversation_id, messages=messages, started_at=began, ended_at=ended, **more)
        self.reads.append(read)

    def note_poll(self, conversation_id: str, found: Mapping[str, Seen], began: float, settle_seconds: float) -> None:
        """A poller found this, its last walk included, which began then.

        It accounts for the messages that were acknowledged within so many seconds of their own time.
        """
        offers = self.offers.get(conversation_id, {})

        def is_accounted_for(message_id: str) -> bool:
            at = offers[message_id].acknowledged_at if message_id in offers else inf
            return message_id in found or EPOCH_MS + at * 1000 - message_time_ms(message_id) <= settle_seconds * 1000

        messages = [found[message_id] for message_id in sorted(found)]
        self.note_whole_read(conversation_id, messages, began, inf, is_gathered=True, covers=is_accounted_for)

    def judge(self) -> Verdict:
        """Judge everything."""
        return check_history(self)
