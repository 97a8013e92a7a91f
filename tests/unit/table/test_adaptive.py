"""`adaptive()`: routes from Redis and the journal, and every write counted."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from hotpartition.core.errors import MalformedGenerationError
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import Generation
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.settings import Settings
from hotpartition.table import ShardedTable, adaptive, at_random, by_attribute, fixed
from hotpartition.table.routes import open_calls
from support.builders import World
from tools.world.product import shards_on

from .conftest import KEY_RANGE, put_all, updating

EIGHT = Generation(since_ms=0, shard_count=8)
IN_COLLECTION = JournalPlace("readings", "PK", "SK", "~route")
APART = JournalPlace("routes", "collection", sort_key="")
BEFORE = JournalPlace("readings", "PK", "SK", "r#")


class Stage(World):
    """A table whose routes come from a registry in memory and a journal on its own DynamoDB."""

    def __init__(self, plain, place, **options):
        super().__init__()
        self.plain, self.place = plain, place
        self.table = self.process(**options)

    def process(self, *, route_cache_seconds=0.0, sampling_wcu=1.0, **options):
        """Open the table in one more process: by default no route is cached."""
        sampling = {"sampling_distance_wcu": sampling_wcu, "read_sampling_distance_rcu": 0.5}
        settings = Settings.defaults("adaptive()", route_cache_seconds=route_cache_seconds, **sampling)
        ends = self.ends(journal=DynamoDBJournal(open_calls(self.plain), self.place))
        shards = shards_on(ends, settings, place=self.place)
        return ShardedTable(self.plain, shards=shards, clock=self.clock.as_clock(), **options)

    def raise_journal(self, collection="room", generation=EIGHT):
        """Raise a collection as a consumer does that dies before it tells Redis."""
        key = {name: value["S"] for name, value in self.place.key_of(collection).items()}
        item = {**key, "generations": {generation.encode()}, "updated_at": "2026-01-01T00:00:00.000Z"}
        self.plain.meta.client.put_item(TableName=self.place.table_name, Item=item)

    def raise_all(self, collection="room", generation=EIGHT):
        self.raise_journal(collection, generation)
        self.registry.add(collection, [generation])

    def places(self):
        found = self.plain.scan()["Items"]
        return {item["SK"]: item["PK"] for item in found if item["SK"] != self.place.routing_sort_key}

    def read(self, **options):
        page = self.table.query(KeyConditionExpression=Key("PK").eq("room"), ConsistentRead=True, **options)
        return [item["SK"] for item in page["Items"]]

    def get(self):
        return [self.table.get_item(Key=item(1), ConsistentRead=True)["Item"]["SK"]]

    def counted(self):
        """WCU by collection, as the reports tell."""
        totals = {}
        for report in self.reports.sent:
            totals[report.collection] = max(totals.get(report.collection, 0.0), report.value)
        return totals


@pytest.fixture
def routes(create):
    """A table for routing items alone."""
    return create("routes", "collection")


@pytest.fixture(params=[IN_COLLECTION, APART], ids=["journal in the collection", "journal apart"])
def stage(request, plain, routes):
    """The table, with its routing items in either place."""
    return Stage(plain, request.param)


def item(number, **more):
    return {"PK": "room", "SK": f"{number:04}", **more}


SET_NOTE = updating("SET note = :t", t="x")


def test_every_write_is_counted(stage):
    """Puts, changes, deletes, batches and transactions, in the units that DynamoDB charges; each once."""
    table = stage.table
    put = {"Put": {"TableName": "readings", "Item": item(50, text="x" * 3000)}}
    stage.raise_all("other")
    steps = [
        (lambda: table.put_item(Item=item(0, text="x" * 3000)), 3),
        (lambda: [table.put_item(Item=item(number)) for number in range(1, 11)], 10),
        (lambda: [table.update_item(Key=item(number), **SET_NOTE) for number in range(1, 6)], 5),
        (lambda: [table.delete_item(Key=item(number)) for number in range(1, 6)], 5),
        (lambda: put_all(table, (item(number, PK=key) for number in range(20, 40) for key in ("room", "other"))), 20),
        (lambda: put_all(table, (item(number, n=2) for number in range(20, 40))), 20),  # where they lie
        (lambda: table.meta.client.transact_write_items(TransactItems=[put]), 6),
    ]
    expected = 0
    for write, units in steps:
        write()
        expected += units
        assert stage.counted()["room"] == pytest.approx(expected, abs=1)
    assert stage.counted()["other"] == pytest.approx(20, abs=1)


def test_a_change_that_dynamodb_refuses_is_counted(stage, watched):
    """One unit while it is refused for the whole budget."""
    stage.table.put_item(Item=item(1))
    stage.reports.sent.clear()
    watched.refuses = lambda operation, body: KEY_RANGE if operation == "UpdateItem" else None
    for _ in range(4):
        with pytest.raises(ClientError):
            stage.table.update_item(Key=item(1), **updating("SET n = :n", n=1))
    assert [report.value for report in stage.reports.sent] == [1.0, 1.0, 1.0, 1.0]


def test_threads_count_and_read_together(stage):
    """Nothing is lost between them, also while each of them waits for threads of the table's own."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: stage.table.put_item(Item=item(number)), range(100)))
        pages = list(threads.map(lambda _: stage.read(), range(20)))
    assert stage.counted()["room"] == pytest.approx(100, abs=1)
    assert pages == [[f"{number:04}" for number in range(100)]] * 20


