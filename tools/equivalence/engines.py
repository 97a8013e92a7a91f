"""DynamoDB as it is at hand: moto, and DynamoDB Local where its jar is found."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from tools.equivalence.combinations import INDEX, PARTITION, SORT, Combination

JAR_VARIABLE = "DYNAMODB_LOCAL_JAR"
"""Names the path of `DynamoDBLocal.jar`; its libraries lie in the folder `DynamoDBLocal_lib` beside it."""
START_SECONDS = 30.0
_CREDENTIALS: Mapping[str, Any] = {
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
    "region_name": "eu-central-1",
}
_CONFIG = Config(max_pool_connections=20, retries={"total_max_attempts": 2, "mode": "standard"})


def engines_at_hand() -> tuple[str, ...]:
    """List the engines that can be compared on, by name."""
    return ("moto", "dynamodb-local") if os.environ.get(JAR_VARIABLE) else ("moto",)


@contextmanager
def open_engine(name: str) -> Iterator[Any]:
    """Start an engine, and yield a boto3 resource for it."""
    with ExitStack() as stack:
        if name == "moto":
            stack.enter_context(mock_aws())
            yield boto3.resource("dynamodb", config=_CONFIG, **_CREDENTIALS)
        else:
            endpoint = stack.enter_context(_dynamodb_local(Path(os.environ[JAR_VARIABLE])))
            yield boto3.resource("dynamodb", endpoint_url=endpoint, config=_CONFIG, **_CREDENTIALS)


@contextmanager
def _dynamodb_local(jar: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    libraries = f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}"
    command = ["java", libraries, "-jar", str(jar), "-inMemory", "-disableTelemetry", "-port", str(port)]
    with subprocess.Popen(command, cwd=jar.parent, stdout=subprocess.DEVNULL) as process:
        try:
            endpoint = f"http://127.0.0.1:{port}"
            _await(endpoint)
            yield endpoint
        finally:
            process.terminate()


def _await(endpoint: str) -> None:
    client = boto3.client("dynamodb", endpoint_url=endpoint, **_CREDENTIALS)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.list_tables()
        except (EndpointConnectionError, ClientError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


_numbers = count(1)


def create_table(resource: Any, combination: Combination) -> Any:
    """Create a table with an index of either kind, and one by time if it is to have one, under a name of its own.

    `by-rank` is a local index, which shares the table's partition key; `by-colour` a global one, which has its own.
    """
    by_time = {"IndexName": INDEX, "KeySchema": _keys("bucket", SORT), "Projection": {"ProjectionType": "ALL"}}
    table = resource.create_table(
        TableName=f"equivalence-{next(_numbers)}",
        KeySchema=_keys(PARTITION, SORT),
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": kind}
            for name, kind in (
                (PARTITION, "S"),
                (SORT, combination.sort_type),
                ("rank", "N"),
                ("colour", "S"),
                *([("bucket", "S")] if combination.has_buckets else []),
            )
        ],
        LocalSecondaryIndexes=[
            {"IndexName": "by-rank", "KeySchema": _keys(PARTITION, "rank"), "Projection": {"ProjectionType": "ALL"}}
        ],
        GlobalSecondaryIndexes=[
            {"IndexName": "by-colour", "KeySchema": _keys("colour", SORT), "Projection": {"ProjectionType": "ALL"}},
            *([by_time] if combination.has_buckets else []),
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    table.wait_until_exists()
    return table


def _keys(partition: str, sort: str) -> list[Any]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
