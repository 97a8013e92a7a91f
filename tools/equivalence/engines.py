"""DynamoDB as it is at hand: moto, the simulator's own, and DynamoDB Local where its jar is found."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from moto import mock_aws

from tools.equivalence.combinations import INDEX, PARTITION, SORT, Combination
from tools.local.processes import LocalRunError, free_port, serving
from tools.world.boto3_calls import take_calls
from tools.world.dynamodb import DynamoDB, Indexes, define_table

WORLD = "world"
"""The simulator's own DynamoDB: a `ShardedTable` on it is compared with boto3's `Table` on moto."""
JAR_VARIABLE = "DYNAMODB_LOCAL_JAR"
"""Names the path of `DynamoDBLocal.jar`."""
_CREDENTIALS: Mapping[str, Any] = {
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
    "region_name": "eu-central-1",
}
_CONFIG = Config(max_pool_connections=20, retries={"total_max_attempts": 2, "mode": "standard"})


def engines_at_hand() -> tuple[str, ...]:
    """List the engines that can be compared on, by name.

    Raises:
        LocalRunError: the variable names something that is no DynamoDB Local, or there is no Java to run it.
    """
    jar = os.environ.get(JAR_VARIABLE)
    if jar and not (Path(jar).is_file() and shutil.which("java")):
        raise LocalRunError(f"{JAR_VARIABLE}={jar}: should be the path of DynamoDBLocal.jar, with `java` on the PATH")
    return ("moto", WORLD, *(["dynamodb-local"] if jar else []))


@contextmanager
def open_engine(name: str, *, over_http: bool = False) -> Iterator[Any]:
    """Start an engine, and yield a boto3 resource for it; `over_http`: it must be one that libcurl reaches."""
    port = free_port()
    with ExitStack() as stack:
        options = {**_CREDENTIALS, "config": _CONFIG}
        if name == "moto" and over_http:
            command = [sys.executable, "-m", "tools.local.dynamodb", json.dumps({"port": port})]
            options["endpoint_url"] = stack.enter_context(serving(name, command, port))
        elif name == "moto":
            stack.enter_context(mock_aws())
        elif name != WORLD:
            jar = Path(os.environ[JAR_VARIABLE]).resolve()
            libraries = f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}"
            command = ["java", libraries, "-jar", str(jar), "-inMemory", "-disableTelemetry", "-port", str(port)]
            options["endpoint_url"] = stack.enter_context(
                serving(f"{jar} as DynamoDB Local", command, port, jar.parent)
            )
        resource = boto3.resource("dynamodb", **options)
        if name == WORLD:
            stack.callback(take_calls(resource.meta.client, DynamoDB().call))
        yield resource


_numbers = count(1)


def create_table(resource: Any, combination: Combination, *, is_ours: bool = False) -> Any:
    """Create a table with an index of either kind, and one by time if it is to have one, under a name of its own.

    `by-rank` is a local index, which shares the table's partition key; `by-colour` a global one, which has its own, on
    shards if ours is to be; `by-kind` a global one with four keys, the table's partition key among the hashed ones.
    """
    colour = "colour_shard" if is_ours and combination.has_sharded_index else "colour"
    indexes: Indexes = {
        "by-colour": (colour, SORT),
        "by-kind": (("colour", PARTITION), ("rank", SORT)),
        "by-sort-key": (SORT, PARTITION),
        **({INDEX: ("bucket", SORT)} if combination.has_buckets else {}),
    }
    types = {SORT: combination.sort_type, "rank": "N"}
    keys = define_table(PARTITION, SORT, indexes=indexes, local={"by-rank": (PARTITION, "rank")}, types=types)
    table = resource.create_table(TableName=f"equivalence-{next(_numbers)}", **keys)
    table.wait_until_exists()
    return table
