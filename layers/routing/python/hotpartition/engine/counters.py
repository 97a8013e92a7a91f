"""Counters: additions that are spread over the shards of a key, and their sum.

    add ── writer: place, count, report ──> one shard: ADD ──> done
     │                                        └ refused: the next choice; then wait, take the route again, and draw
     │                                                   other choices if there is no token
     └ with a token: a transaction under DynamoDB's token for it ── bound to another request ──> find that one

Why an addition with a token counts once, wherever its repetitions go: DynamoDB lets one set of parameters happen under
a token, once, for ten minutes. A shard is one of the parameters. So whatever writers know, where they try and what
became of earlier attempts, at most one shard counts it; all that is left is to find out which (decision 44).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.counter_items import CELLS, Addition, Cell
from hotpartition.core.errors import RetryLaterError, TokenReusedError
from hotpartition.core.items import ItemKey
from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import KeyQuery, QueryResponse
from hotpartition.core.ports import CounterStore, JournalReading
from hotpartition.core.route import MAX_CHOICES, Route, keys_of_hashed, needed_keys
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.writer import Writer

TRANSACTION_FACTOR = 2
"""The cost of a transaction, in units of a plain write."""
_ITEMS = CELLS + 2
"""More than a shard of a counter has items."""


@dataclass(eq=False, repr=False)
class Adder:
    """Adds to counters. One per execution environment, or one per process; safe under threads if its writer is."""

    writer: Writer
    store: CounterStore
    _: KW_ONLY
    journal: JournalReading | None
    """Names every place where a token may be bound; None: the writer's routes do."""
    form: KeyForm
    clock: Clock
    budget_ms: float
    choices: int = MAX_CHOICES

    def add(self, collection: str, amount: int, *, size_bytes: int, remaining_ms: float = float("inf")) -> None:
        """Add an amount to a counter, on any of its shards.

        `size_bytes`: of its item at its base key, as DynamoDB counts. The budget never passes `remaining_ms`.

        Raises:
            OutcomeUnknownError: it may have been counted, or not.
            RetryLaterError: it was not counted: DynamoDB refused for the whole budget.
        """
        self.writer.write(
            ItemKey(collection, "", self.clock.now_ms(), self._draw()),
            put=lambda partition_key: self.store.add(partition_key, amount),
            find=lambda _: None,
            size_bytes=size_bytes,
            may_be_stored=False,
            remaining_ms=remaining_ms,
            draw=self._draw,
            is_timed=False,
        )

    def _draw(self) -> str:
        """Draw a text to choose shards by: an addition without a token is never looked up, so any will do."""
        return repr(self.clock.random())

    def add_once(
        self, collection: str, addition: Addition, *, size_bytes: int, remaining_ms: float = float("inf")
    ) -> None:
        """Make an addition, unless any process made it before: exact for ten minutes.

        Parameters as of `add`.

        Raises:
            TokenReusedError: the token stands for another amount.
            RetryLaterError: DynamoDB refused for the whole budget, or the outcome is unknown; repeating it is safe.
        """
        now_ms = self.clock.now_ms()
        deadline_ms = now_ms + min(self.budget_ms, remaining_ms)

        def put(partition_key: str) -> bool | None:
            # False: the token is bound to another request. The writer takes that for something that is there already.
            return None if self.store.add_once(partition_key, addition) else False

        is_bound = self.writer.write(
            ItemKey(collection, "", now_ms, addition.request_token),
            put=put,
            # Wherever it is tried next, the token lets one attempt happen: nothing has to be looked up before.
            find=lambda _: None,
            size_bytes=size_bytes,
            may_be_stored=False,
            remaining_ms=remaining_ms,
            factor=TRANSACTION_FACTOR,
            is_timed=False,
        )
        if is_bound is not None:
            self._repeat_bound(collection, addition, Budget(self.clock, deadline_ms - self.clock.now_ms()))

    def _repeat_bound(self, collection: str, addition: Addition, budget: Budget) -> None:
        """Find the request that the token is bound to, and send that one again.

        It is among the candidates under every generation that the journal has. A place that refuses for its load says
        nothing, nor does one whose response was lost: those are asked again. If no candidate takes it, in two walks, it
        was another amount: during the first, another attempt may have been under way at a place that was asked already.
        """
        ruled_out: set[str] = set()
        is_last_walk = False
        while True:
            failure: RetryLaterError | None = None
            try:
                places = self._find_candidates(collection, addition)
            except RetryLaterError as error:
                places, failure = (), error
            for place in places:
                if place in ruled_out:
                    continue
                try:
                    if self.store.add_once(place, addition):
                        return
                    ruled_out.add(place)
                except RetryLaterError as error:
                    failure = error
            if failure is None:
                if is_last_walk:
                    raise TokenReusedError
                ruled_out, is_last_walk = set(), True
            if not budget.wait():
                raise failure or RetryLaterError("an earlier request with this token may still be under way")

    def _find_candidates(self, collection: str, addition: Addition) -> tuple[str, ...]:
        """List every place that a writer may have tried, the first choices first.

        Only what the journal has shown: should the token be free after all, it is counted where readers look.
        """
        if self.journal is None:
            route = self.writer.routes.for_read(collection).route
        else:
            route = self.journal.get(collection, is_strong=True).route
        return keys_of_hashed(route, collection, addition.request_token, None, self.form, choices=self.choices)


@dataclass(eq=False, repr=False)
class Summer:
    """Sums counters up. One per execution environment, or one per process; safe under threads."""

    gatherer: Gatherer[str, Cell]
    _: KW_ONLY
    is_alone: bool
    """Nothing else lies under the partition keys, so the base key's query shows the routing item for free."""
    form: KeyForm

    def sum_up(self, collection: str, *, is_strong: bool, remaining_ms: float = float("inf")) -> int:
        """Return the sum of a counter: on its base key and on all shards.

        One that was never added to has 0. `is_strong`: all that was acknowledged before is in it, for twice the price.

        Raises:
            RetryLaterError: a shard could not be read within the budget.
            MalformedGenerationError: the routing item cannot be read.
        """
        plan = _Sum(collection, self.form, newest_first=self.is_alone)
        self.gatherer.run(plan, collection, is_strong=is_strong, remaining_ms=remaining_ms)
        return plan.total


@dataclass(slots=True)
class _Sum:
    """`Plan` of all items of a counter."""

    collection: str
    form: KeyForm
    newest_first: bool
    total: int = 0
    _reached: dict[str, str | None] = field(default_factory=dict)
    """How far each key was read that is not read to its end."""
    _exhausted: set[str] = field(default_factory=set)

    def next_queries(self, route: Route) -> list[KeyQuery[str]]:
        """Implement `Plan.next_queries`."""
        return [
            KeyQuery(key, self.newest_first, _ITEMS, after=self._reached.get(key))
            for key in needed_keys(route, self.collection, None, self.form)
            if key not in self._exhausted
        ]

    def add(self, query: KeyQuery[str], response: QueryResponse[str, Cell]) -> None:
        """Implement `Plan.add`."""
        self.total += sum(cell.amount for cell in response.items)
        self._reached[query.partition_key] = response.items[-1].sort_key if response.items else query.after
        if response.is_exhausted:
            self._exhausted.add(query.partition_key)

    def forget(self, key: str) -> None:
        """Implement `Plan.forget`: a counter's items never move."""
