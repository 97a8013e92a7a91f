"""The clients: they write at their own times, repeat what was refused or lost, read in every way there is, and poll."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from itertools import islice
from math import ceil, inf
from typing import TYPE_CHECKING, Any

from hotpartition.core.errors import RetryLaterError
from hotpartition_messages import Message
from hotpartition_messages.errors import (
    MessageChangedError,
    MessageConflictError,
    MessageGoneError,
    MessageNotFoundError,
)
from hotpartition_messages.keys import parse_sort_key
from hotpartition_messages.message_ids import message_time_ms, mint_message_id
from hotpartition_messages.reading import MessageReader, PageRequest, PageResult
from hotpartition_messages.writing import Edit, MessageWriter, NewMessage, Target, Written
from tools.history import Seen
from tools.world.clock import EPOCH_MS, MOST_SKEW_MS, Work
from tools.world.functions import Function, NoResponseError, TooManyRequestsError
from tools.world.record import digest_of, seen
from tools.world.workload import ITEM_OVERHEAD_BYTES, WCU_BYTES, Arrival

if TYPE_CHECKING:
    from tools.world.run import MessageRun

NETWORK_SECONDS = 0.004
"""One way, gateway included."""
READ_ATTEMPTS = 5
MATCHING_SHARE = 0.3
"""Of the edits: they send `If-Match`, having read the message."""
LONGEST_EXPIRY_SECONDS = 20.0
LONGEST_READ_PAGES = 400
POLL_SECONDS = 0.5
AUDIT_SECONDS = 600.0
"""Longest time that the reads at the end may take."""
SETTLED_SECONDS = 3.0
"""By then each writer has learned of a route."""
OTHER_CONTENT_SHARE = 0.3
"""Of the repetitions of writes to conversations that are never raised."""
_REFUSALS = (RetryLaterError, TooManyRequestsError)


class _Clients:
    """Clients of one function: what they share, whatever they want of it."""

    def __init__(self, run: MessageRun, function: Function, chance: str) -> None:
        self.run, self.function, self.random = run, function, run.random(chance)
        self.engine, self.scenario, self.meter, self.record = run.engine, run.scenario, run.meter, run.record

    def _attempts(self, most: int) -> Iterator[int]:
        """Count the attempts of one request, with the pauses in between that `Retry-After` asks for."""
        for attempt in range(most):
            if attempt:
                self.engine.sleep(self.scenario.clients.retry_after_seconds * (1 + self.random.random() / 2))
            self.meter.operations += 1
            yield attempt

    def _send(self, call: Callable[[Any], Any]) -> Any:
        """Send a request, and wait for its response."""
        self.engine.sleep(NETWORK_SECONDS)
        response = self._invoke(call)
        self.engine.sleep(NETWORK_SECONDS)
        return response

    def _invoke(self, call: Callable[[Any], Any], function: Function | None = None) -> Any:
        return (function or self.function).invoke(call, timeout_seconds=self.scenario.clients.timeout_seconds)

    def _begin_at_random(self, per_second: float, work: Work) -> None:
        """Begin tasks at random until the workload's end."""
        if not per_second:
            return

        def begin() -> None:
            self.engine.spawn(work)
            self._begin_at_random(per_second, work)

        wait = self.random.expovariate(per_second)
        if self.engine.now + wait < self.scenario.seconds:
            self.engine.after(wait, begin)


