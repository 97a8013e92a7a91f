"""`in_band()`: hot keys are found by what DynamoDB refuses and by the fleet's load, with boto3 alone.

It plays heat through boto3: a rush, what refuses it, DynamoDB's clock, and then what other calls and processes find.
"""

from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from random import Random

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition import ShardedCounter, ShardedTable, in_band
from hotpartition.core.backoff import MAX_DELAY_MS, Clock
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import LOAD_PREFIX, JournalPlace
from hotpartition.table.routes import open_calls
from support.fakes import FakeClock, FakeTelemetry

from .conftest import KEY_RANGE, put_all, updating, writes_to

ROUTE = "~route"
LARGE = "x" * 19_900  # an item of 20 WCU
ROOM = {"KeyConditionExpression": Key("PK").eq("room")}
IS_NEW = {"ConditionExpression": "attribute_not_exists(SK)"}
HOUR = 3_600_000


def waiting_for_nothing(clock):
    """Who waits lets others write: as far as the load is concerned, no time passes."""
    return Clock(now_ms=lambda: clock.now_ms, sleep=lambda _: None, random=Random(1).random)


class Process:
    """One process: a table of its own on the same clock."""

    def __init__(self, plain, clock, *, calls_clock=None, closing=False, settings=None, **options):
        self.telemetry, self.clock = FakeTelemetry(), clock
        settings = {"journal_sort_key": ROUTE, "hot_at_once_wcu": 1_000.0, **(settings or {})}
        shards = in_band(environ={}, telemetry=self.telemetry, closing=closing, **settings)
        calls_clock = calls_clock or waiting_for_nothing(clock)
        self.table = ShardedTable(plain, shards=shards, clock=calls_clock, **{"append_only": True, **options})

    def put(self, number, **more):
        self.table.put_item(Item={"PK": "room", "SK": f"{number:05}", **more})

    def rush(self, writes=300):
        """Offer 10,000 WCU/s."""
        for number in range(writes):
            self.put(number, text=LARGE)
            self.clock.now_ms += 2

    def put_at(self, time_ms):
        self.table.put_item(Item={"PK": "room", "SK": f"{time_ms:013}"})

    def read(self):
        pages = self.table.query_pages(**ROOM, ProjectionExpression="SK")
        return [item["SK"] for page in pages for item in page["Items"]]


