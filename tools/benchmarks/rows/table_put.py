"""`table-put`: the CPU of `ShardedTable.put_item` into a collection that was never raised, against boto3's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config

from hotpartition.table import ShardedTable, adaptive
from tools.benchmarks.functions import BODY
from tools.benchmarks.measuring import CPU_CONDITIONS, Bar, Measured, cpu_seconds, interleave, warm_up
from tools.benchmarks.setup import TABLE, Setup

PUTS = 2_000
MICROSECONDS = 1e6
MOST = 1.15


def open_table(setup: Setup) -> Any:
    """Open boto3's `Table`; the stand-in describes none, so its keys are told."""
    resource = boto3.resource(
        "dynamodb",
        endpoint_url=f"http://127.0.0.1:{setup.dynamodb_port}",
        config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
    )
    table: Any = resource.Table(TABLE)
    table.meta.data = {
        "TableName": TABLE,
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    }
    return table


def measure(setup: Setup) -> Measured:
    """Put items into one collection, each once: with the route cached, counted, and a report in each five."""
    plain = open_table(setup)
    sharded = ShardedTable(plain, shards=adaptive(environ=os.environ), append_only=True)
    puts = setup.count(PUTS)

    def mean_of(put: Callable[..., Any], prefix: str) -> float:
        def work() -> None:
            for number in range(puts):
                put(Item={"pk": "cold-room", "sk": f"m#{prefix}{number:08d}", "body": BODY})

        return cpu_seconds(work) / puts * MICROSECONDS

    def ours() -> float:
        return mean_of(sharded.put_item, "a")

    def rival() -> float:
        return mean_of(plain.put_item, "b")

    warm_up(ours, rival)
    return Measured(
        unit="us of CPU",
        rival="boto3's Table.put_item, on the same Table",
        samples=interleave(ours, rival, setup.runs),
        bars=(Bar("ratio", at_most=MOST),),
        conditions=CPU_CONDITIONS + f"; adaptive, append_only, a route that is cached; mean of {puts} puts of 1 KB",
    )
