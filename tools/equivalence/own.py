"""The product's own requests, made by its adapters on two engines at once: each has the same response on both.

Routes and closes, load items, counters, messages with what changes them, and the walk over routing items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from hotpartition.core.counter_items import Addition
from hotpartition.core.errors import HotPartitionError
from hotpartition.core.fleet_load import Cell
from hotpartition.core.merge import KeyQuery
from hotpartition.core.route import Close, Generation
from hotpartition.core.route_history import Cause
from hotpartition.core.times import StoreClock
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore, describe_counters
from hotpartition.dynamodb.item_store import DynamoDBItemStore, Replacement
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.load_items import DynamoDBLoadItems
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.table.routes import open_calls
from hotpartition_messages import Message
from hotpartition_messages.keys import ROUTING_INDEX, describe_table
from hotpartition_messages.message_ids import mint_message_id
from tools.equivalence.compare import plain, require_equal
from tools.world.dynamodb import described

TABLE_NAME = "own"
TABLE = describe_table(TABLE_NAME)
MOST_STEPS = 25
START_MS = 1_800_000_000_000
_CAUSE = Cause("test")
_CONVERSATIONS = st.sampled_from(["room-1", "room-2"])
_PLACES = st.sampled_from(["room-1", "room-1#0", "room-1#1"])
_MESSAGES = st.integers(0, 2)
_NUMBERS = st.integers(0, 5)
Step = Callable[["Both"], object]
"""Makes requests of one kind."""


class Both:
    """`DynamoDBCalls` on two tables at once, and the product's adapters on that."""

    def __init__(self, counter: Counter[str], *tables: Any) -> None:
        self._counter = counter
        self._calls = [open_calls(table) for table in tables]
        calls = ThreadedCalls(self.call)
        counters = describe_counters(TABLE_NAME, "c", journal=TABLE.journal, keys=TABLE.keys)
        self.journal = DynamoDBJournal(calls, TABLE.journal)
        self.loads = DynamoDBLoadItems(calls, TABLE.journal, StoreClock(), lambda: START_MS)
        self.routing_items = DynamoDBRoutingItems(calls, TABLE.journal)
        self.counters = DynamoDBCounterStore(calls, counters)
        self.messages = DynamoDBItemStore(calls, TABLE, Message.from_item)

    def call(self, operation: str, request: Mapping[str, Any]) -> Any:
        """Send a request to both, and return or raise what the first one came to."""
        self._counter[operation] += 1
        expected, found = (_outcome(partial(calls.call, operation, request)) for calls in self._calls)
        if isinstance(expected, dict) and isinstance(found, dict) and "LastEvaluatedKey" not in expected:
            # A page that stops at its limit cannot know whether anything follows; moto does.
            found.pop("LastEvaluatedKey", None)
        require_equal((operation, request), _comparable(expected), _comparable(found))
        if isinstance(expected, HotPartitionError):
            raise expected
        return expected


def _outcome(send: Callable[[], Any]) -> Any:
    try:
        return send()
    except HotPartitionError as error:
        return error


def _comparable(outcome: Any) -> Any:
    """Leave out what may differ: times and ids of responses, units, and the order of an index and of a batch."""
    if isinstance(outcome, HotPartitionError):
        return type(outcome).__name__, plain(getattr(outcome, "item", None))
    left_out = {"ResponseMetadata", "ConsumedCapacity", "ItemCollectionMetrics"}
    kept = {name: plain(value) for name, value in outcome.items() if name not in left_out}
    if "Responses" in kept:
        kept["Responses"] = {name: sorted(items, key=repr) for name, items in kept["Responses"].items()}
    if any("routing_partition" in item for item in kept.get("Items", ())):
        kept["Items"].sort(key=repr)
    return kept


def _message(conversation_id: str, number: int, body: str, place: str) -> Any:
    message_id = mint_message_id(START_MS + number, lambda _: number)
    return Message(conversation_id, message_id, "ann", body).to_item(place)


def _raise(conversation_id: str, since: int, count: int, pause_ms: int) -> Step:
    generations = [Generation(START_MS + since, count + 1)]
    return lambda on: on.journal.add(
        conversation_id, generations, cause=_CAUSE, now_ms=START_MS + since, pause_ms=pause_ms
    )


def _close(conversation_id: str, since: int, is_confirmed: bool, is_seen: bool) -> Step:
    def close(on: Both) -> None:
        seen = on.journal.get(conversation_id, is_strong=True) if is_seen else None
        on.journal.add_close(
            conversation_id, Close(START_MS + since, is_confirmed), cause=_CAUSE, now_ms=START_MS + since, seen=seen
        )

    return close


