"""Redis, as much of it as the product uses: a cluster of a few nodes, each with a replica, latency and bad days.

What clients see are redis-py's own methods and errors, so the product's own adapters run on it unchanged. Each node's
replica lags: a failover takes its place and forgets what had not arrived there, as asynchronous replication does.

Assumption, not a measurement: commands take 0.6 ms in the median and 3 ms at the 99.9th percentile (one region, TLS).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from math import log
from random import Random
from typing import Any, NamedTuple, TypeAlias, TypeVar

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from hotpartition.redis.cluster import ClusterClient, RedisConnection
from tools.world.clock import Engine, Process

ResultT = TypeVar("ResultT")
Fields: TypeAlias = Mapping[str | bytes, str | bytes] | Mapping[str, str]

MEDIAN_SECONDS = 0.0006
SIGMA = 0.5
REFUSED_SECONDS = 0.001
"""How long a node that is down takes to refuse a connection."""
LOST_BUT_RUN = 0.5
ATTEMPTS = 2
"""redis-py tries a command that timed out once more (`RedisConnection`)."""
LOG_LIMIT = 512
REPLICA_LAG_SECONDS = 5.0
"""What is older than this has reached the replica in any case."""


class StreamId(NamedTuple):
    """A stream entry's id."""

    ms: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """Parse `<ms>-<sequence>`."""
        ms, _, sequence = text.partition("-")
        return cls(int(ms), int(sequence))

    def __str__(self) -> str:
        """Format it as Redis does."""
        return f"{self.ms}-{self.sequence}"


class _Stream:
    """A stream: ids in order, and their entries."""

    def __init__(self) -> None:
        self.ids: list[StreamId] = []
        self.entries: list[Fields] = []

    def add(self, now_ms: int, fields: Fields) -> None:
        last = self.ids[-1] if self.ids else StreamId(0, 0)
        self.ids.append(StreamId(now_ms, 0) if now_ms > last.ms else StreamId(last.ms, last.sequence + 1))
        self.entries.append(fields)

    def trim(self, oldest_ms: int) -> None:
        end = bisect_right(self.ids, StreamId(oldest_ms, -1))
        del self.ids[:end]
        del self.entries[:end]

    def after(self, after: StreamId, count: int) -> list[tuple[str, Fields]]:
        start = bisect_right(self.ids, after)
        return [(str(i), e) for i, e in zip(self.ids[start : start + count], self.entries[start:], strict=False)]


class _Data:
    """One node's memory."""

    def __init__(self) -> None:
        self.sets: dict[str, set[str | bytes]] = {}
        self.texts: dict[str, str] = {}
        # only of texts that expire; Unix ms
        self.expires_at_ms: dict[str, int] = {}
        self.hashes: dict[str, dict[str, tuple[str, int]]] = {}
        """Each field with when it expires, Unix ms."""
        self.streams: dict[str, _Stream] = {}
        self.scores: dict[str, dict[str, float]] = {}
        self.foreign: set[str] = set()
        """Keys that hold another type than the product's commands on them expect."""

    def take(self, key: str) -> None:
        """Put something of another type under a key."""
        self.foreign.add(key)
        for kind in (self.sets, self.texts, self.hashes, self.streams, self.scores):
            kind.pop(key, None)

    def delete(self, key: str) -> None:
        """Remove what is of another type."""
        self.foreign.discard(key)

    def sadd(self, key: str, members: tuple[str | bytes, ...]) -> None:
        self.sets.setdefault(key, set()).update(members)

    def set(self, key: str, value: str, expires_at_ms: int | None = None) -> None:
        self.foreign.discard(key)  # SET takes the place of anything
        self.texts[key] = value
        self.expires_at_ms.pop(key, None)
        if expires_at_ms is not None:
            self.expires_at_ms[key] = expires_at_ms

    def keep_until(self, key: str, expires_at_ms: int) -> None:
        """Let a text expire, unless it does already."""
        self.expires_at_ms.setdefault(key, expires_at_ms)

    def text(self, key: str, now_ms: int) -> str | None:
        """Read a text that has not expired."""
        return self.texts.get(key) if now_ms < self.expires_at_ms.get(key, now_ms + 1) else None

    def field(self, key: str, name: str, now_ms: int) -> tuple[str | None, int]:
        """Read a field of a hash that has not expired, and when it will."""
        value, expires_at_ms = self.hashes.get(key, {}).get(name, ("", 0))
        return (value, expires_at_ms) if now_ms < expires_at_ms else (None, 0)

    def hsetex(self, key: str, name: str, value: str, expires_at_ms: int) -> None:
        self.hashes.setdefault(key, {})[name] = value, expires_at_ms

    def xadd(self, key: str, fields: Fields, now_ms: int, oldest_ms: int) -> None:
        stream = self.streams.setdefault(key, _Stream())
        stream.add(now_ms, fields)
        # Approximate trimming drops whole nodes of a hundred entries.
        if len(stream.ids) > 100 and stream.ids[100].ms < oldest_ms:
            stream.trim(oldest_ms)

    def zadd(self, key: str, member: str, score: float) -> None:
        scores = self.scores.setdefault(key, {})
        scores[member] = max(score, scores.get(member, score))

    def trim(self, oldest_ms: int) -> None:
        for stream in self.streams.values():
            stream.trim(oldest_ms)


