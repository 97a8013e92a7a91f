"""Edits and deletes messages where they are stored; no copy of an older version wins over the change.

Every copy is located (strongly, the journal included); the next version of the one that counts is put in its place, if
it is still the one that was found (`engine/changing.py`). A deletion puts a tombstone, which nothing replaces and which
never expires. Where a message has several copies (a retry across a raise), one transaction gives all of them the new
version. Where it lies only at a later choice, the same transaction puts the new version at its first choice, too: point
reads stop there when they find something.

docs/architecture.md says why nothing deleted comes back, and no edit is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.capacity import item_size_bytes, write_units
from hotpartition.core.errors import RetryLaterError, StoreUnavailableError, ThrottledError
from hotpartition.core.items import ItemKey
from hotpartition.core.merge import choose_copy
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Copy, Telemetry
from hotpartition.core.route import candidate_keys, choose_placement
from hotpartition.core.times import format_time
from hotpartition.dynamodb.item_store import Replacement
from hotpartition.engine.changing import RaceLostError, change_located
from hotpartition.engine.gatherer import Gatherer, Located
from hotpartition_messages.attributes import EncodedAttributes
from hotpartition_messages.errors import MessageChangedError, MessageGoneError, MessageNotFoundError, NotTheSenderError
from hotpartition_messages.keys import KEY_FORM, build_key, check_item_size
from hotpartition_messages.messages import Message
from hotpartition_messages.writing import MessageWriter

_TRANSACTION_FACTOR = 2
_CHANGED_MEANWHILE = "the message was changed by somebody else meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which message is to be changed. REQUIRES: checked ids, the message's in canonical form.

    The message must have one of the entity tags `if_match`; None: any state will do. `sender` is the caller, and must
    be the message's sender; None: every caller may change it.
    """

    conversation_id: str
    message_id: str
    if_match: frozenset[str] | None = None
    sender: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The new content of a message; None is left unchanged."""

    body: str | None = None
    attributes: EncodedAttributes | None = None


@dataclass(slots=True)
class _Asked:
    """A change that a request asks for, and what is known of its attempts.

    `unsure_of` is the version that one of them may have replaced, since it had no response.
    """

    target: Target
    key: ItemKey[str]
    decide: Callable[[Message], Message | None]
    unsure_of: int | None = None
    is_counted: bool = False


class MessageChanger:
    """Edits and deletes messages. One per execution environment; serves one request at a time."""

    def __init__(
        self,
        messages: MessageWriter,
        gatherer: Gatherer[str, Message],
        *,
        telemetry: Telemetry,
        clock: Clock,
        budget_ms: float,
    ) -> None:
        """Start with nothing changed. The store of `messages` replaces the copies, and its writer counts that."""
        self._writer = messages.writer
        self._store = messages.store
        self._gatherer = gatherer
        self._telemetry = telemetry
        self._clock = clock
        self._budget_ms = budget_ms

    def edit(self, target: Target, edit: Edit, *, remaining_ms: float = float("inf")) -> Message:
        """Edit a message, and return the result. One that has this content already is not changed.

        So a repetition is safe. `remaining_ms` is the time that the function has left.

        Raises:
            MessageNotFoundError: it is not stored, or has expired.
            MessageGoneError: it was deleted.
            NotTheSenderError: another sender sent it.
            MessageChangedError: it has none of the entity tags.
            ItemTooLargeError: the item would pass DynamoDB's limit.
            RetryLaterError: DynamoDB refused for the whole budget, or it may have been edited, or not.
        """

        def decide(found: Message) -> Message | None:
            if found.deleted_at is not None:
                raise MessageGoneError(target.conversation_id, target.message_id)
            edited = found.edit(
                body=found.body if edit.body is None else edit.body,
                stored_attributes=found.stored_attributes if edit.attributes is None else edit.attributes.stored,
                edited_at=format_time(self._clock.now_ms()),
            )
            if found.has_equal_content(edited):
                return None
            _check_tag(target, found)
            return edited

        return self._change(target, decide, remaining_ms)

    def delete(self, target: Target, *, remaining_ms: float = float("inf")) -> None:
        """Delete a message; one that is deleted already stays so, so a repetition is safe. Parameters as of `edit`.

        Raises:
            MessageNotFoundError: it is not stored, or has expired.
            NotTheSenderError: another sender sent it.
            MessageChangedError: it has none of the entity tags.
            RetryLaterError: DynamoDB refused for the whole budget, or it may have been deleted, or not.
        """

        def decide(found: Message) -> Message | None:
            if found.deleted_at is not None:
                return None
            _check_tag(target, found)
            return found.delete(deleted_at=format_time(self._clock.now_ms()))

        self._change(target, decide, remaining_ms)

    def _change(self, target: Target, decide: Callable[[Message], Message | None], remaining_ms: float) -> Message:
        """Replace a message by the decided one; decide anew when it was changed meanwhile."""
        budget_ms = min(self._budget_ms, remaining_ms)
        deadline_ms = self._clock.now_ms() + budget_ms
        asked = _Asked(target, build_key(target.conversation_id, target.message_id), decide)
        try:
            return change_located(
                lambda: self._locate(asked, deadline_ms - self._clock.now_ms()),
                partial(self._decide, asked),
                may_repeat=Budget(self._clock, budget_ms).wait,
            )
        except (MessageChangedError, MessageGoneError, MessageNotFoundError) as error:
            # An attempt without a response may have succeeded before the state that now forbids the change.
            if asked.unsure_of is None:
                raise
            raise StoreUnavailableError(_CHANGED_MEANWHILE) from error

    def _locate(self, asked: _Asked, remaining_ms: float) -> Located[Message]:
        """Find all copies of a message."""
        located = self._gatherer.locate(asked.key, is_strong=True, everywhere=True, remaining_ms=remaining_ms)
        if not located.copies:
            raise MessageNotFoundError(asked.target.conversation_id, asked.target.message_id)
        return located

    def _decide(self, asked: _Asked, located: Located[Message]) -> Callable[[], Message]:
        """Choose the copy that counts, check that its caller may change it, and plan how all copies are replaced."""
        target, key = asked.target, asked.key
        found = choose_copy([copy.item for copy in located.copies])
        if found.deleted_at is None:
            if not found.is_shown_at(self._clock.now_ms()):
                raise MessageNotFoundError(target.conversation_id, target.message_id)
            if target.sender is not None and target.sender != found.sender:
                raise NotTheSenderError("only who sent a message may edit or delete it")
        changed = asked.decide(found)
        if changed is None:
            return lambda: found
        if asked.unsure_of is not None and found.version > asked.unsure_of:
            raise StoreUnavailableError(_CHANGED_MEANWHILE)
        replacements = [_build_replacement(copy, changed) for copy in located.copies]
        if place := _find_missing_place(key, located):
            replacements.append(Replacement(changed.to_item(place), None))
        if not asked.is_counted:
            self._count(key, found, replacements)
            asked.is_counted = True
        return partial(self._replace, asked, found, changed, replacements)

    def _replace(self, asked: _Asked, found: Message, changed: Message, replacements: Sequence[Replacement]) -> Message:
        """Replace the copies once.

        Raises:
            RaceLostError: it was not done, or the outcome is unknown.
        """
        try:
            is_done = self._store.replace(replacements)
        except ThrottledError as error:
            self._telemetry.count(MetricName.WRITES_THROTTLED)
            raise RaceLostError(error) from error
        except StoreUnavailableError as error:
            asked.unsure_of = found.version
            raise RaceLostError(error) from error
        if not is_done:
            raise RaceLostError(RetryLaterError("others kept changing the message"))
        return changed

    def _count(self, key: ItemKey[str], found: Message, replacements: Sequence[Replacement]) -> None:
        """Count the write as offered. An item that is replaced costs the larger of both."""
        largest = max(item_size_bytes(replacement.item) for replacement in replacements)
        check_item_size(largest)
        units = write_units(max(largest, item_size_bytes(found.to_item(""))))
        factor = _TRANSACTION_FACTOR if len(replacements) > 1 else 1
        self._writer.count(key, float(factor * units * len(replacements)))


def _check_tag(target: Target, found: Message) -> None:
    if target.if_match is not None and found.etag not in target.if_match:
        raise MessageChangedError(found.etag)


def _find_missing_place(key: ItemKey[str], located: Located[Message]) -> str | None:
    """Name the first choice of a message of which no copy lies where point reads always look; None: one does."""
    looked_at = candidate_keys(located.route, key, KEY_FORM, choices=1)
    if any(copy.partition_key in looked_at for copy in located.copies):
        return None
    return choose_placement(located.route, key, KEY_FORM).partition_key


def _build_replacement(copy: Copy[Message], changed: Message) -> Replacement:
    version = copy.item.version
    expected = {"version": None if version == 1 else {"N": str(version)}}
    return Replacement(changed.to_item(copy.partition_key), expected)
