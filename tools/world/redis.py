"""Redis: a cluster of a few nodes of fakeredis, each with a replica, latency and bad days.

What clients see are redis-py's own values and errors, so the product's own adapters run on it unchanged. Each node's
replica lags: a failover takes its place and forgets what had not arrived there, as asynchronous replication does.

fakeredis runs commands without the text of its protocol and its queue of responses, which take half as long again.

Assumption, not a measurement: commands take 0.6 ms in the median and 3 ms at the 99.9th percentile (one region, TLS).
"""

# ruff: noqa: SLF001 - see above

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from math import log
from random import Random
from typing import Any, TypeAlias

from fakeredis import FakeServer
from fakeredis import _helpers as fake_helpers
from fakeredis._socket import FakeSocket
from fakeredis._socket import _base as fake_socket
from fakeredis.model import _stream as fake_stream
from redis import ConnectionPool, Redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from hotpartition.redis.cluster import ClusterClient, RedisConnection
from tools.world.clock import EPOCH_MS, Engine, Process

Word: TypeAlias = str | bytes | float
Command: TypeAlias = tuple[Word, ...]

MEDIAN_SECONDS = 0.0006
SIGMA = 0.5
REFUSED_SECONDS = 0.001
"""How long a node that is down takes to refuse a connection."""
LOST_BUT_RUN = 0.5
ATTEMPTS = 2
"""redis-py tries a command that timed out once more (`RedisConnection`)."""
_READS = frozenset({"EXISTS", "GET", "GETRANGE", "HGET", "HPEXPIRETIME", "HPTTL", "SSCAN", "TYPE", "XREAD", "ZSCORE"})
"""Commands that no replica has to repeat."""
_LASTING = frozenset({"SSCAN", "XREAD", "ZSCORE"})
"""Of these, those whose responses change with writes alone: the kinds of keys that they read never expire here."""
_WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
_PARSERS: Mapping[Any, Callable[..., Any]] = dict(Redis(connection_pool=ConnectionPool(protocol=2)).response_callbacks)
"""How redis-py reads responses, by command."""


class _Clock:
    """What fakeredis has in place of the module `time`; set before each command."""

    now_ms = 0

    def time(self) -> float:
        """Return the time, half a millisecond later, so that no rounding loses one."""
        return (self.now_ms + 0.5) / 1000


_CLOCK = _Clock()
for _module in (fake_helpers, fake_socket, fake_stream):
    _module.time = _CLOCK  # type: ignore[attr-defined]


class _Memory:
    """One node's memory."""

    def __init__(self) -> None:
        self._server = FakeServer(version=(8,))
        self._socket: Any = FakeSocket(self._server, 0, client_class=Redis)

    def run(self, now_ms: int, command: Command) -> Any:
        """Run a command at an instant; an error is returned, too."""
        socket, _CLOCK.now_ms = self._socket, now_ms
        socket._db.time = _CLOCK.time()
        name, *words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
        try:
            with self._server.lock:
                result = socket._run_command(*socket._name_to_func(name.decode().lower()), words, False)
        except AttributeError:  # XREAD of what is no stream
            return ResponseError(_WRONG_TYPE)
        return socket._decode_result(result)

    def copy(self) -> _Memory:
        """Copy everything."""
        copied = _Memory()
        for key, item in self._server.dbs[0].items():
            copied._server.dbs[0][key] = deepcopy(item)
        return copied


class RedisNode:
    """A primary and its replica."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.is_down = False
        self.is_hanging = False
        self.extra_seconds = 0.0
        self.commands: Counter[int] = Counter()
        """What it was asked to do, by second of the run."""
        self.sent: Counter[int] = Counter()
        """Bytes of cached pages that it sent, by second of the run."""
        self._engine = engine
        self._memory, self._replica = _Memory(), _Memory()
        self._log: deque[tuple[int, Command]] = deque()
        """Writes that the replica repeats when it takes the primary's place: earlier makes no difference."""
        self._known: defaultdict[Word, dict[Command, Any]] = defaultdict(dict)
        """Responses, by the key that was read: fakeredis is asked again once something was written to it."""

    def do(self, *command: Word) -> Any:
        """Run a command now. An error is returned, too."""
        now_ms, name = self._engine.now_ms(), command[0]
        if name in _LASTING:
            known = self._known[command[-2 if name == "XREAD" else 1]]
            if command not in known:
                known[command] = self._memory.run(now_ms, command)
            return known[command]
        if name not in _READS:
            self._log.append((now_ms, command))
            self._known[command[1]].clear()
        return self._memory.run(now_ms, command)

    def fail_over(self, lost_seconds: float) -> None:
        """Put the replica in the primary's place: the writes of the last moments are gone."""
        until_ms = self._engine.now_ms() - lost_seconds * 1000
        while self._log and self._log[0][0] <= until_ms:
            self._replica.run(*self._log.popleft())
        self._log.clear()
        self._known.clear()
        self._memory = self._replica
        self._replica = self._memory.copy()

    def recover(self) -> None:
        """Be well again, with what is left of its memory."""
        self.is_down = self.is_hanging = False
        self.extra_seconds = 0.0

    def empty(self) -> None:
        """Forget everything."""
        self._memory, self._replica = _Memory(), _Memory()
        self._log.clear()
        self._known.clear()


