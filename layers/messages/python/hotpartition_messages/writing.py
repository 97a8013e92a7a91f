"""Stores messages through the engine's writer, and edits and deletes them where they are stored.

No copy of an older version wins over a change. Every copy is located (strongly, the journal included); the next version
of the one that counts is put in its place, if it is still the one that was found (`engine/changing.py`). A deletion
puts a tombstone, which nothing replaces and which never expires. Where a message has several copies (a retry across a
raise), one transaction gives all of them the new version. Where it lies only at a later choice, the same transaction
puts the new version at its first choice, too: point reads stop there when they find something.

docs/architecture.md says why nothing deleted comes back, and no edit is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.capacity import Item, item_size_bytes, write_units
from hotpartition.core.errors import RetryLaterError, StoreUnavailableError, ThrottledError
from hotpartition.core.items import ItemKey
from hotpartition.core.merge import choose_copy
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Copy, Telemetry
from hotpartition.core.route import candidate_keys, choose_placement
from hotpartition.core.times import format_time
from hotpartition.dynamodb.item_store import DynamoDBItemStore, Replacement
from hotpartition.engine.changing import RaceLostError, change_located
from hotpartition.engine.gatherer import Gatherer, Located
from hotpartition.engine.writer import Writer
from hotpartition_messages.attributes import NO_ATTRIBUTES, EncodedAttributes
from hotpartition_messages.errors import (
    MessageChangedError,
    MessageConflictError,
    MessageGoneError,
    MessageNotFoundError,
    NotTheSenderError,
)
from hotpartition_messages.keys import KEY_FORM, build_key, check_item_size
from hotpartition_messages.message_ids import MAX_MINTED_AHEAD_MS, check_not_ahead, message_time_ms, mint_message_id
from hotpartition_messages.messages import Message

DAY_SECONDS = 86_400
_TRANSACTION_FACTOR = 2
_CHANGED_MEANWHILE = "the message was changed by somebody else meanwhile"


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store. Without `message_id` the server mints one.

    `expires_at_s` is Unix time in s. REQUIRES: checked ids, the message's in canonical form.
    """

    conversation_id: str
    sender: str
    body: str
    attributes: EncodedAttributes = NO_ATTRIBUTES
    message_id: str | None = None
    expires_at_s: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """An acknowledged message. `is_replay`: it had been stored before, with the same content."""

    message: Message
    is_replay: bool


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


