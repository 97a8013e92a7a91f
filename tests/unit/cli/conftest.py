"""DynamoDB and the operations function in this process: no network."""

import json

import boto3
import pytest
from moto import mock_aws

from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition_cli.callers import read_response
from support.builders import World
from support.events import load_handler
from support.fleet import START_MS
from support.tables import TABLE_SCHEMA, define_table


@pytest.fixture
def client(aws_environment, monkeypatch):
    """DynamoDB with a table of each kind."""
    monkeypatch.delenv("HOTPARTITION_JOURNAL_TABLE_NAME", raising=False)
    with mock_aws():
        client = boto3.client("dynamodb")
        client.create_table(TableName="readings", **define_table("PK", "SK"))
        client.create_table(TableName="counted", **define_table("PK", "at", types={"at": "N"}))
        client.create_table(TableName="routes", **define_table("collection"))
        client.create_table(TableName="single", **define_table("PK"))
        client.create_table(TableName="numbers", **define_table("PK", "SK", types={"PK": "N"}))
        client.create_table(TableName="messages", **TABLE_SCHEMA)
        yield client
        # Where another test's moto runs in this process, tables stay.
        for name in client.list_tables()["TableNames"]:
            client.delete_table(TableName=name)


@pytest.fixture
def journal_of(client):
    """Opens the journal that lies in a place."""
    return lambda place: DynamoDBJournal(ThreadedCalls(Boto3Call(client)), place)


@pytest.fixture
def raise_key(journal_of):
    """Adds a generation to a journal, decided at a time."""

    def raise_key(place, key, since_ms, shard_count, now_ms=START_MS):
        journal_of(place).add(key, [Generation(since_ms, shard_count)], cause=Cause("raised"), now_ms=now_ms)

    return raise_key


@pytest.fixture
def world():
    """One six seconds after the beginning of everything, in which a consumer runs."""
    world = World()
    world.clock.now_ms = START_MS + 6_000
    world.reports.announce(world.clock.now_ms)
    return world


@pytest.fixture
def connect(world):
    """Connects to the operations function of the world: through JSON, as on the wire."""

    def call(command):
        event, operations = json.loads(json.dumps(command)), world.operations(is_closing=True)
        response = load_handler("operate").respond(event, operations, remaining_ms=60_000)
        return read_response(json.loads(json.dumps(response)), is_error=False)

    return lambda *_: call
