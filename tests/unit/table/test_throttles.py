"""`log_throttles`: which key was refused, how often, where and why; nothing is sent, nothing is changed."""

import json
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import ClientError

from hotpartition import log_throttles

ARN = "arn:aws:dynamodb:eu-central-1:1:table/readings"
KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"


class Refusing(BaseHTTPRequestHandler):
    """DynamoDB that refuses everything, by the reasons that the test sets."""

    reasons = ()

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        error = {"__type": "x#ProvisionedThroughputExceededException", "ThrottlingReasons": list(self.reasons)}
        body = json.dumps(error).encode()
        self.send_response(400)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def table(aws_environment, monkeypatch):
    monkeypatch.setattr(Refusing, "reasons", [{"reason": KEY_RANGE, "resource": ARN}])
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = Config(retries={"total_max_attempts": 1})
        url = f"http://127.0.0.1:{server.server_port}"
        yield boto3.resource("dynamodb", endpoint_url=url, config=config).Table("readings")
        server.shutdown()


def refused(call):
    with pytest.raises(ClientError):
        call()


def test_a_key_is_logged_once_a_second_with_its_count(table, caplog):
    """The first refusal at once; those of the second after it in one line."""
    now = [100.0]
    for _ in range(2):  # the second time changes nothing
        log_throttles(table, {"readings": "PK"}, clock=lambda: now[0])
    with caplog.at_level(logging.WARNING, "hotpartition.throttles"):
        for moment in (100.0, 100.4, 100.8, 101.0):
            now[0] = moment
            refused(lambda: table.put_item(Item={"PK": "room-1", "SK": "a"}))
    assert caplog.messages == [
        f"DynamoDB refused 'room-1' of readings 1 times: {KEY_RANGE}",
        f"DynamoDB refused 'room-1' of readings 3 times: {KEY_RANGE}",
    ]
    assert caplog.records[1].times == 3


INDEX = {"reason": "IndexReadKeyRangeThroughputExceeded", "resource": f"{ARN}/index/by-owner"}
ROOM = {"PK": "room-1", "SK": "a"}


def put(table):
    return table.put_item(Item=ROOM)


def write_batch(table):
    return table.meta.client.batch_write_item(RequestItems={"readings": [{"PutRequest": {"Item": ROOM}}]})


@pytest.mark.parametrize(
    ("call", "known", "reasons", "said"),
    [
        (lambda table: table.delete_item(Key=ROOM), True, None, f"'room-1' of readings 1 times: {KEY_RANGE}"),
        (
            lambda table: table.query(KeyConditionExpression=Key("PK").eq("r")),
            True,
            None,
            f"'r' of readings 1 times: {KEY_RANGE}",
        ),
        (put, False, None, f"an unknown key of readings 1 times: {KEY_RANGE}"),
        (lambda table: table.get_item(Key={"PK": "alone"}), False, None, f"'alone' of readings 1 times: {KEY_RANGE}"),
        (put, True, [], "'room-1' of readings 1 times: no reason given"),
        (put, True, [INDEX], f"'room-1' of readings, index by-owner 1 times: {INDEX['reason']}"),
        (write_batch, True, [], "one of several keys of readings 1 times: no reason given"),
    ],
)
def test_what_is_refused_is_named(table, caplog, monkeypatch, call, known, reasons, said):
    """The key where the request shows it, the index and the reason where the error does."""
    if reasons is not None:
        monkeypatch.setattr(Refusing, "reasons", reasons)
    log_throttles(table.meta.client, {"readings": "PK"} if known else None)
    refused(lambda: call(table))
    assert caplog.messages == [f"DynamoDB refused {said}"]
