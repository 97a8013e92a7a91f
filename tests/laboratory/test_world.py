"""The simulated world: time and death; DynamoDB and Redis with their faults."""

from functools import partial
from random import Random

import pytest

from hotpartition.core.errors import RegistryUnavailableError, StoreUnavailableError, ThrottledError
from hotpartition.core.route import Generation
from hotpartition.redis.registry import RedisRegistry
from tools.world.clock import Engine, Process, SimulatedExecutor, wait_for
from tools.world.dynamodb import DynamoDB, DynamoDBError
from tools.world.meter import Meter
from tools.world.network import Network, StoreFaults
from tools.world.product import MESSAGES
from tools.world.redis import RedisServer, SimulatedConnection

START = 1_800_000_000_000
FIRST, SECOND = Generation(since_ms=START, shard_count=2), Generation(since_ms=START + 5, shard_count=4)


@pytest.fixture
def engine():
    return Engine()


def run(engine, work, process=None, seconds=60.0):
    """Run work as a task, to its end; what it returns, or nothing if it never ended."""
    results = []
    engine.spawn(lambda: results.append(work()), process)
    engine.run_until(engine.now + seconds)
    return results[0] if results else None


class TestTime:
    """Order, blocking, freezing and death."""

    @pytest.mark.parametrize(
        ("strike", "log"), [("freeze", [("sent", 1.0), ("responded", 7.0)]), ("kill", [("sent", 1.0)])]
    )
    def test_what_was_sent_happens_whatever_becomes_of_its_sender(self, engine, strike, log):
        """A frozen process hears of it when it is thawed; a dead one never does."""
        process, seen = Process(), []

        def work():
            engine.call(1.0, lambda: seen.append(("sent", engine.now)), 1.0)
            seen.append(("responded", engine.now))

        engine.at(0.5, lambda: getattr(engine, strike)(process))
        engine.at(7.0, lambda: engine.thaw(process))
        run(engine, work, process)
        assert (seen, process.is_idle) == (log, True)

    def test_an_executor_runs_so_many_at_a_time(self, engine):
        """The third piece of work waits for one of two workers; what waits can be taken back, and then never runs.

        Waiting for several ends with the first one, or when time is up.
        """
        executor, waited, ended, ran = SimulatedExecutor(engine, None, 2), [], [], []

        def sleep(seconds):
            engine.sleep(seconds)
            return seconds, engine.now

        def work():
            futures = [executor.submit(sleep, seconds) for seconds in (3.0, 1.0, 2.5)]
            assert executor.submit(ran.append, "cancelled").cancel()
            for timeout in (0.5, None):
                done, rest = wait_for(engine, futures, timeout)
                waited.append((engine.now, [futures.index(future) for future in done], len(rest)))
            ended.extend(future.result() for future in futures)

        run(engine, work)
        assert waited == [(0.5, [], 3), (1.0, [1], 2)]
        assert (ended, ran) == ([(3.0, 3.0), (1.0, 1.0), (2.5, 3.5)], [])


class Rig:
    """A table behind the network."""

    def __init__(self, engine):
        self.engine = engine
        self.network = Network(engine, random=Random(1), meter=Meter(engine))
        self.network.dynamodb.call("CreateTable", {**MESSAGES, "TableName": "t"})
        self.call = self.network.client("test")

    def put(self, number):
        self.call("PutItem", {"TableName": "t", "Item": key(number)})

    def has(self, number, *, is_strong=True):
        return "Item" in self.call("GetItem", {"TableName": "t", "Key": key(number), "ConsistentRead": is_strong})


def key(number):
    return {"pk": {"S": "c"}, "sk": {"S": str(number)}}


@pytest.fixture
def rig(engine):
    return Rig(engine)


