"""`ShardedCounter`: counters on a boto3 `Table`, spread over shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from os import getpid
from threading import Lock
from typing import TYPE_CHECKING, Any

from hotpartition.core.backoff import Clock
from hotpartition.core.capacity import Item
from hotpartition.core.counter_items import build_addition, counter_size_bytes, list_sort_keys
from hotpartition.core.errors import InvalidRequestError
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore, decode_cell, describe_counters
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.python_values import PythonValuesCall, dump
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.engine.counters import Adder, Summer
from hotpartition.table.requests import Transport, check_sending
from hotpartition.table.routes import Shards, check_shards
from hotpartition.table.schema import Schema
from hotpartition.table.sharded_table import DEFAULT_BUDGET_MS, REAL_CLOCK, ShardedTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

Once = Callable[[str], Mapping[str, Any]]
"""Returns the attributes that the items of a key's counter are created with."""
MAX_AMOUNT = 10**18
"""Of one addition, up or down: the sum of 10 ** 19 of them is exact (DynamoDB's numbers have 38 digits)."""
MAX_TOKEN_BYTES = 1024
MAX_NAME_BYTES = 512


@dataclass(frozen=True, slots=True)
class _Parts:
    """Carries out the calls."""

    schema: Schema
    adder: Adder
    summer: Summer
    executor: Executor
    """Sums counters up at the same time."""