def _count_load(conversation_id: str, number: int, wcu: float, is_bucket: bool) -> Step:
    if is_bucket:
        return lambda on: on.loads.add_to_bucket(conversation_id, number, wcu, stale=[number - 1])
    cell = Cell(number, 4, is_throttled=number > 2)
    stale = [cell._replace(slot=slot) for slot in range(number)]
    return lambda on: on.loads.add(conversation_id, number % 2, cell, wcu, stale=stale)


def _add(place: str, amount: int, token: str | None) -> Step:
    if token is None:
        return lambda on: on.counters.add(place, amount)
    return lambda on: on.counters.add_once(place, Addition(token, f"c#{amount:02d}", amount))


def _change(place: str, number: int, is_expected: bool) -> Step:
    """Replace one or two messages; at times they are expected to be what they are not."""
    old, new = ({"body": {"S": "old"}, "edited_at": None}, "new") if is_expected else ({"body": {"S": "new"}}, "old")
    changes = [Replacement(_message("room-1", each, new, place), old) for each in {number, number // 2}]
    return lambda on: on.messages.replace(changes)


def _read(conversation_id: str, limit: int, newest_first: bool, is_strong: bool) -> Step:
    queries: list[KeyQuery[str]] = [
        KeyQuery(partition_key=key, newest_first=newest_first, limit=limit + 1)
        for key in (conversation_id, f"{conversation_id}#0")
    ]
    return lambda on: on.messages.fetch(queries, is_strong=is_strong, journal_of=conversation_id)


def _look_up(number: int) -> Step:
    keys = [(place, _message("room-1", number, "", place)["sk"]["S"]) for place in ("room-1", "room-1#0", "room-1#1")]
    return lambda on: on.messages.get(keys, is_strong=True, journals_of=["room-1", "room-2"])


_STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(_raise, _CONVERSATIONS, _NUMBERS, _NUMBERS, st.sampled_from([0, 3])),
    st.builds(_close, _CONVERSATIONS, _NUMBERS, st.booleans(), st.booleans()),
    st.builds(_count_load, _CONVERSATIONS, _NUMBERS, st.sampled_from([0.5, 7.0, 1e-05]), st.booleans()),
    st.builds(_add, _PLACES, st.integers(-3, 9), st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))),
    st.builds(lambda place, n: lambda on: on.messages.create(_message("room-1", n, "old", place)), _PLACES, _MESSAGES),
    st.builds(_change, _PLACES, _MESSAGES, st.booleans()),
    st.builds(_read, _CONVERSATIONS, _NUMBERS, st.booleans(), st.booleans()),
    st.builds(_look_up, _MESSAGES),
    st.builds(lambda limit: lambda on: on.routing_items.page(None, limit + 1), _NUMBERS),
    st.builds(lambda conversation_id: lambda on: on.loads.get(conversation_id), _CONVERSATIONS),
)


def compare_own(resource: Any, *, examples: int, counter: Counter[str], seed: int, reference: Any) -> None:
    """Make drawn requests on both engines until a response differs, or a number of lists of requests is through.

    Raises:
        DifferenceError: one differs.
    """

    @seeded(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(_STEPS, min_size=5, max_size=MOST_STEPS))
    def compare(steps: Sequence[Step]) -> None:
        with on_both(counter, reference, resource) as both:
            for step in steps:
                with suppress(HotPartitionError):
                    step(both)

    compare()


@contextmanager
def on_both(counter: Counter[str], *engines: Any) -> Iterator[Both]:
    """Open the adapters on a table of messages in each engine."""
    tables = [_create_messages(engine) for engine in engines]
    try:
        yield Both(counter, *tables)
    finally:
        for table in tables:
            table.delete()


def _create_messages(resource: Any) -> Any:
    table = described(TABLE_NAME, pk="HASH", sk="RANGE")
    index = {"AttributeName": "routing_partition"}
    table["AttributeDefinitions"].append({**index, "AttributeType": "S"})
    keys = {"KeySchema": [{**index, "KeyType": "HASH"}], "Projection": {"ProjectionType": "ALL"}}
    indexes = [{"IndexName": ROUTING_INDEX, **keys}]
    return resource.create_table(**table, GlobalSecondaryIndexes=indexes, BillingMode="PAY_PER_REQUEST")
