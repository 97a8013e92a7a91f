"""Counters in memory, with DynamoDB's rules: what a token lets happen, conditions of throughput on request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from hotpartition.core.counter_items import Addition, Cell
from hotpartition.core.errors import HotPartitionError
from hotpartition.core.merge import KeyQuery
from hotpartition.core.ports import Fetched, JournalEntry, QueryResponse
from tools.limits.request_tokens import RequestTokenError, RequestTokens


class FakeCounters:
    """`CounterStore`, `ItemStore` of cells, and `JournalReading`.

    `fails` is asked before each addition, and `loses` after it: what they return is raised.
    """

    def __init__(self, *, now: Callable[[], float] = lambda: 0.0, binds_cancelled: bool = False) -> None:
        self.cells: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.routes: dict[str, JournalEntry] = {}
        self.asked: list[str] = []
        """Partition keys of the additions that were tried, in order."""
        self.queried: list[str] = []
        self.fails: Callable[[str], HotPartitionError | None] = lambda _: None
        self.loses: Callable[[str], HotPartitionError | None] = lambda _: None
        self.fails_reading: Callable[[str], HotPartitionError | None] = lambda _: None
        self._tokens = RequestTokens(now, binds_cancelled=binds_cancelled)

    @property
    def total(self) -> int:
        return sum(self.cells.values())

    def add(self, partition_key: str, amount: int) -> None:
        self._strike(partition_key, self.fails)
        self.cells[partition_key, "c#"] += amount
        self._strike(partition_key, self.loses, is_asked=False)

    def add_once(self, partition_key: str, addition: Addition) -> bool:
        request = {
            "ClientRequestToken": addition.request_token,
            "place": [partition_key, addition.sort_key, addition.amount],
        }
        try:
            is_new = self._tokens.begin(request)
        except RequestTokenError:
            self.asked.append(partition_key)
            return False
        if is_new:
            try:
                self._strike(partition_key, self.fails)
            except HotPartitionError:
                self._tokens.end(request, is_done=False)
                raise
            self.cells[partition_key, addition.sort_key] += addition.amount
            self._tokens.end(request, is_done=True)
        self._strike(partition_key, self.loses, is_asked=not is_new)
        return True

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        failure = self.fails_reading(collection)
        if failure is not None:
            raise failure
        return self.routes.get(collection, JournalEntry())

    def fetch(self, queries: Sequence[KeyQuery], *, is_strong: bool, journal_of: str | None = None) -> Fetched[Cell]:
        responses = []
        for query in queries:
            self.queried.append(query.partition_key)
            failure = self.fails_reading(query.partition_key)
            cells = [Cell(sk, n) for (pk, sk), n in sorted(self.cells.items()) if pk == query.partition_key]
            responses.append(failure or QueryResponse(tuple(cells), is_exhausted=True))
        journal = None if journal_of is None else self.get(journal_of, is_strong=is_strong)
        return Fetched(tuple(responses), journal)

    def _strike(
        self, partition_key: str, what: Callable[[str], HotPartitionError | None], *, is_asked: bool = True
    ) -> None:
        if is_asked:
            self.asked.append(partition_key)
        failure = what(partition_key)
        if failure is not None:
            raise failure
