"""`ShardedTable` with `adaptive()` on a real Redis, and the consumer that raises for it: nothing but settings."""

import threading
import time

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from hotpartition.control.reconcile import Agreement
from hotpartition.core.route import EMPTY_ROUTE
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.redis.registry import RedisRegistry
from hotpartition.runtime.build_control import open_consumer, open_operations
from hotpartition.runtime.connect import find_journal
from hotpartition.runtime.settings import Settings
from hotpartition.table import ShardedTable, adaptive
from support.fakes import FakeTelemetry
from support.tables import define_table

PLACES = {
    "in the collection": {"journal_sort_key": "~route"},
    "apart": {"journal_table_name": "readings-routes", "journal_partition_key_name": "collection"},
}


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def deployment(request, dynamodb, redis_server):
    """Where everything is, as the environment of every process says."""
    is_apart = "journal_table_name" in request.param
    if is_apart:
        dynamodb.client.create_table(TableName="readings-routes", **define_table("collection"))
    indexes = {} if is_apart else {"routing-index": ("routing_partition", "updated_at")}
    dynamodb.client.create_table(TableName="readings", **define_table("Sensor", "At", indexes=indexes))
    with redis_server.admin as admin:
        admin.flushall()
    return {
        **request.param,
        "registry_host": "127.0.0.1",
        "registry_port": redis_server.port,
        "registry_tls": False,
        "registry_command_timeout_ms": 5000,
        "route_cache_seconds": 0.1,
    }


@pytest.fixture
def deciding(deployment):
    """What consumer and operations are told beside it: the table's keys; and to find a little load hot."""
    return {
        **deployment,
        "table_name": "readings",
        "partition_key_name": "Sensor",
        "sort_key_name": "At",
        "key_separator": "#_",
        "has_positions": False,
        "hot_sustained_wcu": 5.0,
    }


def replace(consumer, running):
    """End a consumer as its successor does: within a second."""
    consumer._source.announce(int(time.time() * 1000) + 1000)
    running.join()


def test_load_alone_raises_a_table_of_anybodys(request, deployment, deciding, open_calls):
    """From counted writes to new shards: reported, summed, decided, journalled, told, and used."""
    told = {name: value for name, value in deciding.items() if name != "route_cache_seconds"}
    consumer = open_consumer(
        Settings.read({**told, "hot_at_once_wcu": 10.0, "target_shard_wcu": 5.0}, "consumer"), FakeTelemetry()
    )
    running = threading.Thread(target=consumer.run, args=(600_000,))
    running.start()
    request.addfinalizer(lambda: replace(consumer, running))
    plain = boto3.resource("dynamodb").Table("readings")
    table = ShardedTable(plain, shards=adaptive(environ={}, sampling_distance_wcu=1.0, **deployment))
    journal = DynamoDBJournal(open_calls("boto3"), find_journal(Settings.read(told, "consumer")))
    number = 0
    # Until it is raised, and the writer has learned that.
    while not any(item["Sensor"].startswith("dev|7#_") for item in plain.scan()["Items"]):
        for _ in range(10):
            number += 1
            table.put_item(Item={"Sensor": "dev|7", "At": f"{number:06}"})
    assert journal.get("dev|7", is_strong=True).route != EMPTY_ROUTE
    page = table.query(KeyConditionExpression=Key("Sensor").eq("dev|7"), ConsistentRead=True)
    assert [item["At"] for item in page["Items"]] == [f"{n + 1:06}" for n in range(number)]


def test_a_raise_by_hand_holds_for_all_items(deployment, deciding):
    """Of a table without positions; operators see it, and the registry has it."""
    operations, check = open_operations(Settings.read(deciding, "operate"), FakeTelemetry())
    done = operations.raise_by_hand("dev|7", 4)
    assert (done.is_changed, done.generation.since_ms, done.is_in_registry) == (True, 0, True)
    assert [row.collection for row in operations.list_routes(None, 10).rows] == ["dev|7"]
    assert check.compare_all(None, repairs=False, budget_ms=60_000).counts[Agreement.EQUAL] == 1
    plain = boto3.resource("dynamodb").Table("readings")
    table = ShardedTable(plain, shards=adaptive(environ={}, **deployment))
    table.put_item(Item={"Sensor": "dev|7", "At": "1"})
    stored = [item["Sensor"] for item in plain.scan()["Items"] if item["At"] == "1"]
    assert len(stored) == 1
    assert stored[0].startswith("dev|7#_")
    assert table.get_item(Key={"Sensor": "dev|7", "At": "1"})["Item"] == {"Sensor": "dev|7", "At": "1"}


def test_processes_share_the_newest_page_of_a_read_hot_key(deployment, connect):
    """Read once; in the second process it comes from Redis, and from its own memory when Redis is asked no more."""
    plain = boto3.resource("dynamodb").Table("readings")
    RedisRegistry(connect(deployment["registry_port"]), "readings").mark_read_hot("dev|7")
    first, second = (
        ShardedTable(
            plain, shards=adaptive(environ={}, page_ttl_seconds=60.0, page_staleness_seconds=600.0, **deployment)
        )
        for _ in range(2)
    )
    for number in range(3):
        first.put_item(Item={"Sensor": "dev|7", "At": str(number), "raw": b"\x00\xff"})
    wanted = {"KeyConditionExpression": Key("Sensor").eq("dev|7"), "ScanIndexForward": False, "Limit": 2}

    def query(table):
        # Until it is one that is kept for all: Redis may have been too slow before.
        while "age" not in (page := table.query(**wanted, cache=True))["ResponseMetadata"]["HTTPHeaders"]:
            time.sleep(0.01)
        return page

    read = query(first)
    assert [item["At"] for item in read["Items"]] == ["2", "1"]
    first.put_item(Item={"Sensor": "dev|7", "At": "9"})
    for table in (first, second, second):
        page = query(table)
        assert page["Items"] == read["Items"]
        assert page["LastEvaluatedKey"] == read["LastEvaluatedKey"]
        assert int(page["ResponseMetadata"]["HTTPHeaders"]["age"]) <= 60
    assert second.query(**wanted)["Items"][0]["At"] == "9"