class WritingClients(_Clients):
    """Those who write: one task for each message."""

    def start(self, arrivals: Iterator[Arrival]) -> None:
        """Let each message be written at its time: each plans the next one."""

        def begin(arrival: Arrival) -> None:
            self.engine.spawn(partial(self._write, arrival))
            self.start(arrivals)

        for arrival in islice(arrivals, 1):
            self.engine.at(arrival.at, partial(begin, arrival))

    def _write(self, arrival: Arrival) -> None:
        meter = self.meter
        wcu = float(max(1, ceil((arrival.body_bytes + ITEM_OVERHEAD_BYTES) / WCU_BYTES)))
        began = self.engine.now
        meter.note_offered(arrival.conversation_id, began, wcu)
        new = self._new_message(arrival)
        digest = digest_of(new.sender, new.body)
        if new.message_id is not None:
            place = arrival.conversation_id, new.message_id
            self.record.note_offer(*place, digest, offered_at=began, expires_at=_expiry(new))
        for _ in self._attempts(self.scenario.clients.attempts):
            meter.requests += 1
            try:
                written = self._send(partial(write, new))
            except _REFUSALS as error:
                if new.message_id is None and (message_id := _id_of(error)):
                    # It may have been stored under the id that the refusal names.
                    self.record.note_offer(new.conversation_id, message_id, digest)
                    new = replace(new, message_id=message_id)
            except NoResponseError:
                if new.message_id is None:
                    self.record.note_nameless(new.conversation_id, digest)
            except MessageGoneError:
                break  # it expired before it was stored
            else:
                meter.note_stored(began, wcu)
                place = arrival.conversation_id, written.message.message_id
                self.record.note_acknowledged(*place, digest, self.engine.now, expires_at=_expiry(new))
                self._write_again(new, place[1], began)
                return
        meter.note_failed(began, wcu)

    def _new_message(self, arrival: Arrival) -> NewMessage:
        random, share = self.random, self.scenario.changes.expiring_share
        message_id = self._mint(arrival) if random.random() < self.scenario.clients.minting_share else None
        expires_at_s = None
        if share and random.random() < share:
            expires_at_s = EPOCH_MS // 1000 + ceil(self.engine.now + random.random() * LONGEST_EXPIRY_SECONDS)
        what = arrival.conversation_id, arrival.sender, _body(arrival.body_bytes)
        return NewMessage(*what, message_id=message_id, expires_at_s=expires_at_s)

    def _write_again(self, new: NewMessage, message_id: str, began: float) -> None:
        """Send a write once more, long after its acknowledgement, as those do who keep a queue of their own.

        Other content under its id is refused. And it is answered as one that was stored before if nothing failed, the
        route was old when it was first sent (in any doubt a writer takes the base key), and it lies where it is put
        first: a put that finds room there does not look for copies elsewhere.
        """
        changes = self.scenario.changes
        if not changes.repeated_share or self.random.random() >= changes.repeated_share:
            return
        self.engine.sleep(self.random.random() * changes.again_seconds)
        # Where nothing is ever raised: elsewhere, a raise in between makes room for other content.
        is_other = new.conversation_id not in {*self.run.rooms, *self.meter.routed_at}
        is_other = is_other and self.random.random() < OTHER_CONTENT_SHARE
        again = replace(new, message_id=message_id, body=new.body + "!" * is_other)
        place = new.conversation_id, message_id
        is_known = self._is_settled(new, began) and self.run.is_at_first_choice(*place)
        try:
            written = self._invoke(partial(write, again))
        except (*_REFUSALS, NoResponseError, MessageGoneError):
            return
        except MessageConflictError:
            if is_other:
                return
            raise
        if is_other:
            self.record.note_misstated(*place, "other content was taken under its id")
        elif not written.is_replay and is_known and self._is_settled(new, began):
            self.record.note_misstated(*place, "its repetition was taken for a new one")

    def _is_settled(self, new: NewMessage, began: float) -> bool:
        routed_at = self.meter.routed_at.get(new.conversation_id, float("-inf"))
        return self.scenario.faults is None and routed_at < began - SETTLED_SECONDS

    def _mint(self, arrival: Arrival) -> str:
        skew_ms = self.scenario.clients.skew_ms
        if skew_ms:
            skew_ms = max(-MOST_SKEW_MS, min(MOST_SKEW_MS, self.random.gauss(0.0, skew_ms)))
        time_ms = EPOCH_MS + int((self.engine.now - arrival.age_seconds) * 1000 + skew_ms)
        return mint_message_id(time_ms, self.random.getrandbits)