class RedisServer:
    """The cluster of `nodes` primaries, empty. Slots are spread over the nodes in equal pieces."""

    def __init__(self, engine: Engine, *, nodes: int, random: Random) -> None:
        self.lost = 0.0
        """Odds that a command gets no response; half of those ran all the same."""
        self.after_route: Callable[[Process], None] = lambda _: None
        """Called when a process has added to a route, before it hears of that."""
        self.engine = engine
        self.nodes = [RedisNode(f"node-{index}", engine) for index in range(nodes)]
        self.random = random
        self.commands = self.reports = 0
        """What the cluster was asked to do."""
        self._places: dict[str, RedisNode] = {}
        if _Memory().run(EPOCH_MS, ("XADD", "s", "*", "f", "v")) != f"{EPOCH_MS}-0".encode():
            raise RuntimeError("this version of fakeredis takes its time from elsewhere")

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

    def do(self, name: str, key: str, *words: Word) -> Any:
        """Run a command on a key's node, now, without a client."""
        return self.node_of(key).do(name, key, *words)

    def empty(self) -> None:
        """Forget everything, on all nodes."""
        for node in self.nodes:
            node.empty()

    def named_keys(self) -> list[str]:
        """List all keys that anybody ever named, whether they hold something or not."""
        return sorted(self._places)


class RedisClient:
    """What the product uses of redis-py's client. It blocks the calling task."""

    def __init__(self, server: RedisServer, *, timeout_seconds: float, owner: Process | None = None) -> None:
        self._server = server
        self._timeout = timeout_seconds
        self._owner = owner

    def get_node_from_key(self, key: str) -> RedisNode:
        """Find the node that a key is on."""
        return self._server.node_of(key)

    def run_together(self, key: str, *commands: Command) -> list[Any]:
        """Run some commands in one round trip, in the words that the product sends."""
        responses = self._run(key, commands)
        return [self._parse(command[0], each) for command, each in zip(commands, responses, strict=True)]

    def _run(self, key: str, commands: tuple[Command, ...]) -> list[Any]:
        """Run commands on a key's node.

        Raises:
            RedisConnectionError: the node is down.
            RedisTimeoutError: no response in time; the commands may have run.
        """
        server, engine, node = self._server, self._server.engine, self._server.node_of(key)
        for _ in range(ATTEMPTS):
            server.commands += len(commands)
            node.commands[int(engine.now)] += len(commands)
            seconds = server.random.lognormvariate(log(MEDIAN_SECONDS), SIGMA) + node.extra_seconds
            if node.is_down:
                engine.sleep(REFUSED_SECONDS)
                raise RedisConnectionError("refused")
            is_lost = server.lost > 0 and server.random.random() < server.lost
            if not node.is_hanging and not is_lost and seconds <= self._timeout:
                responses = engine.call(seconds / 2, lambda: self._arrive(node, commands), seconds / 2)
                if responses is None:
                    raise RedisConnectionError("refused")
                return responses
            if not node.is_hanging and (not is_lost or server.random.random() < LOST_BUT_RUN):
                # too late for the caller, yet it happens
                engine.after(seconds / 2, lambda: self._arrive(node, commands))
            engine.sleep(self._timeout)
        raise RedisTimeoutError("no response")

    def _arrive(self, node: RedisNode, commands: tuple[Command, ...]) -> list[Any] | None:
        """Let commands happen, and return their responses; None: the node is down by now."""
        if node.is_down:
            return None
        server = self._server
        responses = [node.do(*command) for command in commands]
        for command, response in zip(commands, responses, strict=True):
            name = command[0]
            server.reports += name == "XADD"
            if name == "HGET":
                node.sent[int(server.engine.now)] += len(response or b"")
            elif name == "SADD" and self._owner is not None:
                server.after_route(self._owner)
        return responses

    def _parse(self, name: Word, response: Any) -> Any:
        """Read a response as redis-py does, or raise the error that it is."""
        if isinstance(response, Exception):
            raise response.with_traceback(None)
        text, parse = _decode(response), _PARSERS.get(name)
        return text if parse is None else parse(text)


def _decode(stored: Any) -> Any:
    """Decode as the product's connection does (`RedisConnection`)."""
    if isinstance(stored, bytes):
        return stored.decode(errors="backslashreplace")
    return [_decode(each) for each in stored] if isinstance(stored, list) else stored


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
