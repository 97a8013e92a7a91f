"""What the adapters run against: moto for DynamoDB, a real `redis-server` in cluster mode for Redis.

It is long because whatever a test opens, clients, servers and connections, is made patient here and closed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import boto3
import pytest
from redis import Redis

from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.redis.cluster import RedisConnection
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import RedisReportSink, RedisReportSource
from hotpartition.runtime.connect import open_boto3, open_curl
from hotpartition_messages import Message
from support.fakes import FakeTelemetry, InlineBackground
from support.servers import PATIENCE_SECONDS, UNWATCHED, DynamoDBServer, Server, running
from support.tables import TABLE, TABLE_NAME, TABLE_SCHEMA
from tools.local.redis import RedisServer, running_redis


class DynamoDB(NamedTuple):
    """The adapters on one empty table."""

    client: Any
    """boto3's, for looking at the table; the server does not watch it."""
    calls: DynamoDBCalls
    """The client under test."""
    store: DynamoDBItemStore
    journal: DynamoDBJournal
    server: DynamoDBServer


class Adapters(NamedTuple):
    """All that use Redis."""

    registry: RedisRegistry
    source: RedisReportSource
    pages: RedisPageStore
    sink: RedisReportSink
    telemetry: FakeTelemetry
    """What they report of foreign data."""

    @classmethod
    def on(
        cls,
        connection: RedisConnection,
        table_name: str = "t",
        *,
        timer: Callable[[], float] = time.monotonic,
        **sending: Any,
    ) -> Adapters:
        """Put them on a connection; reports are sent at once, by the wall clock, unless `sending` differs."""
        telemetry = FakeTelemetry()
        usual = {"partitions": 1, "background": InlineBackground(), "now_ms": lambda: time.time_ns() // 1_000_000}
        return cls(
            RedisRegistry(connection, table_name, telemetry),
            RedisReportSource(connection, table_name, telemetry),
            RedisPageStore(connection, table_name, telemetry, timer),
            RedisReportSink(connection, table_name, **usual | sending),
            telemetry,
        )


@pytest.fixture
def open_calls() -> Iterator[Callable[..., DynamoDBCalls]]:
    """Opens the clients of the setting `dynamodb_client`, patient ones unless told otherwise, and closes them again."""
    patient = {"connect_timeout_seconds": PATIENCE_SECONDS, "read_timeout_seconds": PATIENCE_SECONDS}
    with ExitStack() as stack:

        def open_client(name: str, **options: Any) -> DynamoDBCalls:
            calls: Any = {"curl": open_curl, "boto3": open_boto3}[name](**patient | options)
            stack.callback(calls.close)
            return calls

        yield open_client


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers."""
    with ExitStack() as stack:
        yield lambda *behaviours, tls=None: stack.enter_context(Server(*behaviours, tls=tls))


@pytest.fixture
def dynamodb(
    aws_environment: None,
    open_calls: Callable[..., DynamoDBCalls],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[DynamoDB]:
    """The adapters over the default client, on an empty table that is gone after the test."""
    server = DynamoDBServer()
    with running(server) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", address)
        client = boto3.client("dynamodb", endpoint_url=address + UNWATCHED)
        client.create_table(TableName=TABLE_NAME, **TABLE_SCHEMA)
        calls = open_calls("curl", parallel=4)
        store = DynamoDBItemStore(calls, TABLE, Message.from_item)
        yield DynamoDB(client, calls, store, DynamoDBJournal(calls, TABLE.journal), server)
        for table in client.list_tables()["TableNames"]:
            client.delete_table(TableName=table)
        client.close()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The server that all tests share; each uses a table name of its own."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def admin(redis_server: RedisServer) -> Iterator[Redis]:
    """A client of the shared server that may do anything, with patience."""
    with Redis(port=redis_server.port, decode_responses=True, protocol=2) as client:
        yield client


@pytest.fixture
def calls_of(admin: Redis) -> Callable[[], dict[str, int]]:
    """Counts how often each command was called since CONFIG RESETSTAT."""

    def count() -> dict[str, int]:
        stats: Any = admin.info("commandstats")
        own = {"cmdstat_config|resetstat", "cmdstat_info"}
        return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items() if name not in own}

    return count


@pytest.fixture
def connect() -> Iterator[Callable[..., RedisConnection]]:
    """Builds connections; patient ones unless told otherwise, since the machine may be busy."""
    with ExitStack() as stack:

        def build(port: int, **options: Any) -> RedisConnection:
            patient: dict[str, Any] = {"connect_timeout_ms": 60_000, "command_timeout_ms": 60_000, "cooldown_ms": 0}
            clock = {"now_ms": lambda: time.monotonic() * 1000}
            endpoint = {"host": "127.0.0.1", "port": port, "is_tls": False}
            connection = RedisConnection(**{**endpoint, **patient, **clock, **options})
            stack.callback(connection.close)
            return connection

        yield build


@pytest.fixture
def table_name(request: pytest.FixtureRequest) -> str:
    """A table name, and with it a key space in Redis, that no other test uses."""
    return f"table-{abs(hash(request.node.nodeid))}"
