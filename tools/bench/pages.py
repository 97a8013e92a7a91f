"""The rows of the newest page of 50, in time and in CPU, uncached and cached.

Stored conversations are the same messages sharded over 16, and in one piece for the rival.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from unittest.mock import patch

from redis import Redis

from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Telemetry
from hotpartition.core.read_heat import PAGE_COPIES
from hotpartition.core.route import Generation, Route, choose_placement
from hotpartition.dynamodb.boto3_client import create_client
from hotpartition.engine.read_cache import ReadCache
from hotpartition.redis.cluster import read_hot_key, route_key
from hotpartition.table.routes import LoggedTelemetry
from hotpartition_messages import Message
from hotpartition_messages.jobs import open_reader
from hotpartition_messages.keys import KEY_FORM, ROUTING_SORT_KEY, build_key
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.reading import PageRequest
from tools.bench.measure import MILLISECONDS, Measured, compare, wall_seconds
from tools.bench.setup import TABLE, Setup

CONVERSATIONS = 24
SHARDS = 16
SERVICE_MS = 5.0
PAGE = 50
BODY_CHARACTERS = 200
MESSAGES_PER_SHARD = 60
"""More than a page, so that the sources' reader gets the 50 that it asks each shard for."""
OLD_MESSAGES = 100
"""On the base key, from before the raise."""
SPACING_MS = 20
SOURCES_THREADS = 16

Stored = Mapping[str, Sequence[str]]
"""The ids of the newest messages of each conversation."""
ReadPage = Callable[[str], list[str]]
"""Reads the newest page of a conversation, and returns its ids."""


def plain_name(conversation_id: str) -> str:
    """Name a conversation's copy in one piece."""
    return f"{conversation_id}-plain"


def store_conversations(setup: Setup) -> Stored:
    """Store conversations whose messages fell onto the shards differently, their routes, and their copies."""
    random = Random(SHARDS)
    stored: dict[str, Sequence[str]] = {}
    with Redis(port=setup.redis_port) as redis:
        for name in (f"n{SHARDS}-{index}" for index in range(CONVERSATIONS)):
            newest_ms = time.time_ns() // 1_000_000
            since_ms = newest_ms - SHARDS * MESSAGES_PER_SHARD * SPACING_MS
            generation = Generation(since_ms=since_ms, shard_count=SHARDS)
            ids = [
                mint_message_id(newest_ms - age * SPACING_MS, random.getrandbits)
                for age in range(SHARDS * MESSAGES_PER_SHARD + OLD_MESSAGES)
            ]
            setup.load(_items(name, ids, generation))
            redis.sadd(route_key(TABLE, name), generation.encode())
            stored[name] = ids[:PAGE]
    return stored


def _items(conversation_id: str, ids: list[str], generation: Generation) -> Iterator[dict[str, Any]]:
    route, plain = Route(frozenset({generation})), plain_name(conversation_id)
    for message_id in ids:
        placement = choose_placement(route, build_key(conversation_id, message_id), KEY_FORM)
        yield dict(Message(conversation_id, message_id, "ann", _body(message_id)).to_item(placement.partition_key))
    for message_id in ids[: 2 * PAGE]:
        yield dict(Message(plain, message_id, "ann", _body(message_id)).to_item(plain))
    yield {
        "pk": {"S": conversation_id},
        "sk": {"S": ROUTING_SORT_KEY},
        "generations": {"SS": [generation.encode()]},
        "updated_at": {"S": "2026-11-21T09:30:00.000Z"},
        "reason": {"S": "raised"},
        "routing_partition": {"S": "00"},
    }