@dataclass(eq=False, repr=False)
class MessageWriter:
    """Stores, edits and deletes messages. One per execution environment; serves one request at a time."""

    writer: Writer
    gatherer: Gatherer[str, Message]
    store: DynamoDBItemStore[Message]
    _: KW_ONLY
    telemetry: Telemetry
    clock: Clock
    random_bits: Callable[[int], int]
    budget_ms: float
    retention_days: int = 0
    """How long after its time a message expires at the latest; 0: never."""

    def write(self, new: NewMessage, *, remaining_ms: float = float("inf"), received_ms: int | None = None) -> Written:
        """Store a message, or find it stored already. `remaining_ms` is the time that the function has left.

        `received_ms` is when the gateway got the request, Unix ms by its clock. It bounds the time of an id that is
        made here: if this process's clock is ahead, the id is still one that every other process takes.

        Raises:
            InvalidRequestError: its id lies too far ahead.
            InvalidRequestError: sender or body is not valid Unicode.
            ItemTooLargeError: the item would pass DynamoDB's limit.
            MessageConflictError: its id is taken, at the same place, by other content.
            MessageGoneError: it was deleted or has expired, as far as its place shows, or it would have expired.
            RetryLaterError: DynamoDB refused for the whole budget; `sort_key` has the id to repeat with.
        """
        message_id = self._choose_id(new.message_id, received_ms)
        expires_at_s = self._choose_expiry(message_id, new.expires_at_s)
        message = Message(
            new.conversation_id, message_id, new.sender, new.body, new.attributes.stored, expires_at_s=expires_at_s
        )
        if not message.is_shown_at(self.clock.now_ms()):
            raise MessageGoneError(message.conversation_id, message_id)
        attributes = message.to_attributes()
        size_bytes = _size_bytes(attributes, new)
        check_item_size(size_bytes)
        key = build_key(message.conversation_id, message_id)

        def put(partition_key: str) -> Message | None:
            return self.store.create({"pk": {"S": partition_key}, **attributes})

        def find(partition_keys: Sequence[str]) -> Message | None:
            places = [(partition_key, key.sort_key) for partition_key in partition_keys]
            copies = self.store.get(places, is_strong=True).copies
            return choose_copy([copy.item for copy in copies]) if copies else None

        existing = self.writer.write(
            key,
            put=put,
            find=find,
            size_bytes=size_bytes,
            may_be_stored=new.message_id is not None,
            remaining_ms=remaining_ms,
        )
        if existing is None:
            return Written(message, is_replay=False)
        if not existing.is_shown_at(self.clock.now_ms()):
            raise MessageGoneError(message.conversation_id, message_id)
        if existing.has_same_content(message):
            # With an id minted here, the stored message is this request's own attempt, whose response was lost.
            return Written(existing, is_replay=new.message_id is not None)
        raise MessageConflictError(message.conversation_id, message.message_id)

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
                edited_at=format_time(self.clock.now_ms()),
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
            return found.delete(deleted_at=format_time(self.clock.now_ms()))

        self._change(target, decide, remaining_ms)

    def _choose_expiry(self, message_id: str, wanted_s: int | None) -> int | None:
        """Choose when a message expires. The retention counts from its id's time, so a repetition has the same."""
        if not self.retention_days:
            return wanted_s
        kept_until_s = -(-message_time_ms(message_id) // 1000) + self.retention_days * DAY_SECONDS
        return kept_until_s if wanted_s is None else min(wanted_s, kept_until_s)

    def _choose_id(self, wanted: str | None, received_ms: int | None) -> str:
        now_ms = self.clock.now_ms()
        if wanted is None:
            latest_ms = now_ms if received_ms is None else received_ms + MAX_MINTED_AHEAD_MS
            return mint_message_id(min(now_ms, latest_ms), self.random_bits)
        check_not_ahead(wanted, max(now_ms, received_ms or 0))
        return wanted

    def _change(self, target: Target, decide: Callable[[Message], Message | None], remaining_ms: float) -> Message:
        """Replace a message by the decided one; decide anew when it was changed meanwhile."""
        budget_ms = min(self.budget_ms, remaining_ms)
        deadline_ms = self.clock.now_ms() + budget_ms
        asked = _Asked(target, build_key(target.conversation_id, target.message_id), decide)
        try:
            return change_located(
                lambda: self._locate(asked, deadline_ms - self.clock.now_ms()),
                partial(self._decide, asked),
                may_repeat=Budget(self.clock, budget_ms).wait,
            )
        except (MessageChangedError, MessageGoneError, MessageNotFoundError) as error:
            # An attempt without a response may have succeeded before the state that now forbids the change.
            if asked.unsure_of is None:
                raise
            raise StoreUnavailableError(_CHANGED_MEANWHILE) from error

    def _locate(self, asked: _Asked, remaining_ms: float) -> Located[Message]:
        """Find all copies of a message."""
        located = self.gatherer.locate(asked.key, is_strong=True, everywhere=True, remaining_ms=remaining_ms)
        if not located.copies:
            raise MessageNotFoundError(asked.target.conversation_id, asked.target.message_id)
        return located

    def _decide(self, asked: _Asked, located: Located[Message]) -> Callable[[], Message]:
        """Choose the copy that counts, check that its caller may change it, and plan how all copies are replaced."""
        target, key = asked.target, asked.key
        found = choose_copy([copy.item for copy in located.copies])
        if found.deleted_at is None:
            if not found.is_shown_at(self.clock.now_ms()):
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
            is_done = self.store.replace(replacements)
        except ThrottledError as error:
            self.telemetry.count(MetricName.WRITES_THROTTLED)
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
        self.writer.count(key, float(factor * units * len(replacements)))


def _size_bytes(item: Item, new: NewMessage) -> int:
    """Measure an item at its base key; its attributes were measured when they were encoded."""
    key_bytes = len("pk") + len(new.conversation_id)
    if "attributes" not in item:
        return key_bytes + item_size_bytes(item)
    return key_bytes + item_size_bytes({**item, "attributes": {"S": ""}}) + new.attributes.size_bytes


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
