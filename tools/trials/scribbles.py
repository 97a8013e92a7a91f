"""What somebody else may write into our Redis: invented generations, bytes that are no text, keys of another type.

Each takes its own back in the end. For bytes and types that is so that Redis serves again; for invented generations it
is the trial itself: a message that was placed by one of them alone would not be found any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.core.route import Generation
from hotpartition.redis.cluster import consumer_key, reports_key, route_key
from hotpartition.redis.registry import MAX_ROUTE_MEMBERS
from hotpartition.runtime.settings import WriterSettings
from tools.load.observer import ControlError

Command = tuple[str | bytes | int, ...]
Execute = Callable[[Command], Awaitable[Any]]
OpenRedis = Callable[[Mapping[str, Any]], AbstractAsyncContextManager[Execute]]

SHARE_OF_CONVERSATIONS = 0.4
NOISE = b"\xff\xfe"
TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Scribble:
    """Commands to Redis, and those that take them back."""

    write: tuple[Command, ...]
    take_back: tuple[Command, ...]


def invent_generations(table: str, conversations: Sequence[str], rng: Random) -> Scribble:
    """Write generations that nobody raised, from the beginning of time on, one of them as wide as there can be."""
    write: list[Command] = []
    take_back: list[Command] = []
    for index, conversation_id in enumerate(_some(conversations, rng)):
        shard_count = MAX_SHARD_COUNT if index == 0 else rng.randint(2, 24)
        key, member = route_key(table, conversation_id), Generation(since_ms=0, shard_count=shard_count).encode()
        write.append(("SADD", key, member))
        take_back.append(("SREM", key, member))
    return Scribble(tuple(write), tuple(take_back))


def scatter_bytes(table: str, conversations: Sequence[str], rng: Random) -> Scribble:
    """Write bytes that are no text into routes, into one far more than a route has, and into every report stream."""
    write: list[Command] = []
    take_back: list[Command] = []
    for index, conversation_id in enumerate(_some(conversations, rng)):
        more = 2 * MAX_ROUTE_MEMBERS if index == 0 else 0
        members = (NOISE, b"7@" + NOISE, *(NOISE + str(number).encode() for number in range(more)))
        write.append(("SADD", route_key(table, conversation_id), *members))
        take_back.append(("SREM", route_key(table, conversation_id), *members))
    for stream in _streams(table):
        for field, value in ((b"r", NOISE), (b"r", b"2|" + NOISE), (NOISE, NOISE)):
            write.append(("XADD", stream, "*", field, value))
    return Scribble(tuple(write), tuple(take_back))


def change_types(table: str, conversations: Sequence[str], rng: Random) -> Scribble:
    """Put texts where routes, one report stream and the consumer's heartbeat were."""
    routes = [route_key(table, conversation_id) for conversation_id in _some(conversations, rng)]
    keys = (*routes, rng.choice(_streams(table)), consumer_key(table))
    return Scribble(tuple(("SET", key, "text") for key in keys), tuple(("DEL", key) for key in keys))


@asynccontextmanager
async def open_redis(status: Mapping[str, Any]) -> AsyncIterator[Execute]:
    """Open the Redis of a local run with this status; what it refuses is a `ControlError`."""
    client = Redis(host="127.0.0.1", port=status["redis"]["port"], socket_timeout=TIMEOUT_SECONDS)

    async def execute(command: Command) -> Any:
        try:
            return await client.execute_command(*command)  # type: ignore[no-untyped-call]
        except RedisError as error:
            raise ControlError(f"Redis refuses {command[:2]}: {error}") from error

    try:
        yield execute
    finally:
        await client.aclose()


def _some(conversations: Sequence[str], rng: Random) -> list[str]:
    return rng.sample(conversations, max(1, round(SHARE_OF_CONVERSATIONS * len(conversations))))


def _streams(table: str) -> list[str]:
    return [reports_key(table, partition) for partition in range(WriterSettings.defaults().reports.stream_partitions)]
