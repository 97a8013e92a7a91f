"""`log_throttles`: which key was refused, how often, where and why; nothing is sent, nothing is changed."""

import logging

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import ClientError

from hotpartition import log_throttles
from support.servers import DynamoDBServer, error, running

ARN = "arn:aws:dynamodb:eu-central-1:1:table/readings"
KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"
REFUSED = "ProvisionedThroughputExceededException"
ON_TABLE = {"reason": KEY_RANGE, "resource": ARN}
ON_INDEX = {"reason": "IndexReadKeyRangeThroughputExceeded", "resource": f"{ARN}/index/by-owner"}
ROOM = {"PK": "room-1", "SK": "a"}


@pytest.fixture
def refusals(aws_environment):
    """The reasons for which a DynamoDB refuses everything, and a table there."""
    server, reasons = DynamoDBServer(), [ON_TABLE]
    why = [{"Code": "ConditionalCheckFailed"}, {"Code": "ThrottlingError"}]
    cancelled = error("TransactionCanceledException", CancellationReasons=why)
    server.intervene = lambda operation, *_: (
        cancelled if operation == "TransactWriteItems" else error(REFUSED, ThrottlingReasons=reasons)
    )
    with running(server) as url:
        config = Config(retries={"total_max_attempts": 1})
        yield reasons, boto3.resource("dynamodb", endpoint_url=url, config=config).Table("readings")


def refused(call):
    with pytest.raises(ClientError):
        call()


def test_a_key_is_logged_once_a_second_with_its_count(refusals, caplog):
    """The first refusal at once; those of the second after it in one line."""
    (_, table), now = refusals, [100.0]
    for _ in range(2):  # the second time changes nothing
        log_throttles(table, {"readings": "PK"}, clock=lambda: now[0])
    with caplog.at_level(logging.WARNING, "hotpartition.throttles"):
        for moment in (100.0, 100.4, 100.8, 101.0):
            now[0] = moment
            refused(lambda: table.put_item(Item=ROOM))
    assert caplog.messages == [
        f"DynamoDB refused 'room-1' of readings 1 times: {KEY_RANGE}",
        f"DynamoDB refused 'room-1' of readings 3 times: {KEY_RANGE}",
    ]
    assert caplog.records[1].times == 3


def put(table):
    return table.put_item(Item=ROOM)


def query(table):
    return table.query(KeyConditionExpression=Key("PK").eq("r"))


def write_batch(table):
    return table.meta.client.batch_write_item(RequestItems={"readings": [{"PutRequest": {"Item": ROOM}}]})


def get_by_arn(table):
    return table.meta.client.get_item(TableName=ARN, Key=ROOM)


def write_two(table):
    puts = [{"Put": {"TableName": "readings", "Item": {**ROOM, "PK": key}}} for key in ("room-1", "room-2")]
    return table.meta.client.transact_write_items(TransactItems=puts)


@pytest.mark.parametrize(
    ("call", "known", "why", "said"),
    [
        (lambda table: table.delete_item(Key=ROOM), True, [ON_TABLE], f"'room-1' of readings 1 times: {KEY_RANGE}"),
        (query, True, [ON_TABLE], f"'r' of readings 1 times: {KEY_RANGE}"),
        (put, False, [ON_TABLE], f"an unknown key of readings 1 times: {KEY_RANGE}"),
        (lambda table: table.get_item(Key={"PK": "alone"}), False, [], "'alone' of readings 1 times: no reason given"),
        (put, True, [ON_INDEX], f"'room-1' of readings, index by-owner 1 times: {ON_INDEX['reason']}"),
        (write_batch, True, [], "one of several keys of readings 1 times: no reason given"),
        (get_by_arn, True, [], "'room-1' of readings 1 times: no reason given"),
        (write_two, True, [], "'room-2' of readings 1 times: ThrottlingError"),
    ],
)
def test_what_is_refused_is_named(refusals, caplog, call, known, why, said):
    """The key where the request shows it, the index and the reason where the error does."""
    reasons, table = refusals
    reasons[:] = why
    log_throttles(table.meta.client, {"readings": "PK"} if known else None)
    refused(lambda: call(table))
    assert caplog.messages == [f"DynamoDB refused {said}"]
