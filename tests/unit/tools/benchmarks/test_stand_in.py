"""The DynamoDB stand-in, spoken to by a real boto3 client."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from hotpartition_messages import Message
from tools.benchmarks.setup import Setup
from tools.benchmarks.stand_in import StandIn

IDS = [f"01HF7YAT00{index:016d}" for index in range(5)]


@pytest.fixture
def port() -> Iterator[int]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = StandIn()
    yield asyncio.run_coroutine_threadsafe(server.start(), loop).result(5)
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(lambda: loop.call_later(0.01, loop.stop))  # connections end in the turns between
    thread.join()
    loop.close()


@pytest.fixture
def setup(port: int) -> Setup:
    return Setup(dynamodb_port=port, redis_port=0, runs=1, effort=1.0)


@pytest.fixture
def client(port: int) -> Iterator[Any]:
    client = boto3.client(
        "dynamodb",
        region_name="eu-central-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=8),
    )
    yield client
    client.close()


def item(message_id: str, partition_key: str = "c") -> dict[str, Any]:
    return dict(Message("c", message_id, "ann", f"body of {message_id} é").to_item(partition_key))


def query(client: Any, **options: Any) -> Any:
    return client.query(
        TableName="t",
        KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
        ExpressionAttributeValues={
            ":pk": {"S": "c"},
            ":low": {"S": f"m#{IDS[1]}"},
            ":high": {"S": f"m#{IDS[3]}"},
        },
        **options,
    )


def test_query_keeps_bounds_order_and_limit(client: Any, setup: Setup) -> None:
    """A query takes just its range, in its order, and says when it stopped at its limit."""
    setup.load([item(i) for i in reversed(IDS)])
    assert query(client)["Items"] == [item(i) for i in IDS[1:4]]
    newest = query(client, ScanIndexForward=False, Limit=2)
    assert newest["Items"] == [item(IDS[3]), item(IDS[2])]
    assert newest["LastEvaluatedKey"] == {"pk": {"S": "c"}, "sk": {"S": f"m#{IDS[2]}"}}
    assert "LastEvaluatedKey" not in query(client, Limit=4)
    assert query(client, Limit=3)["LastEvaluatedKey"]["sk"] == {"S": f"m#{IDS[3]}"}
    assert query(client, ExclusiveStartKey=newest["LastEvaluatedKey"], ScanIndexForward=False)["Items"] == [
        item(IDS[1])
    ]


def test_counts_are_of_what_was_read(client: Any, setup: Setup) -> None:
    """A benchmark learns how many items and requests a reader needed since it set the stand-in up."""
    setup.load([item(i) for i in IDS])
    query(client)
    setup.control("Configure")
    query(client, Limit=2)
    client.get_item(TableName="t", Key={"pk": {"S": "c"}, "sk": {"S": "m#none"}})
    assert setup.control("Counts") == {"requests": 2, "items_read": 2}


def test_slow_responses_are_as_many_as_asked_for(setup: Setup) -> None:
    """The share of slow responses is the one that was set, and the same seed gives the same ones."""
    server = StandIn()
    server.control("Configure", {"usual_ms": 5, "slow_ms": 100, "slow_share": 0.1, "seed": 3})
    drawn = [server.delays.next_seconds() for _ in range(2000)]
    assert {0.005, 0.1} == set(drawn)
    assert 140 <= drawn.count(0.1) <= 260
    server.control("Configure", {"usual_ms": 5, "slow_ms": 100, "slow_share": 0.1, "seed": 3})
    assert drawn == [server.delays.next_seconds() for _ in range(2000)]
