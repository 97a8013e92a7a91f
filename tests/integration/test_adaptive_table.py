"""`ShardedTable` with `adaptive()` on a real Redis, and the consumer that raises for it: nothing but settings.

It needs a whole deployment, with the journal in each of its places, and a consumer that can be ended.
"""

import threading
import time

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from hotpartition.core.route import EMPTY_ROUTE
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.runtime.build_control import open_consumer
from hotpartition.runtime.connect import find_journal
from hotpartition.runtime.settings import Settings
from hotpartition.table import ShardedTable, adaptive
from support.fakes import FakeTelemetry
from support.tables import define_table

PLACES = {
    "in the collection": {"journal_sort_key": "~route"},
    "apart": {"journal_table_name": "readings-routes", "journal_partition_key_name": "collection"},
}
KEYS = {
    "table_name": "readings",
    "partition_key_name": "Sensor",
    "sort_key_name": "At",
    "key_separator": "#_",
    "has_positions": False,
}
"""What is passed to the consumer beside the deployment."""


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def deployment(request, dynamodb, redis_server, admin):
    """Where everything is, as the environment of every process says."""
    is_apart = "journal_table_name" in request.param
    if is_apart:
        dynamodb.client.create_table(TableName="readings-routes", **define_table("collection"))
    indexes = {} if is_apart else {"routing-index": ("routing_partition", "updated_at")}
    dynamodb.client.create_table(TableName="readings", **define_table("Sensor", "At", indexes=indexes))
    admin.flushall()
    where = {"registry_host": "127.0.0.1", "registry_port": redis_server.port, "registry_tls": False}
    return {**request.param, **where, "registry_command_timeout_ms": 5000}


@pytest.fixture
def plain(deployment):
    return boto3.resource("dynamodb").Table("readings")


def replace(consumer, running):
    """End a consumer as its successor does: within a second."""
    consumer.ends.source.announce(int(time.time() * 1000) + 1000)
    running.join()


def test_load_alone_raises_a_table_of_anybodys(request, deployment, plain, open_calls):
    """From counted writes to new shards: reported, summed, decided, journalled, told, and used."""
    thresholds = {"hot_at_once_wcu": 10.0, "hot_sustained_wcu": 5.0, "target_shard_wcu": 5.0}
    settings = Settings.read({**deployment, **KEYS, **thresholds}, "consumer")
    consumer = open_consumer(settings, FakeTelemetry())
    running = threading.Thread(target=consumer.run, args=(600_000,))
    running.start()
    request.addfinalizer(lambda: replace(consumer, running))
    shards = adaptive(environ={}, route_cache_seconds=0.1, sampling_distance_wcu=1.0, **deployment)
    table, number = ShardedTable(plain, shards=shards), 0
    # Until it is raised, and the writer has learned that.
    while not any(item["Sensor"].startswith("dev|7#_") for item in plain.scan()["Items"]):
        for _ in range(10):
            number += 1
            table.put_item(Item={"Sensor": "dev|7", "At": f"{number:06}"})
    journal = DynamoDBJournal(open_calls("boto3"), find_journal(settings))
    assert journal.get("dev|7", is_strong=True).route != EMPTY_ROUTE
    page = table.query(KeyConditionExpression=Key("Sensor").eq("dev|7"), ConsistentRead=True)
    assert [item["At"] for item in page["Items"]] == [f"{n + 1:06}" for n in range(number)]
