"""The table of readings. How its partition keys are spread is said here and nowhere else."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import boto3
from botocore.config import Config

from hotpartition.table import ShardedTable, TimeBuckets, adaptive, at_random, by_attribute, fixed

BY_DEVICE = by_attribute("Device", from_key=lambda key: key["TakenAt"].rpartition("#")[2])
BY_HOUR = TimeBuckets("hour", index="by-hour")


@cache
def open_table() -> ShardedTable:
    """Open the table: readings are created once, and never changed. No request is made yet."""
    # The table itself tries again, and asks as many places at the same time as there are connections.
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=32)
    plain = boto3.resource("dynamodb", config=config).Table(os.environ["TABLE_NAME"])
    match os.environ["PATTERN"]:
        case "random":
            return ShardedTable(plain, shards=fixed(16), hashed=at_random(), append_only=True)
        case "calculated":
            return ShardedTable(plain, shards=fixed(16), hashed=BY_DEVICE, append_only=True)
        case "buckets":
            return ShardedTable(plain, shards=fixed(16), hashed=at_random(), indexes=[BY_HOUR], append_only=True)
        case _:
            return ShardedTable(plain, shards=adaptive(), hashed=BY_DEVICE, indexes=[BY_HOUR], append_only=True)


if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    open_table()  # while Lambda starts the function, and not with its first request


def hourly_view() -> dict[str, Any]:
    """Say how a query asks for the view by hours; a table without one is in the order of time itself."""
    return {"IndexName": BY_HOUR.index} if os.environ["PATTERN"] in {"buckets", "adaptive"} else {}
