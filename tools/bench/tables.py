"""The rows of `ShardedTable`, each against boto3's own `Table` on one stand-in.

A row's own figure is the CPU of a call with responses at once; a page's wall time with slow ones is a detail.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key
from botocore.config import Config

from hotpartition.core.keys import KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import choose_shards
from hotpartition.table import ReadCache, ShardedTable, adaptive, curl, fixed
from tools.bench.measure import Measured, Work, compare, interleave, list_ratios, mean_us
from tools.bench.pages import Origins
from tools.bench.setup import BODY, TABLE, control, load

CALLS = 1_000
PAGES, SLOW_PAGES = 150, 60
SHARDS = 8
ITEMS = 24
PAGE = 20
STORED = 400
SLOW_MS = 5.0
SLOW_WALL = f"wall, 1 thread, {SLOW_MS:g} ms"
OF_QUERIES = "of its queries by boto3"
RIVAL = "boto3's Table, with the same configuration"
DETAILS = "The details are ratios, to boto3's Table and to the same queries by it"


def open_table() -> Any:
    """Open boto3's `Table`; the stand-in describes none, so its keys are set here."""
    config = Config(retries={"total_max_attempts": 1, "mode": "standard"}, max_pool_connections=SHARDS + 1)
    table: Any = boto3.resource("dynamodb", config=config).Table(TABLE)
    table.meta.data = {
        "TableName": TABLE,
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    }
    return table


def _put(table: Any, prefix: str) -> Work:
    return lambda number: table.put_item(Item={"pk": "cold-room", "sk": f"m#{prefix}{number:08d}", "body": BODY})


def _compare_puts(at_most: float, conditions: str, **options: Any) -> Measured:
    plain = open_table()
    ours, rival = _put(ShardedTable(plain, append_only=True, **options), "a"), _put(plain, "b")
    said = f"Puts of 1 KB; append_only, {conditions}"
    return compare(ours, rival, CALLS, rival_name=RIVAL, at_most={"ratio": at_most}, conditions=said)


def measure_put() -> Measured:
    """Put items into one collection: with the route cached, counted, and a report in each five."""
    return _compare_puts(1.15, "adaptive, a cached route", shards=adaptive(environ=os.environ))


def measure_put_curl() -> Measured:
    """Put items through libcurl."""
    return _compare_puts(0.3, "fixed(8), libcurl", shards=fixed(SHARDS), transport=curl())


def measure_update() -> Measured:
    """Update items where each has one place."""
    plain = open_table()
    request = {"UpdateExpression": "SET body = :body", "ExpressionAttributeValues": {":body": BODY}}

    def update(table: Any) -> Work:
        return lambda number: table.update_item(Key={"pk": "cold-room", "sk": f"m#{number:08d}"}, **request)

    sharded = ShardedTable(plain, shards=fixed(SHARDS, only_shards=True))
    ours, rival, said = update(sharded), update(plain), "Updates; fixed(8, only_shards=True)"
    return compare(ours, rival, CALLS, rival_name=RIVAL, at_most={"ratio": 1.4}, conditions=said)


def _compare_items(at_most: float, origin: MetricName, **options: Any) -> Measured:
    """Read items of 0.4 KB from a cache."""
    plain, origins = open_table(), Origins()
    load({"pk": {"S": "shop"}, **_reading(f"{number:04d}")} for number in range(ITEMS))
    cache = ReadCache(seconds=60, stale_seconds=600, telemetry=origins, **options)
    sharded = ShardedTable(plain, shards=fixed(SHARDS), cache=cache)

    def get(table: Any, **cached: bool) -> Work:
        return lambda number: table.get_item(Key={"pk": "shop", "sk": f"{number % ITEMS:04d}"}, **cached)["Item"]

    ours, rival = get(sharded, cache=True), get(plain)
    if [ours(number) for number in range(ITEMS)] != [rival(number) for number in range(ITEMS)]:
        raise ValueError("an item was not read as it was stored")
    said = f"{ITEMS} items in turn, read with cache=True"
    measured = compare(ours, rival, CALLS, rival_name=RIVAL, at_most={"ratio": at_most}, conditions=said)
    origins.require(origin)
    return measured


def measure_item() -> Measured:
    """Read items from the process's memory."""
    return _compare_items(0.02, MetricName.PAGES_FROM_L1)


def measure_item_redis() -> Measured:
    """Read items from Redis: one is kept, so that each is another one."""
    address = f"redis://127.0.0.1:{os.environ['HOTPARTITION_REGISTRY_PORT']}"
    return _compare_items(0.3, MetricName.PAGES_FROM_REDIS, redis=address, max_entries=1)


def _compare_pages(at_most: Mapping[str, float], **options: Any) -> Measured:
    """Read the newest page of a collection on shards, and of one in one piece.

    `OF_QUERIES` compares with the same queries as boto3's own `Table` sends them, each on a thread.
    """
    plain, form = open_table(), KeyForm()
    sharded = ShardedTable(plain, shards=fixed(SHARDS), **options)
    items = [_reading(f"2026-11-21T09:30:{number:08d}") for number in range(STORED)]
    shards = [choose_shards(item["sk"]["S"], SHARDS, choices=1)[0] for item in items]
    load({"pk": {"S": "whole"}, **item} for item in items)
    load({"pk": {"S": form.shard_key("spread", shard)}, **item} for shard, item in zip(shards, items, strict=True))

    def read(table: Any, collection: str, limit: int = PAGE) -> int:
        condition = Key("pk").eq(collection)
        return len(table.query(KeyConditionExpression=condition, ScanIndexForward=False, Limit=limit)["Items"])

    def ours(_: int) -> int:
        return read(sharded, "spread")

    def rival(_: int) -> int:
        return read(plain, "whole")

    if not ours(0) == rival(0) == PAGE:
        raise ValueError(f"a page should have {PAGE} items")
    said = f"The newest {PAGE} items of fixed({SHARDS}). {DETAILS}"
    measured = compare(ours, rival, PAGES, rival_name=RIVAL, at_most=at_most, conditions=said)
    keys = ["spread", *(form.shard_key("spread", shard) for shard in range(SHARDS))]
    with ThreadPoolExecutor(len(keys)) as pool:

        def queries(_: int) -> object:
            return list(pool.map(lambda key: read(plain, key, PAGE // SHARDS + 1), keys))

        of_queries = interleave(*(partial(mean_us, work, PAGES) for work in (ours, queries)))
    control("Configure", delay_ms=SLOW_MS)
    slow = interleave(*(partial(mean_us, work, SLOW_PAGES, time.perf_counter) for work in (ours, rival)))
    details = {
        name: median(list_ratios(samples)) for name, samples in {OF_QUERIES: of_queries, SLOW_WALL: slow}.items()
    }
    return replace(measured, details=details)


def _reading(sort_key: str) -> Mapping[str, Any]:
    texts = {"sk": sort_key, "device": "dev-7", "site": "north", "unit": "celsius", "note": "x" * 200}
    return {**{name: {"S": text} for name, text in texts.items()}, "value": {"N": "21.5"}, "quality": {"N": "3"}}


def measure_query() -> Measured:
    """Read pages through boto3, whose nine queries are nearly all of what it costs."""
    return _compare_pages({OF_QUERIES: 1.3, SLOW_WALL: 2.5})


def measure_query_curl() -> Measured:
    """Read pages through libcurl."""
    return _compare_pages({"ratio": 0.8, SLOW_WALL: 1.5}, transport=curl())
