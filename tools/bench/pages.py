"""The rows of the newest page of 50, in time and in CPU, uncached and cached.

Stored conversations are the same messages sharded over 16, and in one piece for the rival.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from unittest.mock import patch

from hotpartition.core.freshness import COPIES
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Telemetry
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
from tools.bench.measure import Measured, compare
from tools.bench.setup import TABLE, control, load, open_redis

CONVERSATIONS = 24
SHARDS = 16
SERVICE_MS = 5.0
PAGE = 50
BODY = "x" * 200
MESSAGES_PER_SHARD = 60
"""More than a page, so that the sources' reader gets the 50 that it asks each shard for."""
OLD_MESSAGES = 100
"""On the base key, from before the raise."""
SPACING_MS = 20
IN_ONE_PIECE = "-plain"
"""How a conversation's copy is called, behind its name."""

Stored = Mapping[str, Sequence[str]]
"""The ids of the newest messages of each conversation."""
ReadPage = Callable[[str], list[str]]
"""Reads the newest page of a conversation, and returns its ids."""


def store_conversations() -> Stored:
    """Store conversations whose messages fell onto the shards differently, their routes, and their copies."""
    random, stored = Random(SHARDS), {}
    for name in (f"n{SHARDS}-{index}" for index in range(CONVERSATIONS)):
        newest_ms = time.time_ns() // 1_000_000
        generation = Generation(since_ms=newest_ms - SHARDS * MESSAGES_PER_SHARD * SPACING_MS, shard_count=SHARDS)
        times = range(newest_ms, generation.since_ms - OLD_MESSAGES * SPACING_MS, -SPACING_MS)
        ids = [mint_message_id(time_ms, random.getrandbits) for time_ms in times]
        load(_items(name, ids, generation))
        with open_redis() as redis:
            redis.sadd(route_key(TABLE, name), generation.encode())
        stored[name] = ids[:PAGE]
    return stored


def _items(conversation_id: str, ids: Sequence[str], generation: Generation) -> Iterator[Mapping[str, Any]]:
    route, plain = Route(frozenset({generation})), conversation_id + IN_ONE_PIECE
    for message_id in ids:
        placement = choose_placement(route, build_key(conversation_id, message_id), KEY_FORM)
        yield Message(conversation_id, message_id, "ann", BODY).to_item(placement.partition_key)
    for message_id in ids[: 2 * PAGE]:
        yield Message(plain, message_id, "ann", BODY).to_item(plain)
    yield {
        "pk": {"S": conversation_id},
        "sk": {"S": ROUTING_SORT_KEY},
        "generations": {"SS": [generation.encode()]},
        "updated_at": {"S": "2026-11-21T09:30:00.000Z"},
        "reason": {"S": "raised"},
        "routing_partition": {"S": "00"},
    }


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
    client, executor = create_client(connections=SHARDS), ThreadPoolExecutor(SHARDS)

    def read(conversation_id: str) -> list[str]:
        keys = [KEY_FORM.shard_key(conversation_id, index) for index in range(SHARDS)]
        items = [item for response in executor.map(lambda key: query_newest(client, key), keys) for item in response]
        items.sort(key=lambda item: item["sk"]["S"], reverse=True)
        return [item["message_id"]["S"] for item in items[:PAGE]]

    return read


def compare_reads(stored: Stored, ours: ReadPage, theirs: ReadPage, *, rounds: int, **more: Any) -> Measured:
    """Measure a page in the mean in both ways, each conversation in turn; `more` is what `compare` is given.

    Every page was read before, so routes are cached.

    Raises:
        ValueError: one side got a page wrong, and is not timed.
    """
    control("Configure", delay_ms=SERVICE_MS)
    for read in (ours, theirs):
        for name, newest_ids in stored.items():
            if read(name) != newest_ids:
                raise ValueError(f"{name} was not read as it was stored")
    names = list(stored)
    return compare(
        lambda number: ours(names[number % len(names)]),
        lambda number: theirs(names[number % len(names)]),
        len(names) * rounds,
        conditions=f"every response of DynamoDB takes {SERVICE_MS:g} ms; pages in {len(names)} conversations",
        **more,
    )


def measure_time() -> Measured:
    """Compare with one query of an unsharded conversation. Now and then a page takes a second round."""
    client = create_client(connections=1)

    def theirs(name: str) -> list[str]:
        return [item["message_id"]["S"] for item in query_newest(client, name + IN_ONE_PIECE)]

    stored, rival = store_conversations(), "one boto3 query of 50, unsharded, alone"
    how = {"clock": time.perf_counter, "at_most": {"ratio": 1.5}}
    return compare_reads(stored, our_reader(), theirs, rounds=4, rival_name=rival, **how)


def measure_cpu() -> Measured:
    """Compare with the sources' reader."""
    rival, bars = "16 boto3 queries of 50 on 16 threads, sorted", {"ratio": 0.08}
    stored = store_conversations()
    return compare_reads(stored, our_reader(), sources_reader(), rounds=2, rival_name=rival, at_most=bars)


LASTING = {"page_ttl_seconds": 60.0, "page_staleness_seconds": 600.0}
MOSTLY = 0.99
"""Share of the pages that come from the cache: the first are read, and with a TTL of a minute a few are read anew."""


class Origins(LoggedTelemetry):
    """`Telemetry` that counts where values came from."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, metric: str, value: float = 1.0) -> None:
        """Implement `Telemetry.count`."""
        self.counts[metric] += int(value)

    def require(self, origin: MetricName) -> None:
        """Refuse what was timed unless nearly all of it came from there.

        Raises:
            ValueError: it came from elsewhere.
        """
        served = {name: count for name, count in self.counts.items() if name.startswith("PagesFrom")}
        if self.counts[origin] <= MOSTLY * sum(served.values()):
            raise ValueError(f"nearly all should come as {origin}, and came as {served}")


def measure_l1() -> Measured:
    """Read every conversation from the environment's memory, where all pages are kept."""
    return _compare_cached(MetricName.PAGES_FROM_L1, at_most=0.15)


def measure_redis() -> Measured:
    """Read every conversation from Redis: one page only is kept, so that each is another one."""
    with patch.dict(ReadCache.__init__.__kwdefaults__, max_entries=1):
        return _compare_cached(MetricName.PAGES_FROM_REDIS, at_most=0.35)


def _compare_cached(origin: MetricName, *, at_most: float) -> Measured:
    """Compare a cached page with that of `read-16`; refuse to time pages that mostly come from elsewhere."""
    stored, origins = store_conversations(), Origins()
    with open_redis() as redis:
        for name in stored:
            redis.set(read_hot_key(TABLE, name), COPIES)
    cached, uncached = our_reader(origins, **LASTING), our_reader(page_cache=False)
    how = {"rival_name": "the same page uncached, as in read-16", "at_most": {"ratio": at_most}}
    measured = compare_reads(stored, cached, uncached, rounds=4, more=10, **how)
    origins.require(origin)
    return measured
