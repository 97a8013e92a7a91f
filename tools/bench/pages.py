"""The rows of the newest page of 50, in time and in CPU, uncached and cached.

Stored conversations are the same messages sharded over N, and in one piece for the rival.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
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
from tools.bench.measure import (
    CPU_CONDITIONS,
    MILLISECONDS,
    WALL_CONDITIONS,
    Measured,
    cpu_seconds,
    interleave,
    wall_seconds,
)
from tools.bench.setup import TABLE, Setup

CONVERSATIONS = 24
SERVICE_MS = 5.0
PAGE = 50
BODY_CHARACTERS = 200
MESSAGES_PER_SHARD = 60
"""More than a page, so that the sources' reader gets the 50 that it asks each shard for."""
OLD_MESSAGES = 100
"""On the base key, from before the raise."""
SPACING_MS = 20
SOURCES_THREADS = 16


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, stored sharded under `sharded_id` and in one piece under `plain_id`."""

    sharded_id: str
    plain_id: str
    shard_count: int
    newest_ids: tuple[str, ...]


def store_conversations(setup: Setup, count: int, shard_count: int, *, with_plain: bool = False) -> list[Conversation]:
    """Store conversations whose messages fell onto the shards differently; their routes are in Redis as well.

    The rival's copy in one piece is stored on demand.
    """
    random = Random(shard_count)
    stored: list[Conversation] = []
    with Redis(port=setup.redis_port) as redis:
        for index in range(count):
            conversation = f"n{shard_count}-{index}"
            newest_ms = time.time_ns() // 1_000_000
            since_ms = newest_ms - shard_count * MESSAGES_PER_SHARD * SPACING_MS
            generation = Generation(since_ms=since_ms, shard_count=shard_count)
            ids = [
                mint_message_id(newest_ms - age * SPACING_MS, random.getrandbits)
                for age in range(shard_count * MESSAGES_PER_SHARD + OLD_MESSAGES)
            ]
            setup.load(_items(conversation, ids, generation))
            if with_plain:
                plain = f"{conversation}-plain"
                setup.load(Message(plain, i, "ann", _body(i)).to_item(plain) for i in ids[: 2 * PAGE])
            redis.sadd(route_key(TABLE, conversation), generation.encode())
            stored.append(Conversation(conversation, f"{conversation}-plain", shard_count, tuple(ids[:PAGE])))
    return stored


def _items(conversation_id: str, ids: list[str], generation: Generation) -> Iterator[dict[str, Any]]:
    route = Route(frozenset({generation}))
    for message_id in ids:
        placement = choose_placement(route, build_key(conversation_id, message_id), KEY_FORM)
        yield dict(Message(conversation_id, message_id, "ann", _body(message_id)).to_item(placement.partition_key))
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


def read_all_shards(client: Any, executor: Executor, conversation: Conversation) -> list[str]:
    """Read the newest messages the way the sources show: the whole page from each shard, at the same time; sort; cut.

    Kinder to them than their own code: the threads are kept, and the low-level client spares their type conversion.
    """
    keys = [KEY_FORM.shard_key(conversation.sharded_id, index) for index in range(conversation.shard_count)]
    items = [item for response in executor.map(lambda key: query_newest(client, key), keys) for item in response]
    items.sort(key=lambda item: item["sk"]["S"], reverse=True)
    return [item["message_id"]["S"] for item in items[:PAGE]]


ReadPage = Callable[[Conversation], list[str]]


def our_reader(telemetry: Telemetry | None = None, **settings: object) -> ReadPage:
    """Wire the read job up as the function does, and read pages by it; some settings may be others."""
    reader = open_reader(os.environ, telemetry or LoggedTelemetry(), **settings)

    def read(conversation: Conversation) -> list[str]:
        page = reader.read_page(PageRequest(conversation.sharded_id, limit=PAGE))
        return [message.message_id for message in page.messages]

    return read


def sources_reader() -> ReadPage:
    """Read pages the way the sources show."""
    # With the same limits and retries as ours, so that only the work differs.
    client = create_client(connections=SOURCES_THREADS)
    executor = ThreadPoolExecutor(SOURCES_THREADS)
    return lambda conversation: read_all_shards(client, executor, conversation)


def check_reader(read: ReadPage, conversations: Sequence[Conversation]) -> None:
    """Refuse to time a reader that gets a page wrong; connections are open and routes cached afterwards.

    Raises:
        ValueError: it does.
    """
    for conversation in conversations:
        if tuple(read(conversation)) != conversation.newest_ids:
            raise ValueError(f"{conversation.sharded_id} was not read as it was stored")


def compare_reads(
    setup: Setup,
    ours: ReadPage,
    theirs: Callable[[Conversation], object],
    conversations: Sequence[Conversation],
    *,
    rounds: int,
    rival: str,
    at_most: float,
    clock: Callable[[Callable[[], object]], float] = cpu_seconds,
    more: int = 1,
) -> Measured:
    """Measure a page in the mean in both ways, each conversation in turn; ours reads `more` times as many pages."""
    in_turn = [*conversations] * setup.count(rounds)

    def mean_ms(read: Callable[[Conversation], object], pages: Sequence[Conversation]) -> float:
        return clock(lambda: [read(each) for each in pages]) / len(pages) * MILLISECONDS

    return Measured(
        unit="ms" if clock is wall_seconds else "ms of CPU",
        rival=rival,
        samples=interleave(lambda: mean_ms(ours, in_turn * more), lambda: mean_ms(theirs, in_turn), setup.runs),
        at_most={"ratio": at_most},
        conditions=(WALL_CONDITIONS if clock is wall_seconds else CPU_CONDITIONS)
        + f"; every response of DynamoDB takes {SERVICE_MS:g} ms; "
        f"mean of {len(in_turn)} pages in {len(conversations)} conversations",
    )


def measure_time(setup: Setup) -> Measured:
    """Compare with one query of an unsharded conversation. Now and then a page takes a second round."""
    conversations = store_conversations(setup, CONVERSATIONS, 16, with_plain=True)
    setup.control("Configure", delay_ms=SERVICE_MS)
    read, client = our_reader(), create_client(connections=1)
    check_reader(read, conversations)
    return compare_reads(
        setup,
        read,
        lambda conversation: query_newest(client, conversation.plain_id),
        conversations,
        rounds=4,
        clock=wall_seconds,
        rival="one boto3 query of 50, unsharded, alone",
        at_most=1.5,
    )


def measure_cpu(setup: Setup) -> Measured:
    """Compare with the sources' reader."""
    conversations = store_conversations(setup, CONVERSATIONS, 16)
    setup.control("Configure", delay_ms=SERVICE_MS)
    ours, rival = our_reader(), sources_reader()
    for read in (ours, rival):
        check_reader(read, conversations)
    return compare_reads(
        setup,
        ours,
        rival,
        conversations,
        rounds=2,
        rival="16 boto3 queries of 50 on 16 threads, sorted",
        at_most=0.08,
    )


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
    conversations = store_conversations(setup, CONVERSATIONS, 16)
    with Redis(port=setup.redis_port) as redis:
        for conversation in conversations:
            redis.set(read_hot_key(TABLE, conversation.sharded_id), PAGE_COPIES)
    setup.control("Configure", delay_ms=SERVICE_MS)
    origins = Origins()
    cached, uncached = our_reader(origins, **LASTING), our_reader(page_cache=False)
    for read in (cached, uncached):
        check_reader(read, conversations)
    origins.counts.clear()
    measured = compare_reads(
        setup,
        cached,
        uncached,
        conversations,
        rounds=4,
        more=10,
        rival="the same page uncached, as in read-16",
        at_most=at_most,
    )
    origins.require(origin)
    return measured
