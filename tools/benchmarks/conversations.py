"""Stored conversations for the reading rows: the same messages sharded over N, and in one piece for the rival."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import Any

from redis import Redis

from hotpartition.core.route import Generation, Route, choose_placement
from hotpartition.redis.cluster import route_key
from hotpartition_messages import Message
from hotpartition_messages.keys import KEY_FORM, ROUTING_SORT_KEY, build_key
from hotpartition_messages.message_ids import mint_message_id
from tools.benchmarks.setup import TABLE, Setup

PAGE = 50
BODY_CHARACTERS = 200
MESSAGES_PER_SHARD = 60
"""More than a page, so that the sources' reader gets the 50 that it asks each shard for."""
OLD_MESSAGES = 100
"""On the base key, from before the raise."""
SPACING_MS = 20

Load = Callable[[Iterable[Mapping[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, stored sharded under `sharded_id` and in one piece under `plain_id`."""

    sharded_id: str
    plain_id: str
    shard_count: int
    newest_ids: tuple[str, ...]


def store_conversations(
    setup: Setup, count: int, shard_count: int, *, with_plain: bool = False, load: Load | None = None
) -> list[Conversation]:
    """Store conversations whose messages fell onto the shards differently; their routes are in Redis as well.

    The rival's copy in one piece is stored on demand, and all of it by `load` instead of in the stand-in.
    """
    load = load or setup.load
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
            load(_items(conversation, ids, generation))
            if with_plain:
                plain = f"{conversation}-plain"
                load(Message(plain, i, "ann", _body(i)).to_item(plain) for i in ids[: 2 * PAGE])
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