def _body(message_id: str) -> str:
    return (message_id * (BODY_CHARACTERS // len(message_id) + 1))[:BODY_CHARACTERS]


def query_newest(client: Any, partition_key: str) -> list[dict[str, Any]]:
    """Query one partition key for its newest messages, as the rivals do."""
    response = client.query(
        TableName=TABLE,
        KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
        ExpressionAttributeValues={":pk": {"S": partition_key}, ":low": {"S": "m#"}, ":high": {"S": "m#~"}},
        ScanIndexForward=False,
        Limit=PAGE,
    )
    items: list[dict[str, Any]] = response["Items"]
    return items


def our_reader(telemetry: Telemetry | None = None, **settings: object) -> ReadPage:
    """Wire the read job up as the function does, and read pages by it; some settings may be others."""
    reader = open_reader(os.environ, telemetry or LoggedTelemetry(), **settings)

    def read(conversation_id: str) -> list[str]:
        page = reader.read_page(PageRequest(conversation_id, limit=PAGE))
        return [message.message_id for message in page.messages]

    return read


def sources_reader() -> ReadPage:
    """Read pages the way the sources show: the whole page from each shard, at the same time; sort; cut.

    Kinder to them than their own code: the threads are kept, and the low-level client spares their type conversion. It
    has the same limits and retries as ours, so that only the work differs.
    """
    client, executor = create_client(connections=SOURCES_THREADS), ThreadPoolExecutor(SOURCES_THREADS)

    def read(conversation_id: str) -> list[str]:
        keys = [KEY_FORM.shard_key(conversation_id, index) for index in range(SHARDS)]
        items = [item for response in executor.map(lambda key: query_newest(client, key), keys) for item in response]
        items.sort(key=lambda item: item["sk"]["S"], reverse=True)
        return [item["message_id"]["S"] for item in items[:PAGE]]

    return read


def compare_reads(
    setup: Setup, stored: Stored, ours: ReadPage, theirs: Callable[[str], object], rounds: int, **more: Any
) -> Measured:
    """Measure a page in the mean in both ways, each conversation in turn; `more` is what `compare` is given."""
    names = list(stored)
    return compare(
        setup,
        lambda number: ours(names[number % len(names)]),
        lambda number: theirs(names[number % len(names)]),
        len(names) * setup.count(rounds),
        unit=MILLISECONDS,
        conditions=f"every response of DynamoDB takes {SERVICE_MS:g} ms; pages in {len(names)} conversations",
        **more,
    )


def _prepare(setup: Setup, stored: Stored, *readers: ReadPage) -> None:
    """Slow DynamoDB down, and refuse to time a reader that gets a page wrong: routes are cached afterwards.

    Raises:
        ValueError: it does.
    """
    setup.control("Configure", delay_ms=SERVICE_MS)
    for read in readers:
        for name, newest_ids in stored.items():
            if read(name) != newest_ids:
                raise ValueError(f"{name} was not read as it was stored")


def measure_time(setup: Setup) -> Measured:
    """Compare with one query of an unsharded conversation. Now and then a page takes a second round."""
    stored, ours, client = store_conversations(setup), our_reader(), create_client(connections=1)
    _prepare(setup, stored, ours)
    rival = "one boto3 query of 50, unsharded, alone"
    return compare_reads(
        setup,
        stored,
        ours,
        lambda name: query_newest(client, plain_name(name)),
        rounds=4,
        spent=wall_seconds,
        rival_name=rival,
        at_most={"ratio": 1.5},
    )


def measure_cpu(setup: Setup) -> Measured:
    """Compare with the sources' reader."""
    stored, ours, rival = store_conversations(setup), our_reader(), sources_reader()
    _prepare(setup, stored, ours, rival)
    name = "16 boto3 queries of 50 on 16 threads, sorted"
    return compare_reads(setup, stored, ours, rival, rounds=2, rival_name=name, at_most={"ratio": 0.08})


LASTING = {"page_ttl_seconds": 60.0, "page_staleness_seconds": 600.0}
MOSTLY = 0.99
"""Share of the pages that come from the cache: with a TTL of a minute a few are read anew, which counts as well."""


class Origins(LoggedTelemetry):
    """`Telemetry` that counts where values came from."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def count(self, metric: str, value: float = 1.0) -> None:
        """Implement `Telemetry.count`."""
        self.counts[metric] = self.counts.get(metric, 0) + value

    def require(self, origin: MetricName) -> None:
        """Refuse what was timed unless nearly all of it came from there.

        Raises:
            ValueError: it came from elsewhere.
        """
        served = {name: count for name, count in self.counts.items() if name.startswith("PagesFrom")}
        if not served or served.get(origin, 0) < MOSTLY * sum(served.values()):
            raise ValueError(f"nearly all should come as {origin}, and came as {served}")


def measure_l1(setup: Setup) -> Measured:
    """Read every conversation from the environment's memory, where all pages are kept."""
    return _compare_cached(setup, MetricName.PAGES_FROM_L1, at_most=0.15)


def measure_redis(setup: Setup) -> Measured:
    """Read every conversation from Redis: one page only is kept, so that each is another one."""
    with patch.dict(ReadCache.__init__.__kwdefaults__, max_entries=1):
        return _compare_cached(setup, MetricName.PAGES_FROM_REDIS, at_most=0.35)


def _compare_cached(setup: Setup, origin: MetricName, *, at_most: float) -> Measured:
    """Compare a cached page with that of `read-16`; refuse to time pages that mostly come from elsewhere."""
    stored, origins = store_conversations(setup), Origins()
    with Redis(port=setup.redis_port) as redis:
        for name in stored:
            redis.set(read_hot_key(TABLE, name), PAGE_COPIES)
    cached, uncached = our_reader(origins, **LASTING), our_reader(page_cache=False)
    _prepare(setup, stored, cached, uncached)
    origins.counts.clear()
    rival = "the same page uncached, as in read-16"
    measured = compare_reads(
        setup, stored, cached, uncached, rounds=4, more=10, rival_name=rival, at_most={"ratio": at_most}
    )
    origins.require(origin)
    return measured