@pytest.fixture
def clock(dynamodb):
    """The processes' clock, and DynamoDB's: its responses tell it instead of the real one."""
    clock = FakeClock()

    def tell_date(parsed, **_):
        date = format_datetime(datetime.fromtimestamp(clock.now_ms // 1000, UTC), usegmt=True)
        parsed.setdefault("ResponseMetadata", {}).setdefault("HTTPHeaders", {})["date"] = date

    events = dynamodb.meta.client.meta.events
    events.register("after-call.dynamodb", tell_date)
    yield clock
    events.unregister("after-call.dynamodb", tell_date)


class Hot:
    """Refuses three of four writes to the room, as a partition does that is offered four times what it takes."""

    def __init__(self, operation="PutItem", *, served=4):
        self.operation, self.served, self.count = operation, served, 0

    def __call__(self, operation, body):
        if (operation, writes_to(operation, body)) != (self.operation, "room"):
            return None
        self.count += 1
        return None if self.served and self.count % self.served == 0 else KEY_RANGE


def store_route(plain, *members):
    grew_at = "2023-11-14T20:00:00.000Z"
    plain.put_item(Item={"PK": "room", "SK": ROUTE, "generations": set(members), "updated_at": grew_at})


def route_of(plain):
    return plain.get_item(Key={"PK": "room", "SK": ROUTE}).get("Item", {}).get("generations", set())


def places(plain):
    """List the partition key of each of the owner's items."""
    return [item["PK"] for item in plain.scan()["Items"] if item["SK"] != ROUTE]


class TestFinding:
    """A key is found hot, and raised."""

    def test_a_quiet_key_makes_boto3s_requests_and_takes_its_units(self, plain, twin, watched, clock):
        """To the byte: no look-up, no sample, no parameter of the library's."""
        process, sent = Process(plain, clock), []
        process.table.get_item(Key={"PK": "other", "SK": "1"})  # looks at the table's keys
        watched.responds = lambda operation, body: sent.append((operation, body))
        for number in range(3):
            process.put(number, n=number)
            twin.put_item(Item={"PK": "room", "SK": f"{number:05}", "n": number})
        assert [(operation, {**body, "TableName": "twin"}) for operation, body in sent[::2]] == sent[1::2]
        response = process.table.put_item(Item={"PK": "room", "SK": "9"}, ReturnConsumedCapacity="TOTAL")
        assert response["ConsumedCapacity"]["CapacityUnits"] == 1.0

    @pytest.mark.parametrize(("served", "raises"), [(0, 1), (15, 0)])
    def test_a_key_that_refuses_every_write_is_raised(self, plain, watched, clock, served, raises):
        """A writer that waits offers a few units a second, which alone would never count as hot; one served ends it."""
        watched.refuses = Hot(served=served)
        process = Process(plain, clock, calls_clock=clock.as_clock())
        for number in range(8):
            with suppress(ClientError):
                process.put(number)
        assert len(route_of(plain)) == raises
        assert len(process.read()) > 0

    @pytest.mark.parametrize("table", ["readings", "routes"], ids=["in the table", "in a table of their own"])
    def test_a_hot_key_is_raised_once_and_its_items_are_found(self, plain, create, watched, clock, table):
        """No call shows what lies beside the items. Afterwards the route is looked up once a minute."""
        create("routes", "collection")
        apart = {"journal_table_name": "routes", "journal_partition_key_name": "collection"}
        process = Process(plain, clock, settings=apart if table == "routes" else {})
        watched.refuses = Hot()
        process.rush()
        (raised,) = [facts for message, facts in process.telemetry.events if message == "raised"]
        assert raised["reason"] == "raised"
        assert 20 <= int(raised["generation"].partition("@")[0]) <= 34  # 10,000 WCU/s, of which a slot may miss some
        assert process.read() == [f"{number:05}" for number in range(300)]
        assert {item["PK"] for each in process.table.scan_pages() for item in each["Items"]} == {"room"}
        written = {place.partition("#_")[0] for _, place in watched.places}
        assert written <= {"room", LOAD_PREFIX + "0#room", LOAD_PREFIX + "raised#12"}
        stored = plain.meta.client.scan(TableName=table)["Items"]
        assert any(str(item.get("collection", item.get("PK"))).startswith(LOAD_PREFIX) for item in stored)
        watched.refuses = lambda *_: None
        clock.now_ms += 40_000  # the mark has ended
        process.put(800)
        watched.sent.clear()
        for number in range(60):
            process.put(1_000 + number)
            clock.now_ms += 1_900
        assert watched.sent == {"PutItem": 60, "GetItem": 2}

    def test_a_batch_that_is_left_unprocessed_marks_and_looks_up(self, plain, watched, clock):
        """BatchWriteItem gives no reason: what it leaves is an alarm, and no evidence."""
        store_route(plain, "8@0")

        def leave_base_key(operation, body):
            writes = body["RequestItems"]["readings"] if operation == "BatchWriteItem" else ()
            left = [write for write in writes if write["PutRequest"]["Item"]["PK"]["S"] == "room"]
            return {"UnprocessedItems": {"readings": left}} if left and len(left) == len(writes) else None

        watched.responds, pauses = leave_base_key, FakeClock(clock.now_ms)
        process = Process(plain, clock, calls_clock=pauses.as_clock())
        put_all(process.table, ({"PK": "room", "SK": f"b{number:04}"} for number in range(20)))
        stored = plain.scan(FilterExpression=Attr("SK").begins_with("b"))["Items"]
        assert [item["PK"].startswith("room#_") for item in stored] == [True] * 20
        assert pauses.slept == [MAX_DELAY_MS / 2000]

    def test_a_batchs_repetitions_are_counted_once(self, plain, watched, clock):
        """Three of four items are left unprocessed, by a neighbour's heat: the load is 400 WCU/s all the same."""
        process, tries = Process(plain, clock, settings={"hot_at_once_wcu": 300.0}), [0]

        def leave(operation, body):
            if operation != "BatchWriteItem":
                return None
            tries[0] += 1
            clock.now_ms += 15
            return {"UnprocessedItems": body["RequestItems"]} if tries[0] % 4 else None

        watched.responds = leave
        with process.table.batch_writer() as batch:
            for number in range(300):
                batch.put_item(Item={"PK": "room", "SK": f"{number:05}"})
                clock.now_ms += 1
        assert tries[0] > 40
        assert not route_of(plain)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["items", "counter"])
    def test_changes_in_place_count_as_well(self, plain, watched, clock, kind):
        """Updates are throttled where their items lie; the next new items, or additions, find shards."""
        process = Process(plain, clock, settings={"hot_at_once_wcu": 50.0})
        likes = ShardedCounter(process.table, name="likes", clock=waiting_for_nothing(clock))
        process.put(1)
        watched.refuses = Hot("UpdateItem")
        for number in range(300):
            if kind == "items":
                process.table.update_item(Key={"PK": "room", "SK": "00001"}, **updating("SET b = :b", b=LARGE))
            else:
                likes.add("room", 20, token=f"t{number}" if number % 3 == 0 else None)
            clock.now_ms += 2
        assert process.telemetry.counts.get(MetricName.RAISES, 0) >= 1
        assert likes.get("room", consistent=True) == (0 if kind == "items" else 6_000)

    def test_a_writer_without_the_rights_stores_all_the_same(self, plain, watched, clock, caplog):
        """And says once what is missing."""
        asked = []

        def deny(operation, body):
            if operation != "UpdateItem" or not writes_to(operation, body).startswith(LOAD_PREFIX):
                return
            asked.append(body)
            error = {"Code": "AccessDeniedException", "Message": "not authorized to perform: dynamodb:UpdateItem"}
            raise ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}}, operation)

        process, watched.refuses, watched.responds = Process(plain, clock), Hot(), deny
        process.rush(writes=60)
        assert (len(process.read()), len(asked)) == (60, 1)
        said = [record.levelname for record in caplog.records if "cannot be found in band" in record.message]
        assert said == ["WARNING"]

    def test_what_the_clients_own_retries_cured_is_an_alarm(self, plain, watched, clock):
        """A client with retries hides refusals: the responses tell of them."""
        store_route(plain, "8@0")
        process, events = Process(plain, clock), plain.meta.client.meta.events
        retried = lambda parsed, **_: parsed["ResponseMetadata"].update(RetryAttempts=1)  # noqa: E731
        process.put(0)  # without a retry
        events.register("after-call.dynamodb.PutItem", retried)
        process.put(1)
        events.unregister("after-call.dynamodb.PutItem", retried)
        process.put(2)
        assert [place.startswith("room#_") for _, place in watched.places] == [False, False, False, True]