@pytest.mark.parametrize("generations", [{"many@0"}, ["8@0"], {8}])
def test_a_routing_item_that_cannot_be_read_fails_the_call_and_is_named(stage, generations):
    """What it hides could be anywhere."""
    key = {name: value["S"] for name, value in stage.place.key_of("room").items()}
    stage.plain.meta.client.put_item(TableName=stage.place.table_name, Item={**key, "generations": generations})
    calls = [stage.read, stage.get, lambda: stage.table.put_item(Item=item(1))]
    for call in calls:
        with pytest.raises(MalformedGenerationError):
            call()
    assert stage.telemetry.counts[MetricName.JOURNAL_MALFORMED] == len(calls)


@pytest.mark.parametrize("place", [BEFORE, APART], ids=["in the collection", "apart"])
@pytest.mark.parametrize(("n", "key"), [(0, "room"), (1, "room#_0")])
def test_adaptive_shards_are_led_out_without_journal_and_redis(plain, routes, place, n, key):
    """`fixed(n, readable=N)` finds, changes and deletes what was written at each N; new items lie where n says."""
    stage = Stage(plain, place, hashed=by_attribute("owner"))
    for number in range(30):
        if number % 10 == 0 and number:
            stage.raise_all(generation=Generation(0, 4 * number // 10))
        stage.table.put_item(Item=item(number, owner=f"o{number}"), ConditionExpression="attribute_not_exists(PK)")
    expected = stage.read()
    assert len(expected) == 30
    assert len(set(stage.places().values())) > 6
    leaving = ShardedTable(plain, shards=fixed(n, readable=8), hashed=at_random())
    room = {"KeyConditionExpression": Key("PK").eq("room"), "ConsistentRead": True}
    # With shards to write to it takes what lies at the base key for items, a routing item included.
    assert [found["SK"] for found in leaving.query(**room)["Items"] if not n or found["SK"] != "r#"] == expected
    leaving.put_item(Item=item(30))
    for number in range(30):
        assert leaving.get_item(Key=item(number), ConsistentRead=True)["Item"]["owner"] == f"o{number}"
        leaving.update_item(Key=item(number), **updating("SET n = :n", n=1))
        if number % 2:
            leaving.delete_item(Key=item(number))
    left = leaving.query(**room)["Items"]
    assert [found["SK"] for found in left if "n" in found] == expected[::2]
    assert [found["SK"] for found in left if not {"n", "generations"} & found.keys()] == ["0030"]
    assert {item["SK"]: item["PK"] for item in plain.scan()["Items"]}["0030"] == key


def test_arguments_come_before_the_environment(plain, create):
    """What neither names has its default; a journal of its own is named, as the construct's variable does."""
    environ = {"HOTPARTITION_REGISTRY_HOST": "a.example", "HOTPARTITION_REGISTRY_PORT": "6380"}
    create("routes", "pk")
    apart = {**environ, "HOTPARTITION_JOURNAL_TABLE_NAME": "routes"}
    for variables, place in ((environ, BEFORE), (apart, JournalPlace("routes", "pk", sort_key=""))):
        shards = adaptive(environ=variables, registry_host="b.example", registry_tls=False)
        built = ShardedTable(plain, shards=shards)._open("PutItem").items.sharding.routes
        assert built.engine.routes.registry._connection._options["url"] == "redis://b.example:6380"
        assert built.journal == place


def test_leases_are_for_tables_that_may_be_closed(plain):
    for closing in (False, True):
        shards = adaptive(environ={"HOTPARTITION_REGISTRY_HOST": "a"}, closing=closing)
        routes = ShardedTable(plain, shards=shards, position=lambda _: 1)._open("PutItem").items.sharding.routes
        assert (routes.engine.writer.leases is not None) is closing


@pytest.mark.parametrize("limit", [{}, {"Limit": 2}])
def test_newest_first_pages_are_verified_though_the_routing_item_lies_before_them(plain, watched, limit):
    """A page that ends before it has said nothing of it."""
    early = Stage(plain, BEFORE)
    for partition_key, sort_key in (("room", "x1"), ("room", "x2"), ("room", "x3"), ("room#_5", "z")):
        plain.put_item(Item={"PK": partition_key, "SK": sort_key})
    early.raise_journal()
    last = {"PK": {"S": "room"}, "SK": {"S": "x3"}}
    full = {"Items": [last], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": last}  # 1 MB is read

    def end_early(operation, body):
        is_of_base = operation == "Query" and body["ExpressionAttributeValues"][":hpp"]["S"] == "room"
        return full if is_of_base and not limit else None

    watched.responds = end_early
    assert early.read(ScanIndexForward=False, **limit)[0] == "z"