class TestDynamoDB:
    def test_eventual_reads_lag_and_strong_ones_do_not(self, rig):
        """Right after a write only a strongly consistent read is sure to see it, a moment later both do."""
        rig.network.faults = StoreFaults(long_lag=1.0, long_lag_seconds=0.3)

        def work():
            rig.engine.sleep(1.0)
            rig.put(0)
            strong, lagging = rig.has(0), {rig.has(0, is_strong=False) for _ in range(40)}
            rig.engine.sleep(1.0)
            return strong, lagging, rig.has(0, is_strong=False)

        assert run(rig.engine, work) == (True, {True, False}, True)

    @pytest.mark.parametrize(
        ("faults", "stored"),
        [
            (StoreFaults(lost_request=1.0), {False}),
            (StoreFaults(lost_answer=1.0), {True}),
            (StoreFaults(server_error=1.0), {True, False}),
        ],
    )
    def test_a_write_without_a_good_response_may_be_stored(self, rig, faults, stored):
        """A lost request stores nothing, a lost response hides a success, and a server error can be either."""

        def work():
            rig.network.faults = faults
            for number in range(9):
                with pytest.raises(StoreUnavailableError):
                    rig.put(number)
            rig.network.faults = StoreFaults()
            return {rig.has(number) for number in range(9)}

        assert run(rig.engine, work) == stored

    def test_transactions_on_one_item_exclude_each_other(self, rig):
        """For some milliseconds, and single writes as well."""
        put, refused = {"TableName": "t", "Item": key(0)}, []

        def write(operation, request):
            try:
                rig.call(operation, request)
            except ThrottledError as error:
                refused.append(error.reasons)

        both = {"TransactItems": [{"Put": put}]}
        for request in (both, both, put):
            operation = "PutItem" if request is put else "TransactWriteItems"
            rig.engine.spawn(partial(write, operation, request))
        rig.engine.run_until(1.0)
        assert set(refused) == {("TransactionConflict",), ("TransactionConflictException",)}

    def test_a_batch_reports_the_units_of_each_table_once(self):
        """As DynamoDB does: not for each key."""
        store, keys = DynamoDB(), [{"pk": {"S": name}, "sk": {"S": "1"}} for name in ("a", "b")]
        store.call("CreateTable", MESSAGES)
        name = MESSAGES["TableName"]
        request = {"RequestItems": {name: {"Keys": keys}}, "ReturnConsumedCapacity": "TOTAL"}
        response = store.call("BatchGetItem", request)
        assert response["ConsumedCapacity"] == [{"TableName": name, "CapacityUnits": 1.0}]

    def test_a_page_starts_behind_a_whole_key(self):
        """Without its sort key there is no place to start from: an error, and not the first page again."""
        store = DynamoDB()
        store.call("CreateTable", MESSAGES)
        start = {"pk": key(0)["pk"]}
        with pytest.raises(DynamoDBError, match="starting key"):
            store.call("Scan", {"TableName": MESSAGES["TableName"], "ExclusiveStartKey": start})

    def test_what_an_index_cannot_hold_is_refused_with_all_of_its_transaction(self):
        """Nothing is written, also of what came before it."""
        store, name = DynamoDB(), MESSAGES["TableName"]
        store.call("CreateTable", MESSAGES)
        items = [key(0), {**key(1), "routing_partition": {"N": "1"}}]
        puts = [{"Put": {"TableName": name, "Item": item}} for item in items]
        with pytest.raises(DynamoDBError, match="routing_partition"):
            store.call("TransactWriteItems", {"TransactItems": puts})
        assert list(store.tables[name].items()) == []


@pytest.fixture
def server(engine):
    return RedisServer(engine, nodes=1, random=Random(1))


def open_registry(server, *, cooldown_ms=1000):
    return RedisRegistry(SimulatedConnection(server, timeout_ms=30, cooldown_ms=cooldown_ms), "t")


class TestRedis:
    @pytest.mark.parametrize(
        ("strike", "left"),
        [(lambda node: node.fail_over(1.0), {FIRST}), (lambda node: node.empty(), set())],
        ids=["failover", "emptied"],
    )
    def test_what_a_node_forgets(self, engine, server, strike, left):
        """A failover forgets what was written in the lost time; what is older comes back with the replica."""
        registry = open_registry(server)

        def work():
            registry.add("c", [FIRST])
            engine.sleep(10.0)
            registry.add("c", [SECOND])
            before = registry.get("c").generations
            strike(server.nodes[0])
            return before, registry.get("c").generations

        assert run(engine, work) == ({FIRST, SECOND}, left)

    def test_a_stream_that_had_nothing_newer_is_read_again_when_it_may_have(self, engine, server):
        """After a write, and where a replica still holds what was trimmed."""
        node = server.nodes[0]

        def has_entries():
            return bool(node.do("XREAD", "COUNT", 10, "STREAMS", "s", "0-0"))

        assert not has_entries()
        node.do("XADD", "s", "*", "field", "value")
        assert has_entries()
        engine.run_until(5.0)
        node.do("XTRIM", "s", "MAXLEN", 0)
        assert not has_entries()
        node.fail_over(1.0)
        assert has_entries()

    @pytest.mark.parametrize(("is_hanging", "seconds"), [(False, 0.001), (True, 0.06)])
    def test_a_dead_node_fails_after_its_timeout_and_is_then_left_alone(self, engine, server, is_hanging, seconds):
        """The first call costs a refusal or two timeouts, the next one nothing."""
        registry = open_registry(server)
        server.nodes[0].is_hanging, server.nodes[0].is_down = is_hanging, not is_hanging

        def fail():
            began = engine.now
            with pytest.raises(RegistryUnavailableError):
                registry.get("c")
            return round(engine.now - began, 6)

        assert run(engine, lambda: (fail(), fail())) == (seconds, 0.0)

    def test_a_lost_command_may_have_run(self, engine, server):
        """A command without a response has sometimes taken effect, and sometimes not."""
        registry, names = open_registry(server, cooldown_ms=0), [f"c{number}" for number in range(20)]
        server.lost = 1.0

        def work():
            for name in names:
                with pytest.raises(RegistryUnavailableError):
                    registry.add(name, [FIRST])
            server.lost = 0.0
            return sum(bool(registry.get(name)) for name in names)

        assert 0 < run(engine, work) < len(names)
