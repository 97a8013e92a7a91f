"""What the adapters run against: moto for DynamoDB, a real `redis-server` in cluster mode for Redis."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws

from hotpartition.dynamodb import DynamoDBJournal, DynamoDBMessageStore, create_client
from hotpartition.redis_cluster import RedisConnection
from redis_process import RedisProcess
from tables import INDEX_NAME, TABLE_NAME, TABLE_SCHEMA

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

QUERY_THREADS = 4


@dataclass
class Calls:
    """Counts the requests that leave a client, by operation, and remembers every partition key that one names."""

    operations: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)

    def watch(self, client: DynamoDBClient) -> None:
        client.meta.events.register("before-parameter-build.dynamodb", self._note_keys)
        # Sent once for each attempt, so that a retry inside the SDK would show.
        client.meta.events.register_first("before-send.dynamodb", self._note_request)

    def _note_keys(self, params: dict[str, Any], **_: Any) -> None:
        self.keys |= set(_partition_keys(params))

    def _note_request(self, request: Any, **_: Any) -> None:
        self.operations[request.headers["X-Amz-Target"].decode().rpartition(".")[2]] += 1

    def clear(self) -> None:
        self.operations.clear()
        self.keys.clear()


def _partition_keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, content in value.items():
            if name in {"pk", ":pk"}:
                yield content["S"]
            else:
                yield from _partition_keys(content)
    elif isinstance(value, list):
        for element in value:
            yield from _partition_keys(element)


@dataclass(frozen=True)
class DynamoDB:
    """The adapters on one empty table."""

    client: DynamoDBClient
    store: DynamoDBMessageStore
    journal: DynamoDBJournal
    calls: Calls


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and a region that belong to nobody."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


@pytest.fixture
def query_threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(QUERY_THREADS) as executor:
        yield executor


@pytest.fixture
def dynamodb(aws_environment: None, query_threads: ThreadPoolExecutor) -> Iterator[DynamoDB]:
    with mock_aws():
        client = create_client(connections=QUERY_THREADS)
        client.create_table(TableName=TABLE_NAME, **TABLE_SCHEMA)
        calls = Calls()
        calls.watch(client)
        yield DynamoDB(
            client,
            DynamoDBMessageStore(client, TABLE_NAME, query_threads),
            DynamoDBJournal(client, TABLE_NAME, INDEX_NAME),
            calls,
        )
        client.close()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """The server that all tests share which leave it running; each uses a table name of its own."""
    with RedisProcess(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own_redis_server(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server to do harm to."""
    with RedisProcess(tmp_path) as server:
        yield server


@pytest.fixture
def connect() -> Iterator[Callable[..., RedisConnection]]:
    """Builds connections; patient ones unless told otherwise, since the machine may be busy."""
    with ExitStack() as stack:

        def build(port: int, **options: Any) -> RedisConnection:
            patient: dict[str, Any] = {"connect_timeout_ms": 50, "command_timeout_ms": 2000, "rest_ms": 0}
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
