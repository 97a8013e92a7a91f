"""The write job: place a message by the route as known, count it, store it once.

    route (cache, Redis, or the last known) ──> placement ──> conditional put ──> acknowledged
                                                  │ counter; a crossing's report is sent beside the put

A stale route is harmless (design.md, section 5), so nothing here locks or checks versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.capacity import ITEM_LIMIT_BYTES, Item, item_size_bytes, write_units
from hotpartition.core.counter import WriteCounter
from hotpartition.core.items import Message
from hotpartition.core.keys import SEPARATOR, parse_conversation_id
from hotpartition.core.message_ids import check_not_ahead, message_time_ms, mint_message_id, parse_message_id
from hotpartition.core.reports import Report
from hotpartition.core.route import MAX_SHARD_COUNT, Placement, choose_placement
from hotpartition.errors import (
    InvalidRequestError,
    MessageConflictError,
    MessageTooLargeError,
    Problem,
    RetryLaterError,
    ThrottledError,
)
from hotpartition.jobs.route_cache import RouteSource
from hotpartition.ports import MessageStore, ReportSink, Telemetry

ValueT = TypeVar("ValueT")

LONGEST_SUFFIX_BYTES = len(SEPARATOR) + len(str(MAX_SHARD_COUNT - 1))


@dataclass(frozen=True, slots=True)
class NewMessage:
    """What a client asks to store. Without `message_id` the server mints one."""

    conversation_id: str
    sender: str
    body: str
    attributes: Mapping[str, Any]
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """An acknowledged message. `is_replay`: it had been stored before, with the same content."""

    message: Message
    is_replay: bool


class Writer:
    """Writes messages. One per execution environment; serves one request at a time."""

    def __init__(
        self,
        *,
        store: MessageStore,
        routes: RouteSource,
        counter: WriteCounter,
        reports: ReportSink,
        telemetry: Telemetry,
        clock: Clock,
        random_bits: Callable[[int], int],
        budget_ms: float,
    ) -> None:
        self._store = store
        self._routes = routes
        self._counter = counter
        self._reports = reports
        self._telemetry = telemetry
        self._clock = clock
        self._random_bits = random_bits
        self._budget_ms = budget_ms

    def write(self, new: NewMessage, *, remaining_ms: float = float("inf")) -> Written:
        """Store a message, or find it stored already.

        Args:
            new: the message.
            remaining_ms: time the function has left; the budget never passes it.

        Raises:
            InvalidRequestError: naming every wrong field.
            MessageTooLargeError: the item would pass DynamoDB's limit.
            MessageConflictError: its id is taken, at the same place, by other content.
            RetryLaterError: DynamoDB refused for the whole budget; `message_id` is the id to repeat with.
        """
        now_ms = self._clock.now_ms()
        # Reports are sent beside the requests, so what was dropped is known, and counted, a request later.
        if dropped := self._reports.take_dropped():
            self._telemetry.count("ReportsDropped", dropped)
        message, item = self._build_message(new, now_ms)
        base_bytes = item_size_bytes(item)
        # With the longest suffix, so that a retry across a raise cannot become too large.
        if base_bytes + LONGEST_SUFFIX_BYTES > ITEM_LIMIT_BYTES:
            raise MessageTooLargeError(base_bytes + LONGEST_SUFFIX_BYTES, ITEM_LIMIT_BYTES)
        try:
            return self._store_message(message, item, base_bytes, now_ms, min(self._budget_ms, remaining_ms))
        except RetryLaterError as error:
            error.message_id = message.message_id
            raise

    def _build_message(self, new: NewMessage, now_ms: int) -> tuple[Message, Item]:
        """Build the message, and its item as it would be on the base key."""
        problems: list[Problem] = []
        conversation_id = _collect(problems, lambda: parse_conversation_id(new.conversation_id), default="")
        message_id = _collect(problems, lambda: self._message_id(new.message_id, now_ms), default="0" * 26)
        message = Message(conversation_id, message_id, new.sender, new.body, new.attributes)
        item: Item = _collect(problems, lambda: message.to_item(conversation_id), default={})
        if problems:
            raise InvalidRequestError(problems)
        return message, item

    def _message_id(self, wanted: str | None, now_ms: int) -> str:
        if wanted is None:
            return mint_message_id(now_ms, self._random_bits)
        message_id = parse_message_id(wanted)
        check_not_ahead(message_id, now_ms)
        return message_id

    def _store_message(self, message: Message, item: Item, base_bytes: int, now_ms: int, budget_ms: float) -> Written:
        budget = Budget(self._clock, budget_ms)
        route = self._routes.get_route(message.conversation_id, now_ms)
        placement = choose_placement(route, message.conversation_id, message.message_id)
        report = self._count(message, base_bytes, placement, now_ms)
        while True:
            try:
                existing = self._store.put({**item, "pk": {"S": placement.partition_key}})
            except RetryLaterError as error:
                if isinstance(error, ThrottledError):
                    report = self._report_throttle(report, error)
                if not budget.wait():
                    raise
                if isinstance(error, ThrottledError) and error.is_key_range:
                    # The conversation may have been raised meanwhile: this very message may have a better place now.
                    route = self._routes.refresh_after_throttle(message.conversation_id, self._clock.now_ms())
                    placement = choose_placement(route, message.conversation_id, message.message_id)
                continue
            return self._acknowledge(message, existing)

    def _count(self, message: Message, base_bytes: int, placement: Placement, now_ms: int) -> Report | None:
        """Count the write as offered; report it, beside the put, if it crosses a sampling point."""
        suffix_bytes = len(placement.partition_key) - len(message.conversation_id)
        wcu = write_units(base_bytes + suffix_bytes)
        crossing = self._counter.record(message.conversation_id, wcu, now_ms)
        if crossing is None:
            return None
        report = Report(
            conversation_id=message.conversation_id,
            slot=crossing.slot,
            source=crossing.source,
            value_wcu=crossing.value_wcu,
            message_time_ms=message_time_ms(message.message_id),
            shard_count=placement.shard_count,
        )
        self._reports.send(report)
        return report

    def _report_throttle(self, report: Report | None, error: ThrottledError) -> Report | None:
        """Count a throttle; where a report was sent, say in it that its write was throttled."""
        self._telemetry.count("WritesThrottled")
        if report is None or report.is_throttled or not error.is_key_range:
            return report
        throttled = report._replace(is_throttled=True)
        self._reports.send(throttled)
        return throttled

    def _acknowledge(self, message: Message, existing: Message | None) -> Written:
        if existing is None:
            return Written(message, is_replay=False)
        if existing.has_same_content(message):
            return Written(existing, is_replay=True)
        raise MessageConflictError(message.conversation_id, message.message_id)


def _collect(problems: list[Problem], parse: Callable[[], ValueT], *, default: ValueT) -> ValueT:
    """Run one check; what it finds wrong joins the list, so that all wrong fields are named at once."""
    try:
        return parse()
    except InvalidRequestError as error:
        problems.extend(error.problems)
        return default