def test_two_raises_at_once_are_one(plain):
    """DynamoDB refuses a second one within a second, and shows the first; a clock that was ahead is no obstacle."""
    journal = DynamoDBJournal(open_calls(plain), JournalPlace("readings", "PK", "SK", ROUTE))
    first, second, third = Generation(1_000, 8), Generation(1_100, 13), Generation(1_200, 20)
    now_ms, shown = 1_700_000_000_000, []
    for generation, at_ms in ((first, 0), (second, 900), (second, -5_000), (third, 2_000)):
        entry = journal.add("room", [generation], cause=Cause("raised"), now_ms=now_ms + at_ms, pause_ms=1_000)
        shown.append(entry.route.generations)
    assert shown == [{first}, {first}, {first, second}, {first, second, third}]


def time_of(sort_key):
    return int(sort_key[:13]) if sort_key[:13].isdigit() else None


CREATIONS = {
    "PutItem": lambda table, key: table.put_item(Item=key, **IS_NEW),
    "UpdateItem": lambda table, key: table.update_item(Key=key, **updating("ADD n :one", one=1)),
    "TransactWriteItems": lambda table, key: table.meta.client.transact_write_items(
        TransactItems=[{"Put": {"TableName": table.name, "Item": key, **IS_NEW}}]
    ),
}


