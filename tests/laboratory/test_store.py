"""The table as the simulator has it, through the product's own adapters."""

from random import Random

import pytest

from hotpartition.core.counter_items import Addition
from hotpartition.core.errors import StoreUnavailableError, ThrottledError
from hotpartition.core.merge import KeyQuery
from hotpartition.core.route import Generation, Route
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore, decode_cell, describe_counters
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition_messages import Message
from hotpartition_messages.keys import describe_table
from support.builders import message_id
from tools.limits import Partitions, Table, TableConfig
from tools.limits.request_tokens import RequestTokens
from tools.world.clock import Engine
from tools.world.meter import Meter
from tools.world.network import Network, StoreFaults
from tools.world.product import MESSAGES

TABLE = describe_table("t")
START = 1_800_000_000_000
IDS = [message_id(START + offset, 0) for offset in range(9)]
GENERATION = Generation(since_ms=START, shard_count=2)


class Rig:
    """A table, its adapters, and a way to run something on them."""

    def __init__(self, limit_wcu=1000.0):
        self.engine = Engine()
        self.meter = Meter(self.engine, hot="c", seconds=60.0, pages_end=60.0)
        table = Table(TableConfig(partitions=Partitions(count=1, write_limit_wcu=limit_wcu)))
        self.table = Network(self.engine, random=Random(1), observer=self.meter, limits=table)
        self.table.dynamodb.call("CreateTable", {**MESSAGES, "TableName": "t"})
        calls = ThreadedCalls(self.table.client("test").call)
        self.messages = DynamoDBItemStore(calls, TABLE, Message.from_item)
        self.journal = DynamoDBJournal(calls, TABLE.journal)
        self.routing_items = DynamoDBRoutingItems(calls, TABLE.journal)

    def run(self, work):
        """Run work as a task, to its end."""
        results = []
        self.engine.spawn(lambda: results.append(work()))
        self.engine.run_until(self.engine.now + 50.0)
        return results[0]

    def put(self, message_id, key="c", body="hello"):
        return self.messages.create(Message("c", message_id, "ann", body).to_item(key))

    def ids(self, is_strong=True, **query):
        fetched = self.messages.fetch([KeyQuery(partition_key="c", **query)], is_strong=is_strong)
        (response,) = fetched.responses
        return [IDS.index(m.message_id) for m in response.items], response.is_exhausted


@pytest.fixture
def rig():
    return Rig()


def test_routes_grow_and_are_listed(rig):
    """An update adds to what is there, and the sparse index lists it a moment later."""
    later = Generation(since_ms=START + 5, shard_count=4)

    def work():
        rig.journal.add("c", [GENERATION], cause=Cause("test"), now_ms=START)
        entry = rig.journal.add("c", [later], cause=Cause("test"), now_ms=START + 7)
        rig.engine.sleep(5.0)
        items, _ = rig.routing_items.page(None, 9)
        return entry, [(item.collection, item.route) for item in items]

    entry, listed = rig.run(work)
    both = Route(frozenset({GENERATION, later}))
    assert (entry.route, entry.updated_at_ms, listed) == (both, START + 7, [("c", both)])
    assert [(r.conversation_id, r.shard_count) for r in rig.meter.raises] == [("c", 2), ("c", 4)]


def test_eventual_reads_lag_and_strong_ones_do_not(rig):
    """Right after a write only a strongly consistent read is sure to see it, a moment later both do."""
    rig.table.faults = StoreFaults(long_lag=1.0, long_lag_seconds=0.3)

    def work():
        rig.engine.sleep(1.0)
        rig.put(IDS[0])
        strong = rig.ids(newest_first=True, limit=5)
        lagging = [bool(rig.ids(is_strong=False, newest_first=True, limit=5)[0]) for _ in range(40)]
        rig.engine.sleep(1.0)
        return strong, any(lagging), all(lagging), rig.ids(is_strong=False, newest_first=True, limit=5)

    assert rig.run(work) == (([0], True), True, False, ([0], True))


def test_a_full_partition_refuses_with_its_reason():
    """The write past the limit is throttled for its key range, and counted."""
    rig = Rig(limit_wcu=1.0)

    def work():
        rig.put(IDS[0])
        with pytest.raises(ThrottledError) as caught:
            rig.put(IDS[1])
        return caught.value.is_key_range, rig.meter.throttled_attempts

    assert rig.run(work) == (True, 1)