class ShardedCounter:
    """Counters of a table, each spread over the shards of its key. Safe under threads.

    A counter is one item for each shard that was added to (`<name>#`), and up to 16 more for additions with a token
    (`<name>#00` to `<name>#15`), with the attribute `counted`. Other items under its partition key are never changed.

    Example:
        >>> likes = ShardedCounter(boto3.resource("dynamodb").Table("counters"), shards=fixed(16), name="likes")
        >>> likes.add("post-1", token="ann")
        >>> likes.get("post-1")
        1
    """

    def __init__(
        self,
        table: Table | ShardedTable,
        shards: Shards | None = None,
        *,
        name: str = "count",
        once: Once | None = None,
        transport: Transport | None = None,
        budget_ms: float = DEFAULT_BUDGET_MS,
        clock: Clock = REAL_CLOCK,
    ) -> None:
        """Wrap a table. Sends no request: the table's keys are read with the first call.

        Args:
            table: a boto3 `Table` with a partition key and a sort key, both of type S; or a `ShardedTable`.
            shards: how many shards a counter has: `fixed(n)`, `in_band()` or `adaptive()`. None: as the `ShardedTable`.
            name: the thing counted: a key has one counter for each name. Sort keys that begin with it and `#` are its.
            once: returns attributes, by the counter's key, that each of its items is given when it is created, an
                expiry for instance. REQUIRES: the same ones each time.
            transport: `curl()` sends requests through libcurl; None: as the `ShardedTable`, or the table itself.
            budget_ms: how long one call may try again what DynamoDB refused.
            clock: time and chance, for tests.

        Raises:
            InvalidRequestError: the name is empty, or too long for a sort key.
            TypeError: nothing says how many shards a counter has.
        """
        _check_size("name", name, MAX_NAME_BYTES)
        if isinstance(table, ShardedTable):
            table, its_shards, its_transport = table.unwrap()
            shards, transport = shards or its_shards, transport or its_transport
        check_sending(transport, budget_ms)
        self._table = table
        self._shards = check_shards(shards)
        self._once = once
        self._transport = transport
        self._name = name
        self._budget_ms = budget_ms
        self._clock = clock
        self._built: tuple[int, _Parts] | None = None
        self._lock = Lock()

    def add(self, key: str, amount: int | Decimal = 1, token: str | None = None) -> None:
        """Add to a counter; a negative amount takes away.

        **Without a token**, one write unit. A refusal is tried again within the budget, and a `RetryLaterError` says
        that nothing was counted. No response is not tried again: `OutcomeUnknownError`, and the amount may be counted
        or not. (A client with retries of its own, as boto3's are by default, may count it twice then:
        `Config(retries={"total_max_attempts": 1})` does not.)

        **With a token**, two write units, and exact: whatever is repeated with it, by whomever, counts once, in all
        raises and failures. After a `RetryLaterError`, repeat the call. It holds for ten minutes from the token's first
        use: DynamoDB then forgets it, and it would count again.

        Args:
            key: the counter's partition key.
            amount: a whole number, as boto3 returns it, too (`Decimal`).
            token: names this addition among all of its counter: an order's id, for instance.

        Raises:
            InvalidRequestError: the key, the amount or the token cannot be.
            TokenReusedError: the token stands for another amount, which is counted; this one is not.
            OutcomeUnknownError: without a token: it may have been counted, or not.
            RetryLaterError: DynamoDB refused for the whole budget, or with a token did not respond.

        Example:
            >>> likes.add("post-1", -1)
        """
        parts, name = self._parts, self._name
        key = parts.schema.form.check(key)
        amount = check_amount(amount)
        size_bytes = counter_size_bytes(parts.schema.partition, parts.schema.sort, key, name)
        if token is None:
            parts.adder.add(key, amount, size_bytes=size_bytes)
            return
        _check_size("token", token, MAX_TOKEN_BYTES)
        addition = build_addition(self._table.name, name, key, token, amount)
        parts.adder.add_once(key, addition, size_bytes=size_bytes)

    def get(self, key: str, *, consistent: bool = True) -> int:
        """Return the sum of a counter; 0 for one that was never added to.

        Additions that are made meanwhile are in it or not, each for itself.

        Args:
            key: the counter's partition key.
            consistent: whether all that was acknowledged before is in it: one read unit for each shard. Without it,
                half of that, and the sum may lag, or go back between two reads: each shard lags for itself.

        Raises:
            RetryLaterError: a shard could not be read within the budget.
            MalformedGenerationError: the counter's routing item cannot be read.

        Example:
            >>> likes.get("post-1")
            0
        """
        parts = self._parts
        return parts.summer.sum_up(parts.schema.form.check(key), is_strong=consistent)

    def get_all(self, keys: Iterable[str], *, consistent: bool = True) -> list[int]:
        """Return the sums of several counters, in the order of their keys: as `get`, at the same time.

        Example:
            >>> likes.get_all(["post-1", "post-2"])
            [0, 0]
        """
        executor = self._parts.executor
        return list(executor.map(partial(self.get, consistent=consistent), keys))

    def __repr__(self) -> str:
        return f"ShardedCounter({self._table!r}, {self._shards!r}, name={self._name!r})"

    @property
    def _parts(self) -> _Parts:
        """Carries out the calls: built with a process's first, which asks DynamoDB for the table's keys."""
        with self._lock:
            if self._built is None or self._built[0] != getpid():  # a fork leaves threads behind
                self._built = getpid(), self._build()
            return self._built[1]

    def _build(self) -> _Parts:
        schema = Schema.of(self._table)
        if schema.sort_type != "S":
            raise NotImplementedError(
                f"the sort key of {self._table.name} ({schema.sort}) is no string, so no counter can be named in it. "
                "Use a table whose sort key is of type S"
            )
        # What may have been counted is not sent again: the transport has no time for that.
        reached: Any = self._table if self._transport is None else self._transport(self._table, self._clock, 0.0)
        routes = self._shards.build_routes(reached, schema, self._clock, self._budget_ms)
        schema = replace(schema, form=routes.engine.form)
        place = routes.journal or JournalPlace(self._table.name)
        client: Any = reached.meta.client
        parallel = client.meta.config.max_pool_connections
        calls = ThreadedCalls(
            PythonValuesCall(client),
            ThreadPoolExecutor(parallel, thread_name_prefix="hotpartition-counter"),
            parallel=parallel,
        )
        form = describe_counters(
            self._table.name,
            self._name,
            journal=place,
            keys=schema.form,
            partition_key=schema.partition,
            sort_key=schema.sort,
        )
        own = list_sort_keys(self._name)
        store = DynamoDBItemStore(calls, form, partial(decode_cell, sort_key=schema.sort, own=own))
        gatherer = routes.engine.gatherer(store=store, is_folding=routes.is_folding)
        return _Parts(
            schema,
            Adder(
                routes.engine.writer,
                DynamoDBCounterStore(calls, form, self._attributes_of),
                journal=DynamoDBJournal(calls, place) if routes.journal else None,
                form=schema.form,
                clock=self._clock,
                budget_ms=self._budget_ms,
                choices=routes.engine.choices,
            ),
            Summer(gatherer, is_alone=False, form=schema.form),
            ThreadPoolExecutor(parallel, thread_name_prefix="hotpartition-counters"),
        )

    def _attributes_of(self, key: str) -> Item:
        return {} if self._once is None else dump(self._once(key))


def check_amount(amount: object) -> int:
    """Return an amount as an `int`, also where boto3 returned it, as a `Decimal`.

    Raises:
        InvalidRequestError: it is not a whole number, or too large.
    """
    if isinstance(amount, Decimal) and amount.is_finite() and amount == amount.to_integral_value():
        amount = int(amount)
    if isinstance(amount, bool) or not isinstance(amount, int) or abs(amount) > MAX_AMOUNT:
        raise InvalidRequestError.of("amount", f"should be a whole number from -{MAX_AMOUNT} to {MAX_AMOUNT}")
    return amount


def _check_size(field: str, text: object, most_bytes: int) -> None:
    """Refuse what is not a text, and a text that is empty, too long or not valid Unicode.

    Raises:
        InvalidRequestError: naming the field.
    """
    try:
        size = len(text.encode()) if isinstance(text, str) else 0
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= most_bytes:
        raise InvalidRequestError.of(field, f"should be a text of 1 to {most_bytes} bytes of UTF-8")
