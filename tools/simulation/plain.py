"""What strategies have in common, and writers and readers that know nothing of routes: what the rivals are built from.

Those share with the product the conditional put, the fan-out and the merge of pages, and, unless a rival brings its
own, the retries within a request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hotpartition.control.consumer import RunSummary
from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.merge import KeyQuery, PageMerge, QueryResponse
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.errors import RetryLaterError
from hotpartition_messages import Message
from hotpartition_messages.cursor import Cursor
from hotpartition_messages.errors import MessageNotFoundError
from hotpartition_messages.keys import KEY_FORM, build_sort_key, position_of
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.reading import PageResult, build_range
from hotpartition_messages.writing import NewMessage, Written
from tools.simulation.clients import Lookup, ReadHandler, ReadRequest, ReadResponse, WriteHandler
from tools.simulation.engine import Process
from tools.simulation.functions import Function
from tools.simulation.scenarios import Scenario
from tools.simulation.wiring import TABLE, World, open_reader_calls

Place = Callable[[str, str], str]
"""Chooses the key of a conversation's message."""
Keys = Callable[[str], tuple[str, ...]]
"""Lists all keys that a conversation's messages can be at."""


@dataclass(slots=True)
class Strategy(ABC):
    """One way to deal with a hot key."""

    name: str
    """What it is called in results."""
    skipped_seconds: float = field(default=0.0, kw_only=True)
    """How much of the rush is left out, because nothing changes in it before this strategy acts."""
    watchers: Function[float, RunSummary] | None = field(default=None, init=False)
    """The function that watches the load, once it is started."""

    def start(self, world: World, scenario: Scenario) -> None:
        """Start what runs beside the requests: nothing."""
        del world, scenario

    def shard_count(self, scenario: Scenario) -> int:
        """Return the N of the hot conversation as long as nothing is raised; 0: its own key only."""
        del scenario
        return 0

    @abstractmethod
    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Build one environment of the write function."""

    @abstractmethod
    def build_reader(self, world: World, process: Process, index: int) -> ReadHandler:
        """Build one environment of the read function."""


class Waits(Protocol):
    """One request's retries."""

    def wait(self) -> bool:
        """Wait before the next attempt; False when there is to be none."""
        ...


Retries = Callable[[Clock], Waits]


class PlainWriter:
    """Puts messages at the keys that it is told, with the product's condition and retries."""

    def __init__(self, world: World, index: int, place: Place, retries: Retries | None = None) -> None:
        random = world.random(f"writer-{index}")
        self._clock = world.clock(random)
        self._store = DynamoDBItemStore(ThreadedCalls(world.store.client("writer").call), TABLE, Message.from_item)
        self._random_bits = random.getrandbits
        budget_ms = world.settings.writer.requests.request_budget_ms
        self._retries: Retries = retries or (lambda clock: Budget(clock, budget_ms))
        self._place = place
        self._observer = world.store.observer

    def write(self, new: NewMessage) -> Written:
        """Put a message, and put it again for as long as the retries last."""
        message = self.name_message(new)
        item = message.to_item(self._place(new.conversation_id, message.message_id))
        retries = self._retries(self._clock)
        while True:
            try:
                existing = self._store.create(item)
            except RetryLaterError as error:
                self._observer.waited()
                if not retries.wait():
                    error.sort_key = message.sort_key
                    raise
                continue
            return Written(message, is_replay=existing is not None)

    def name_message(self, new: NewMessage) -> Message:
        """Build the message, with an id if the client gave none."""
        message_id = new.message_id or mint_message_id(self._clock.now_ms(), self._random_bits)
        return Message(new.conversation_id, message_id, new.sender, new.body, new.attributes.stored)


@dataclass(slots=True)
class _KeysMerge(PageMerge[str, Message]):
    """A merge over keys that are known beforehand."""

    keys: tuple[str, ...] = ()

    def _needed(self, route: Route, edge: str | None) -> tuple[str, ...]:
        del route, edge
        return self.keys


class PlainReader:
    """Reads pages from the keys that it is told, with the product's fan-out, retries and merge."""

    def __init__(self, world: World, process: Process, index: int, keys: Keys) -> None:
        settings = world.settings.reader
        self._clock = world.clock(world.random(f"reader-{index}"))
        calls = open_reader_calls(world, process, policy=None)
        self._store = DynamoDBItemStore(calls, TABLE, Message.from_item)
        self._budget_ms = settings.requests.request_budget_ms
        self._keys = keys

    def read(self, request: ReadRequest) -> ReadResponse:
        """Read a page, or one message."""
        if isinstance(request, Lookup):
            return self._look_up(request)
        page_range = build_range(request)
        if page_range is None:
            return PageResult((), None, "")
        budget = Budget(self._clock, self._budget_ms)
        merge = _KeysMerge(page_range, KEY_FORM, position_of, keys=self._keys(request.conversation_id))
        while queries := merge.next_queries(EMPTY_ROUTE):
            self._run_round(merge, queries, budget, is_strong=request.is_strong)
        page = merge.page()
        cursor = Cursor(page.items[-1].message_id, walk_started_ms=0) if page.has_more else None
        return PageResult(page.items, cursor, "")

    def _run_round(
        self, merge: PageMerge[str, Message], queries: list[KeyQuery[str]], budget: Budget, *, is_strong: bool
    ) -> None:
        while queries:
            fetched = self._store.fetch(queries, is_strong=is_strong)
            failures: list[tuple[KeyQuery[str], RetryLaterError]] = []
            for query, response in zip(queries, fetched.responses, strict=True):
                if isinstance(response, QueryResponse):
                    merge.add(query, response)
                else:
                    failures.append((query, response))
            if failures and not budget.wait():
                raise failures[0][1]
            queries = [query for query, _ in failures]

    def _look_up(self, lookup: Lookup) -> Message:
        keys = self._keys(lookup.conversation_id)
        places = [(key, build_sort_key(lookup.message_id)) for key in keys]
        found = self._store.get(places, is_strong=lookup.is_strong).copies
        if not found:
            raise MessageNotFoundError(lookup.conversation_id, lookup.message_id)
        return found[0].item