class TestClosing:
    """Only a table whose positions are times of the present may be closed."""

    @pytest.fixture
    def open_process(self, plain, clock):
        """Opens a process that may close keys, and that knows the route already."""

        def open_process(**options):
            process = Process(plain, clock, **{"position": time_of, "closing": True, **options})
            process.read()
            return process

        return open_process

    def test_what_has_no_time_of_the_present_goes_to_the_base_key(self, plain, clock, open_process):
        """It may sort behind a close; what has one is spread."""
        store_route(plain, "8@0")
        process = open_process()
        for number in range(20):
            process.table.put_item(Item={"PK": "room", "SK": f"profile{number:03}"})
            process.put_at(clock.now_ms + HOUR + number)
        assert set(places(plain)) == {"room"}
        process.put_at(clock.now_ms)
        assert set(places(plain)) > {"room"}
        store_route(plain, "8@0", f"closing@{clock.now_ms - HOUR}", f"closed@{clock.now_ms - HOUR}")
        assert len(open_process().read()) == 41

    @pytest.mark.parametrize("operation", CREATIONS)
    def test_who_creates_an_item_meets_the_others(self, plain, watched, clock, open_process, operation):
        """One has a lease. The other, which has found nothing either, cannot get one by a read of its own."""
        store_route(plain, f"8@{clock.now_ms - HOUR}")
        first, second = (open_process(append_only=False) for _ in range(2))
        key = {"PK": "room", "SK": f"{clock.now_ms:013}"}

        def be_faster(name, body):
            if name == operation:
                watched.refuses = lambda name, body: KEY_RANGE if name == "GetItem" else None
                CREATIONS[operation](first.table, key)
            return KEY_RANGE if name == "GetItem" else None

        watched.refuses = be_faster
        with nullcontext() if operation == "UpdateItem" else pytest.raises(ClientError):
            CREATIONS[operation](second.table, key)
        (stored,) = [item for item in plain.scan()["Items"] if item["SK"] != ROUTE]
        assert (stored["PK"] != "room", stored.get("n", 2)) == (True, 2)

    def test_a_lease_that_came_with_a_look_up_closes_what_has_cooled(self, plain, clock, open_process):
        """No write of this process reads the journal on its own."""
        store_route(plain, f"8@{clock.now_ms - 2 * HOUR}")
        open_process(append_only=False, settings={"is_closing": True}).put_at(clock.now_ms)
        assert {member.split("@")[0] for member in route_of(plain)} == {"8", "closing", "closed"}


@pytest.mark.parametrize("route", [[], ["8@5"], ["8@5", "closing@1000", "closed@1000"]], ids=["cold", "hot", "closed"])
@pytest.mark.parametrize(("count", "limit"), [(0, 3), (1, 1), (7, 1), (7, 3), (7, 7), (7, 50)])
def test_a_newest_page_is_as_full_as_boto3s(plain, watched, clock, route, count, limit):
    """The routing item lies above all items and takes no place, is no end of a page and no argument of `position`.

    Where the route is known to be closed, it is one request.
    """
    newest = [{"PK": "room", "SK": f"{2_000 + number}"} for number in reversed(range(count))]
    put_all(plain, newest)
    if route:
        store_route(plain, *route)
    asked = {**ROOM, "ScanIndexForward": False, "Limit": limit}
    table = Process(plain, clock, position=int).table
    for _ in range(2):  # the second time, the process knows the route
        watched.sent.clear()
        page = table.query(**asked)
        assert page["Items"] == newest[:limit]
        assert page.get("LastEvaluatedKey") in [None, *newest[limit - 1 : limit]]
        assert len(newest) <= limit or "LastEvaluatedKey" in page
    assert watched.sent == {"Query": 1} or len(route) < 3 or count <= limit
    assert [item for page in table.query_pages(**asked) for item in page["Items"]] == newest
