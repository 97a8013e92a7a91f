"""DynamoDB as it is at hand: moto, the simulator's own, and DynamoDB Local where its jar is found."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from moto import mock_aws

from tools.equivalence.combinations import INDEX, PARTITION, SORT, Combination
from tools.local.processes import free_port, is_listening, kill, start_process
from tools.world.boto3_calls import take_calls
from tools.world.dynamodb import DynamoDB

WORLD = "world"
"""The simulator's own DynamoDB: a `ShardedTable` on it is compared with boto3's `Table` on moto."""
JAR_VARIABLE = "DYNAMODB_LOCAL_JAR"
"""Names the path of `DynamoDBLocal.jar`."""
LIBRARIES = "DynamoDBLocal_lib"
"""The folder beside the jar with its native libraries."""
START_SECONDS = 30.0
SHOWN_CHARACTERS = 1_000
"""How much of what a server says an error shows."""
_CREDENTIALS: Mapping[str, Any] = {
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
    "region_name": "eu-central-1",
}
_CONFIG = Config(max_pool_connections=20, retries={"total_max_attempts": 2, "mode": "standard"})


class EngineError(Exception):
    """DynamoDB Local is asked for and cannot be had. The message says why."""


def engines_at_hand() -> tuple[str, ...]:
    """List the engines that can be compared on, by name.

    Raises:
        EngineError: the variable names something that is no DynamoDB Local, or there is no Java to run it.
    """
    return ("moto", WORLD, *(["dynamodb-local"] if _find_jar() else []))


def _find_jar() -> Path | None:
    named = os.environ.get(JAR_VARIABLE)
    if not named:
        return None
    jar = Path(named).resolve()
    libraries = jar.parent / LIBRARIES
    if not jar.is_file():
        raise EngineError(f"{JAR_VARIABLE}={named}: there is no such file. It should be the path of DynamoDBLocal.jar")
    if not libraries.is_dir():
        raise EngineError(f"{JAR_VARIABLE}={named}: its libraries should be beside it, in {libraries}")
    if shutil.which("java") is None:
        raise EngineError(f"{JAR_VARIABLE} is set, but there is no `java` on the PATH. DynamoDB Local needs it")
    return jar


@contextmanager
def open_engine(name: str, *, over_http: bool = False) -> Iterator[Any]:
    """Start an engine, and yield a boto3 resource for it; `over_http`: it must be one that libcurl reaches."""
    port = free_port()
    with ExitStack() as stack:
        if name == "moto" and over_http:
            command = [sys.executable, "-m", "tools.local.dynamodb", json.dumps({"port": port})]
            endpoint = stack.enter_context(_serving("moto", command, port))
            # moto responds to some wrong requests with 500, which each attempt would wait for.
            once = _CONFIG.merge(Config(retries={"total_max_attempts": 1}))
            yield boto3.resource("dynamodb", endpoint_url=endpoint, config=once, **_CREDENTIALS)
        elif name == "moto":
            stack.enter_context(mock_aws())
            yield boto3.resource("dynamodb", config=_CONFIG, **_CREDENTIALS)
        elif name == WORLD:
            resource = boto3.resource("dynamodb", config=_CONFIG, **_CREDENTIALS)
            stack.callback(take_calls(resource.meta.client, DynamoDB().call))
            yield resource
        else:
            jar = _find_jar()
            if jar is None:
                raise EngineError(f"{JAR_VARIABLE} should name DynamoDBLocal.jar")
            libraries = f"-Djava.library.path={jar.parent / LIBRARIES}"
            options = ["-inMemory", "-disableTelemetry", "-port", str(port)]
            command = ["java", libraries, "-jar", str(jar), *options]
            endpoint = stack.enter_context(_serving(f"{jar} as DynamoDB Local", command, port, jar.parent))
            yield boto3.resource("dynamodb", endpoint_url=endpoint, config=_CONFIG, **_CREDENTIALS)


@contextmanager
def _serving(what: str, command: list[str], port: int, folder: Path | None = None) -> Iterator[str]:
    """Run a server on a port of this machine, and yield its address."""
    with tempfile.TemporaryFile() as log, asyncio.Runner() as runner:
        process = runner.run(start_process(command, log=log, cwd=folder))
        try:
            if not runner.run(is_listening(process, port, seconds=START_SECONDS)):
                log.seek(0)
                said = log.read().decode(errors="replace")[-SHOWN_CHARACTERS:].strip()
                raise EngineError(f"{what} does not start: {said}")
            yield f"http://127.0.0.1:{port}"
        finally:
            runner.run(kill(process))


_numbers = count(1)


def create_table(resource: Any, combination: Combination, *, is_ours: bool = False) -> Any:
    """Create a table with an index of either kind, and one by time if it is to have one, under a name of its own.

    `by-rank` is a local index, which shares the table's partition key; `by-colour` a global one, which has its own, on
    shards if ours is to be; `by-kind` a global one with four keys, the table's partition key among the hashed ones.
    """
    colour = "colour_shard" if is_ours and combination.has_sharded_index else "colour"
    by_kind = [*_keys(PARTITION, "rank"), *_keys("colour", SORT)]
    by_kind.sort(key=lambda key: key["KeyType"])
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
                *([(colour, "S")] if colour != "colour" else []),
                *([("bucket", "S")] if combination.has_buckets else []),
            )
        ],
        LocalSecondaryIndexes=[
            {"IndexName": "by-rank", "KeySchema": _keys(PARTITION, "rank"), "Projection": {"ProjectionType": "ALL"}}
        ],
        GlobalSecondaryIndexes=[
            {"IndexName": "by-colour", "KeySchema": _keys(colour, SORT), "Projection": {"ProjectionType": "ALL"}},
            {"IndexName": "by-kind", "KeySchema": by_kind, "Projection": {"ProjectionType": "ALL"}},
            *([by_time] if combination.has_buckets else []),
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    table.wait_until_exists()
    return table


def _keys(partition: str, sort: str) -> list[Any]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