Change = Callable[[_Data], None]


class RedisNode:
    """A primary and its replica."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_down = False
        self.is_hanging = False
        self.extra_seconds = 0.0
        self.data = _Data()
        self.commands: Counter[int] = Counter()
        """What it was asked to do, by second of the run."""
        self.sent: Counter[int] = Counter()
        """Bytes of cached pages that it sent, by second of the run."""
        self._replica = _Data()
        self._log: deque[tuple[float, Change]] = deque()

    def change(self, now: float, change: Change) -> None:
        """Apply a write; the replica gets it later."""
        change(self.data)
        self._log.append((now, change))
        if len(self._log) > LOG_LIMIT:
            self._replicate(now - REPLICA_LAG_SECONDS)

    def fail_over(self, now: float, lost_seconds: float) -> None:
        """Put the replica in the primary's place: the writes of the last moments are gone."""
        self._replicate(now - lost_seconds)
        self._log.clear()
        self.data = self._replica
        self._replica = deepcopy(self.data)

    def recover(self) -> None:
        """Be well again, with what is left of its memory."""
        self.is_down = self.is_hanging = False
        self.extra_seconds = 0.0

    def empty(self) -> None:
        """Forget everything."""
        self.data, self._replica = _Data(), _Data()
        self._log.clear()

    def _replicate(self, until: float) -> None:
        while self._log and self._log[0][0] <= until:
            self._log.popleft()[1](self._replica)