@pytest.mark.parametrize(
    ("faults", "stored"),
    [
        (StoreFaults(lost_request=1.0), {False}),
        (StoreFaults(lost_answer=1.0), {True}),
        (StoreFaults(server_error=1.0), {True, False}),
    ],
)
def test_a_write_without_a_good_response_may_be_stored(rig, faults, stored):
    """A lost request stores nothing, a lost response hides a success, and a server error can be either."""

    def work():
        rig.table.faults = faults
        for message in IDS:
            with pytest.raises(StoreUnavailableError):
                rig.put(message)
        rig.table.faults = StoreFaults()
        found = set(rig.ids(newest_first=True, limit=9)[0])
        return {index in found for index in range(9)}

    assert rig.run(work) == stored


class TestCounters:
    """Additions, and transactions with tokens, through the product's adapter."""

    @pytest.fixture
    def counters(self, rig):
        calls = ThreadedCalls(rig.table.client("test").call)
        place = describe_counters("t", "c", journal=TABLE.journal, keys=TABLE.keys)
        rig.cells = DynamoDBItemStore(calls, place, decode_cell)
        return DynamoDBCounterStore(calls, place)

    def read(self, rig, *, is_strong=True):
        query = KeyQuery("counter", newest_first=False, limit=20)
        (response,) = rig.cells.fetch([query], is_strong=is_strong).responses
        return dict(response.items)

    def test_a_token_lets_one_transaction_happen(self, rig, counters):
        """Its repetition changes nothing and takes no units; another one under it is refused."""

        def work():
            addition = Addition("t", "c#07", 40)
            took = counters.add_once("counter", addition)
            units = rig.table.counts["test"].wcu
            again = counters.add_once("counter", addition)
            others = counters.add_once("counter", addition._replace(amount=41)), counters.add_once("other", addition)
            return took, again, *others, units, rig.table.counts["test"].wcu, self.read(rig)

        assert rig.run(work) == (True, True, False, False, 2.0, 2.0, {"c#07": 40})

    @pytest.mark.parametrize(("binds_cancelled", "elsewhere"), [(False, True), (True, False)])
    def test_a_refused_transaction_may_bind_its_token(self, rig, counters, binds_cancelled, elsewhere):
        """By the reading that is asked for; either way it can be repeated where it was."""
        rig.table.tokens = RequestTokens(lambda: rig.engine.now, binds_cancelled=binds_cancelled)
        limit = Table(TableConfig(partitions=Partitions(count=1, write_limit_wcu=1.0)))

        def work():
            rig.table.limits, unlimited = limit, rig.table.limits
            while limit.write("counter", 1.0, rig.engine.now) is None:
                """Take all that there is."""
            with pytest.raises(ThrottledError) as refused:
                counters.add_once("counter", Addition("t", "c#07", 1))
            rig.table.limits = unlimited
            return refused.value.reasons, counters.add_once("other", Addition("t", "c#07", 1))

        assert rig.run(work) == (("ThrottlingError",), elsewhere)

    def test_transactions_on_one_item_exclude_each_other(self, rig, counters):
        """For some milliseconds; plain additions do not."""
        outcomes = []

        def add(token):
            try:
                outcomes.append(counters.add_once("counter", Addition(token, "c#07", 1)))
            except ThrottledError as error:
                outcomes.append(error.reasons)

        for token in ("a", "b"):
            rig.engine.spawn(lambda token=token: add(token))
            rig.engine.spawn(lambda: counters.add("counter", 1))
        rig.engine.run_until(1.0)
        assert sorted(map(str, outcomes)) == ["('TransactionConflict',)", "True"]
        assert rig.run(lambda: self.read(rig)) == {"c#": 2, "c#07": 1}

    def test_a_late_request_happens_after_its_client_gave_up(self, rig, counters):
        """Within seconds, once."""
        rig.table.faults = StoreFaults(late=1.0)

        def work():
            with pytest.raises(StoreUnavailableError):
                counters.add_once("counter", Addition("t", "c#07", 1))
            rig.table.faults = StoreFaults()
            before = self.read(rig)
            rig.engine.sleep(4.0)
            return before, self.read(rig)

        assert rig.run(work) == ({}, {"c#07": 1})