class ChangingClients(_Clients):
    """Those who edit and delete what is known to be stored: one task for each change."""

    _recent: Sequence[tuple[str, str]] = ()
    _edits = 0

    def start(self) -> None:
        """Begin changes at random until the workload's end."""
        self._begin_at_random(self.scenario.changes.per_second, self._change)

    def _change(self) -> None:
        place = self._choose()
        if place is None:
            return
        conversation_id, message_id = place
        target = Target(conversation_id=conversation_id, message_id=message_id)
        if self.random.random() < self.scenario.changes.deletions:
            self._run(target, lambda writer: writer.delete(target), None)
            return
        read_at = inf
        if self.random.random() < MATCHING_SHARE:
            tag, read_at = self._read_tag(place), self.engine.now
            if tag is None:
                return
            target = replace(target, if_match=frozenset({tag}))
        self._edits += 1
        sender = self.record.sender_of(conversation_id, message_id)
        body = f"edit {self._edits}"
        edit, digest = Edit(body=body), digest_of(sender, body)
        self._run(target, lambda writer: writer.edit(target, edit), digest, read_at=read_at)

    def _run(
        self, target: Target, change: Callable[[MessageWriter], object], digest: str | None, *, read_at: float = inf
    ) -> None:
        """Change a message, and repeat what was refused or lost.

        `digest`: of what it is edited to; `read_at`: when the state was read that it must still have.
        """
        place, engine = (target.conversation_id, target.message_id), self.engine
        began, ended = engine.now, inf
        for attempt in self._attempts(self.scenario.clients.attempts):
            sent_at = engine.now
            try:
                self._send(change)
            except _REFUSALS:
                continue
            except NoResponseError:
                # It may go on, and be done at any later time.
                self.record.note_change(*place, began=began, digest=digest)
            except (MessageChangedError, MessageGoneError, MessageNotFoundError) as error:
                if not isinstance(error, MessageChangedError):
                    self.record.note_lookup(*place, (), began, engine.now)
                if attempt:
                    break  # an attempt before this one may have been done
                return
            else:
                ended = engine.now
                if self.record.was_changed(*place, after=read_at, before=sent_at):
                    self.record.note_misstated(*place, "was edited, with the tag of a state that it had no longer")
                break
        self.record.note_change(*place, began=began, ended_at=ended, digest=digest)

    def _choose(self) -> tuple[str, str] | None:
        """Choose a message that is known to be stored: one that was just changed, a new one, or any."""
        if self._recent and self.random.random() < self.scenario.changes.again_share:
            return self.random.choice(self._recent)
        conversations = self.record.conversations
        hot = self.scenario.hot_conversation
        if not conversations:
            return None
        conversation_id = hot if self.random.random() < 0.6 else self.random.choice(conversations)
        ids = self.record.acknowledged_ids(conversation_id)
        if not ids:
            return None
        place = conversation_id, self.random.choice(ids[-50:] if self.random.random() < 0.5 else ids)
        self._recent = (*self._recent, place)[-5:]
        return place

    def _read_tag(self, place: tuple[str, str]) -> str | None:
        try:
            return str(self._invoke(partial(read_one, place), self.run.reading).etag)
        except (*_REFUSALS, NoResponseError, MessageGoneError, MessageNotFoundError):
            return None