class RedisServer:
    """The cluster of `nodes` primaries, empty. Slots are spread over the nodes in equal pieces."""

    def __init__(self, engine: Engine, *, nodes: int, random: Random) -> None:
        self.lost = 0.0
        """Odds that a command gets no response; half of those ran all the same."""
        self.after_route: Callable[[Process], None] = lambda _: None
        """Called when a process has added to a route, before it hears of that."""
        self.engine = engine
        self.nodes = [RedisNode(f"node-{index}") for index in range(nodes)]
        self.random = random
        self.commands = self.reports = 0
        """What the cluster was asked to do."""
        self._places: dict[str, RedisNode] = {}

    def node_of(self, key: str) -> RedisNode:
        """Find the node of a key."""
        node = self._places.get(key)
        if node is None:
            node = self._places[key] = self.nodes[key_slot(key.encode()) * len(self.nodes) // REDIS_CLUSTER_HASH_SLOTS]
        return node

    def some_nodes(self, random: Random) -> list[RedisNode]:
        """Choose one node, or now and then all of them."""
        if random.random() < 0.3:
            return self.nodes
        return [self.nodes[random.randrange(len(self.nodes))]]

    def change(self, key: str, change: Change) -> None:
        """Apply a write to a key's node, now, without a client."""
        self.node_of(key).change(self.engine.now, change)

    def empty(self) -> None:
        """Forget everything, on all nodes."""
        for node in self.nodes:
            node.empty()

    def keys(self) -> list[str]:
        """List all keys that anybody ever named, whether they hold something or not."""
        return sorted(self._places)


class RedisClient:
    """One client, with the methods of redis-py that the product uses. Blocks the calling task."""

    def __init__(self, server: RedisServer, *, timeout_seconds: float, owner: Process | None = None) -> None:
        self._server = server
        self._timeout = timeout_seconds
        self._owner = owner

    def get_node_from_key(self, key: str) -> RedisNode:
        """Find the node that a key is on."""
        return self._server.node_of(key)

    def sscan(self, key: str, *, count: int) -> tuple[int, list[str]]:
        """List the first of a set, and say whether there are more; in a fixed order, where Redis has any."""
        return self._run(key, lambda node: _scan(node, key, count))

    def run_together(self, key: str, *commands: tuple[Any, ...]) -> list[object]:
        """Run some commands in one round trip, in the words that the product sends."""
        self._count(key, len(commands) - 1)
        return self._run(key, lambda node: [self._run_one(node, *command) for command in commands])

    def _run_one(self, node: RedisNode, name: str, key: str, *words: Any) -> object:
        server = self._server
        match name, words:
            case "SSCAN", (_, _, count):
                return _scan(node, key, count)
            case "GETRANGE", (_, end):
                return (node.data.text(key, server.engine.now_ms()) or "")[: end + 1]
            case "HGET", (field,):
                return self._read_field(node, key, field)
            case "HPTTL" | "HPEXPIRETIME", (_, _, field):
                value, expires_at_ms = node.data.field(key, field, server.engine.now_ms())
                since_ms = server.engine.now_ms() if name == "HPTTL" else 0
                return [-2 if value is None else expires_at_ms - since_ms]
            case "HSETEX", ("FNX", _, ttl_ms, _, _, field, value):
                return self._set_if_absent(node, key, field, value, server.engine.now_ms() + ttl_ms)
            case "INCR", ():
                return self._increment(node, key)
            case "PEXPIRE", (ttl_ms, "NX"):
                expires_at_ms = server.engine.now_ms() + ttl_ms
                node.change(server.engine.now, lambda data: data.keep_until(key, expires_at_ms))
                return 1
            case "XADD", (_, _, oldest_ms, _, field, text):
                self._append(node, key, {field: text}, oldest_ms)
                return None
            case _:
                raise ValueError(f"{name} is not simulated")

    def _set_if_absent(self, node: RedisNode, key: str, field: str, value: str, expires_at_ms: int) -> int:
        server = self._server
        if node.data.field(key, field, server.engine.now_ms())[0] is not None:
            return 0
        node.change(server.engine.now, lambda data: data.hsetex(key, field, value, expires_at_ms))
        return 1

    def _increment(self, node: RedisNode, key: str) -> int:
        now_ms = self._server.engine.now_ms()

        def add(data: _Data) -> None:
            known = data.text(key, now_ms)
            if known is None:
                data.set(key, "1")
            else:
                data.texts[key] = str(int(known) + 1)

        node.change(self._server.engine.now, add)
        return int(node.data.texts[key])

    def hget(self, key: str, name: str) -> str | None:
        """Read a field of a hash."""
        return self._run(key, lambda node: self._read_field(node, key, name))

    def _read_field(self, node: RedisNode, key: str, name: str) -> str | None:
        value, _ = node.data.field(key, name, self._server.engine.now_ms())
        node.sent[int(self._server.engine.now)] += len(value or "")
        return value

    def hsetex(self, key: str, name: str, value: str, *, pxat: int) -> None:
        """Set a field of a hash until an instant, Unix ms."""
        self._change(key, lambda data: data.hsetex(key, name, value, pxat))

    def sadd(self, key: str, *members: str) -> None:
        """Add to a set."""
        owner = self._owner

        def add(node: RedisNode) -> None:
            node.change(self._server.engine.now, lambda data: data.sadd(key, members))
            if owner is not None:
                self._server.after_route(owner)

        self._run(key, add)

    def exists(self, key: str) -> int:
        """Count a text key: 0 or 1."""
        return self._run(
            key,
            lambda node: int(node.data.text(key, self._server.engine.now_ms()) is not None or key in node.data.foreign),
            is_typed=False,
        )

    def getrange(self, key: str, start: int, end: int) -> str:
        """Read a part of a text."""
        return self._run(key, lambda node: (node.data.text(key, self._server.engine.now_ms()) or "")[start : end + 1])

    def set(self, key: str, value: object, *, px: int | None = None) -> None:
        """Set a text, for so many ms."""
        expires_at_ms = None if px is None else self._server.engine.now_ms() + px
        self._change(key, lambda data: data.set(key, str(value), expires_at_ms), is_typed=False)

    def xadd(self, key: str, fields: Mapping[str, str], *, minid: int, approximate: bool) -> None:
        """Append to a stream, and drop what is older than `minid`, Unix ms."""
        del approximate

        self._run(key, lambda node: self._append(node, key, fields, minid))

    def _append(self, node: RedisNode, key: str, fields: Mapping[str, str], oldest_ms: int) -> None:
        server, now_ms = self._server, self._server.engine.now_ms()
        server.reports += 1
        node.change(server.engine.now, lambda data: data.xadd(key, fields, now_ms, oldest_ms))

    def xread(self, streams: Mapping[str, str], *, count: int) -> list[tuple[str, list[tuple[str, Mapping[str, str]]]]]:
        """Read one stream after an id."""
        ((key, after),) = streams.items()

        def read(node: RedisNode) -> list[tuple[str, Mapping[str, str]]]:
            stream = node.data.streams.get(key)
            found = stream.after(StreamId.parse(after), count) if stream else []
            return [(entry_id, {_decode(k): _decode(v) for k, v in fields.items()}) for entry_id, fields in found]

        found = self._run(key, read)
        return [(key, found)] if found else []

    def zadd(self, key: str, scores: Mapping[str, float], *, gt: bool) -> None:
        """Set scores, if they are higher than before."""
        del gt
        ((member, score),) = scores.items()
        self._change(key, lambda data: data.zadd(key, member, score))

    def zscore(self, key: str, member: str) -> float | None:
        """Read a score."""
        return self._run(key, lambda node: node.data.scores.get(key, {}).get(member))

    def _count(self, key: str, commands: int) -> None:
        server = self._server
        server.commands += commands
        server.node_of(key).commands[int(server.engine.now)] += commands

    def _change(self, key: str, change: Change, *, is_typed: bool = True) -> None:
        self._run(key, lambda node: node.change(self._server.engine.now, change), is_typed=is_typed)

    def _run(self, key: str, effect: Callable[[RedisNode], ResultT], *, is_typed: bool = True) -> ResultT:
        """Run a command on a key's node; `is_typed`: it minds which type the key has.

        Raises:
            ResponseError: the key is of another type.
            RedisConnectionError: the node is down.
            RedisTimeoutError: no response in time; the command may have run.
        """
        server, node = self._server, self._server.node_of(key)

        def arrive() -> ResultT:
            if node.is_down:
                raise RedisConnectionError("refused")
            if is_typed and key in node.data.foreign:
                raise ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
            return effect(node)

        def happen() -> None:
            with suppress(RedisError):
                arrive()

        for _ in range(ATTEMPTS):
            self._count(key, 1)
            seconds = server.random.lognormvariate(log(MEDIAN_SECONDS), SIGMA) + node.extra_seconds
            if node.is_down:
                server.engine.sleep(REFUSED_SECONDS)
                raise RedisConnectionError("refused")
            is_lost = server.lost > 0 and server.random.random() < server.lost
            if not node.is_hanging and not is_lost and seconds <= self._timeout:
                return server.engine.call(seconds / 2, arrive, seconds / 2)
            if not node.is_hanging and (
                not is_lost or server.random.random() < LOST_BUT_RUN
            ):  # too late for the caller, yet it happens
                server.engine.after(seconds / 2, happen)
            server.engine.sleep(self._timeout)
        raise RedisTimeoutError("no response")


def _scan(node: RedisNode, key: str, count: int) -> tuple[int, list[str]]:
    members = sorted(_decode(member) for member in node.data.sets.get(key, ()))
    return int(len(members) > count), members[:count]


def _decode(stored: str | bytes) -> str:
    """Decode as the product's connection does (`RedisConnection`)."""
    return stored.decode(errors="backslashreplace") if isinstance(stored, bytes) else stored


class SimulatedConnection(RedisConnection):
    """The product's own connection, cooldowns after failures included, on a simulated cluster."""

    def __init__(self, server: RedisServer, *, timeout_ms: int, cooldown_ms: int, owner: Process | None = None) -> None:
        super().__init__(
            host="simulated",
            port=6379,
            is_tls=False,
            connect_timeout_ms=timeout_ms,
            command_timeout_ms=timeout_ms,
            cooldown_ms=cooldown_ms,
            now_ms=lambda: server.engine.now * 1000,
        )
        self._simulated: Any = RedisClient(server, timeout_seconds=timeout_ms / 1000, owner=owner)

    def _open(self) -> ClusterClient:
        client: ClusterClient = self._simulated
        return client