class ReadingClients(_Clients):
    """Those who read: each read is one task, page by page."""

    _polling = 0
    _is_all_written = False

    def start(self) -> None:
        """Begin reads at random until the workload's end, and polls of the hot conversation until the audit."""
        for limit in self.scenario.readers.poll_limits:
            self._polling += 1
            self.engine.spawn(lambda limit=limit: self._poll(limit))  # type: ignore[misc]
        self._begin_at_random(self.scenario.readers.per_second, self._read_something)

    def audit(self) -> None:
        """Read everything, strongly consistent, in both orders; when all faults are over.

        The pollers go on until they have walked once more.
        """
        self._is_all_written = True

        def read_all() -> None:
            while self._polling:
                self.engine.sleep(POLL_SECONDS)
            for conversation_id in self.record.conversations:
                for newest_first in (True, False):
                    self._read(PageRequest(conversation_id, newest_first, limit=200, is_strong=True))

        self.engine.run_to_end(read_all, AUDIT_SECONDS)

    def _read_something(self) -> None:
        plan, random = self.scenario.readers, self.random
        conversation_id = self._choose_conversation()
        is_strong = random.random() < plan.strong_share
        newest_first = random.random() < 0.5
        request = PageRequest(conversation_id, newest_first, random.choice(plan.long_limits), is_strong=is_strong)
        newest = replace(request, newest_first=True, limit=random.choice(plan.limits))
        kinds: tuple[Callable[[], None], ...] = (
            lambda: self._read(newest, pages=1),
            lambda: self._read(request),
            lambda: self._read_between(request),
            lambda: self._look_up(conversation_id),
        )
        (read,) = random.choices(kinds, (plan.newest, plan.complete, plan.bounded, plan.lookups))
        read()

    def _choose_conversation(self) -> str:
        known = self.record.conversations
        is_hot = self.random.random() < self.scenario.readers.hot_share or not known
        return self.scenario.hot_conversation if is_hot else self.random.choice(known)

    def _read_between(self, request: PageRequest) -> None:
        """Read everything between two times that are near those of messages."""
        ids = self.record.acknowledged_ids(request.conversation_id)
        if not ids:
            return
        times = sorted(message_time_ms(self.random.choice(ids)) for _ in range(2))
        after, before = times[0] + self.random.randint(-1, 1), times[1] + self.random.randint(0, 2)
        bounds = self.random.randrange(3)
        after_ms, before_ms = None if bounds == 1 else max(after, 0), None if bounds == 2 else before
        self._read(replace(request, after_ms=after_ms, before_ms=before_ms))

    def _read(self, request: PageRequest, *, pages: int = LONGEST_READ_PAGES) -> None:
        """Read so many pages at most; a read between two times counts only if it came to its end."""
        got: list[PageResult] = []
        started_at = ended_at = self.engine.now
        while len(got) < pages and (not got or request.cursor is not None):
            began, response = self._ask(request)
            if response is None:
                break
            self.meter.note_page(request.conversation_id, began)
            started_at, ended_at = began if not got else started_at, self.engine.now
            got.append(response)
            request = replace(request, cursor=response.next_cursor)
        is_bounded = request.after_ms is not None or request.before_ms is not None
        if got and (request.cursor is None or not is_bounded):
            self.record.note_read(request, got, started_at, ended_at)

    def _poll(self, limit: int) -> None:
        """Poll as the API's document says: walk to the end, go on at `settled_until`, ignore what was seen."""
        first = PageRequest(self.scenario.hot_conversation, newest_first=False, limit=limit, is_strong=True)
        found: dict[str, Seen] = {}
        is_last = False
        while not is_last:
            is_last, began, request = self._is_all_written, self.engine.now, first
            while True:
                _, page = self._ask(request)
                if page is None:
                    continue  # refused for long: asked for again
                for message in seen(page.messages):
                    found.setdefault(message.message_id, message)
                if page.next_cursor is None:
                    break
                request = replace(request, cursor=page.next_cursor)
            settled_ms = round(datetime.fromisoformat(page.settled_until).timestamp() * 1000)
            first = replace(first, after_ms=settled_ms)
            self.engine.sleep(POLL_SECONDS)
        # A function whose clock is ahead takes the past for settled so much sooner.
        ahead_ms = MOST_SKEW_MS if self.run.plan.skew_ms else 0.0
        settle_seconds = self.run.settings["read"].settle_seconds - ahead_ms / 1000
        self.record.note_poll(first.conversation_id, found, began, settle_seconds)
        self._polling -= 1

    def _ask(self, request: PageRequest) -> tuple[float, PageResult | None]:
        began, page = self._try(lambda reader: reader.read_page(request))
        if page is None:
            self.meter.note_page(request.conversation_id, began, is_answered=False)
        return began, page

    def _look_up(self, conversation_id: str) -> None:
        ids = self.record.acknowledged_ids(conversation_id)
        if not ids:
            return
        recent = ids[-200:] if self.random.random() < 0.7 else ids
        place = conversation_id, self.random.choice(recent)
        began, found = self._try(lambda reader: seen([read_one(place, reader)]))
        if found is not None:
            self.record.note_lookup(*place, found, began, self.engine.now)

    def _try(self, call: Callable[[MessageReader], Any]) -> tuple[float, Any]:
        """Ask until there is a response; return when its request began, and the response: nothing, if it is absent."""
        for _ in self._attempts(READ_ATTEMPTS):
            began = self.engine.now
            try:
                return began, self._send(call)
            except (MessageNotFoundError, MessageGoneError):
                return began, ()
            except (*_REFUSALS, NoResponseError):
                continue
        return began, None


def write(new: NewMessage, writer: MessageWriter) -> Written:
    """Write a message."""
    return writer.write(new)


def read_one(place: tuple[str, str], reader: MessageReader) -> Message:
    """Read one message, strongly consistent."""
    return reader.read_message(*place, is_strong=True)


@cache
def _body(size_bytes: int) -> str:
    """Make up a body; equal ones share their memory."""
    return "x" * size_bytes


def _expiry(new: NewMessage) -> float:
    """Return when a message expires, in seconds of the run."""
    return inf if new.expires_at_s is None else new.expires_at_s - EPOCH_MS / 1000


def _id_of(error: Exception) -> str | None:
    """Return the id that a refusal names, where it does."""
    sort_key: str | None = getattr(error, "sort_key", None)
    return sort_key and parse_sort_key(sort_key)
