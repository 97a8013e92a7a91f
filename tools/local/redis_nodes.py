"""The registry as the local run starts it: one node, one behind TLS that asks for a password, or one with a replica.

Functions connect to `port`, which stands for ElastiCache's configuration endpoint: whatever node dies, it leads to one
that lives. The guarded one has certificates, users with few rights, and passwords in files of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import trustme

from hotpartition.redis.cluster import ACCESS
from tools.local.processes import LocalRunError, free_port, wait_until
from tools.local.redis_server import Access, RedisServer

FUNCTIONS_USER = "hotpartition"
ADMIN_USER = "admin"

_PASSWORD_BYTES = 32

_CHUNK_BYTES = 65536
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Guard:
    """Where everything lies. Only the owner can read the passwords and the key."""

    ca_file: Path
    password_file: Path
    admin_password_file: Path
    users: Path
    tls: ssl.SSLContext

    @property
    def access(self) -> Access:
        """The local run's own user."""
        return Access(self.users, ADMIN_USER, self.admin_password_file.read_text())


def make_guard(folder: Path) -> Guard:
    """Make new certificates, passwords and users in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(tls)
    guard = Guard(
        ca_file=folder / "ca.pem",
        password_file=folder / "password",
        admin_password_file=folder / "admin-password",
        users=folder / "users.acl",
        tls=tls,
    )
    for path in (guard.password_file, guard.admin_password_file):
        write_secret(path, secrets.token_urlsafe(_PASSWORD_BYTES))
    users = {FUNCTIONS_USER: (guard.password_file, ACCESS), ADMIN_USER: (guard.admin_password_file, "~* &* +@all")}
    lines = [f"user {name} on #{_digest(path)} {rights}" for name, (path, rights) in users.items()]
    write_secret(guard.users, "\n".join(["user default off", *lines, ""]))
    return guard


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, at all times."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Front:
    """One port in front of servers that come and go.

    What ElastiCache's configuration endpoint is: a name that leads to a living node, and the place where TLS ends.
    """

    def __init__(self, target_port: Callable[[], int], tls: ssl.SSLContext | None = None) -> None:
        self._target_port = target_port
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """It listens."""
        return self._server is not None

    async def start(self, port: int) -> None:
        """Listen; a port that is taken is an `OSError`."""
        self._server = await asyncio.start_server(self._lead, "127.0.0.1", port, ssl=self._tls)

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # what was broken off is closed in the loop's next round

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this in a task of its own
        self._connections.add(task)
        try:
            onward, onward_writer = await asyncio.open_connection("127.0.0.1", self._target_port())
            try:
                await _first_end(_pump(reader, onward_writer), _pump(onward, writer))
            finally:
                onward_writer.transport.abort()
        except OSError:
            pass  # nothing serves: the client finds its connection closed
        finally:
            # Without TLS's farewell, which would wait for the client's.
            writer.transport.abort()
            self._connections.discard(task)


async def _first_end(*pumps: Coroutine[None, None, None]) -> None:
    """Run both directions until one of them ends."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()


RedisForm = Literal["single", "guarded", "replicated"]


class RedisNodes:
    """All nodes, killed and paused together; and of two, the primary's death while its replica lags behind."""

    def __init__(self, binary: Path, work_dir: Path, port: int, *, form: RedisForm = "single") -> None:
        self.port = port
        self._work_dir = work_dir
        self._guard: Guard | None = None
        self._front: Front | None = None
        match form:
            case "single":
                self._nodes = [RedisServer(binary, work_dir, port)]
            case "guarded":
                self._guard = make_guard(work_dir / "access")
                access = self._guard.access
                # Neither Redis that Python packages ship can speak TLS: a front does it, and announces itself.
                self._nodes = [RedisServer(binary, work_dir, free_port(), announced_port=port, access=access)]
                self._front = Front(self._primary_port, self._guard.tls)
            case "replicated":
                self._nodes = [RedisServer(binary, work_dir / name, free_port()) for name in ("first", "second")]
                self._front = Front(self._primary_port)
        self._primary = self._nodes[0]

    @property
    def is_running(self) -> bool:
        """The primary's process exists; it may be paused."""
        return self._primary.is_running

    def describe(self) -> dict[str, Any]:
        """Describe the registry as the control API shows it: paths, never what is in them."""
        facts: dict[str, Any] = {"port": self.port, "pid": self._primary.pid, "running": self.is_running}
        if self._guard is not None:
            facts |= {
                "ca_file": str(self._guard.ca_file.resolve()),
                "user": FUNCTIONS_USER,
                "password_file": str(self._guard.password_file.resolve()),
                "admin_user": ADMIN_USER,
                "admin_password_file": str(self._guard.admin_password_file.resolve()),
            }
        if self._replica is not None:
            facts |= {"primary_port": self._primary.port, "replica_port": self._replica.port}
        return facts

    def settings(self) -> Mapping[str, str]:
        """What functions need to know to get in, by setting, whatever the template says."""
        guard = self._guard
        if guard is None:
            return {"registry_tls": "false", "registry_authentication": "none"}
        return {
            "registry_tls": "true",
            "registry_authentication": "password",
            "registry_user": FUNCTIONS_USER,
            "registry_password_file": str(guard.password_file.resolve()),
            "registry_ca_file": str(guard.ca_file.resolve()),
        }

    async def start(self) -> None:
        """Start what does not run, and wait until the cluster responds."""
        if self._front is not None and not self._front.is_open:
            await self._front.start(self.port)
        replica = self._replica
        if replica is None:
            await self._primary.start()
            return
        await asyncio.gather(self._primary.start(), replica.start(is_alone=False))
        await self._join(replica)

    async def stop(self) -> None:
        """Kill every node and close the port."""
        await self.kill()
        if self._front is not None:
            await self._front.stop()

    async def kill(self) -> None:
        """Kill every node as a crash would."""
        for node in self._nodes:
            await node.kill()

    def erase(self) -> None:
        """Delete what the nodes have stored; the slots stay assigned."""
        if self.is_running:
            raise LocalRunError("Redis runs; kill it first")
        for node in self._nodes:
            node.erase()

    async def pause(self) -> None:
        """Freeze every node."""
        for node in self._nodes:
            node.pause()

    async def resume(self) -> None:
        """Continue paused nodes."""
        for node in self._nodes:
            node.resume()

    async def cut_replica(self) -> None:
        """Cut the replica off from its primary: what is written from now on, it does not see."""
        replica = self._need_replica()
        # Sent at its next attempt to connect: the primary knows no such user and turns it away.
        await _order(replica, "CONFIG", "SET", "masteruser", "nobody", "masterauth", "nothing")
        await _order(self._primary, "CLIENT", "KILL", "TYPE", "replica")
        await _agree(lambda: _says(replica, "INFO", "replication", text="master_link_status:down"))

    async def fail_over(self) -> None:
        """Kill the primary and promote its replica, as it is. The next `start` makes the old primary a replica."""
        replica = self._need_replica()
        await self._primary.kill()
        # Not the vote of a majority, which one primary and its replica do not have.
        await _order(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
        await _agree(lambda: _says(replica, "INFO", "replication", text="role:master"))
        await _order(replica, "CONFIG", "SET", "masteruser", "", "masterauth", "")
        self._primary = replica

    @property
    def _replica(self) -> RedisServer | None:
        return next((node for node in self._nodes if node is not self._primary), None)

    def _need_replica(self) -> RedisServer:
        if self._replica is None or not self._replica.is_running:
            raise LocalRunError("no replica runs")
        return self._replica

    def _primary_port(self) -> int:
        return self._primary.port

    async def _join(self, replica: RedisServer) -> None:
        """Make two nodes a primary and its replica, or wait until they are that again."""
        primary_id = await _order(self._primary, "CLUSTER", "MYID")
        meeting = ("CLUSTER", "MEET", "127.0.0.1", str(self._primary.port), str(self._primary.bus_port))
        await _order(replica, *meeting)
        # An error until the two have shaken hands.
        await _agree(lambda: _says(replica, "CLUSTER", "REPLICATE", primary_id, text="OK"))
        await _agree(lambda: _says(replica, "INFO", "replication", text="master_link_status:up"))


async def _order(node: RedisServer, *command: str) -> str:
    response = await node.ask(*command)
    if response.startswith("-"):
        raise LocalRunError(f"Redis refused {' '.join(command)}: {response[1:]}")
    return response


async def _says(node: RedisServer, *command: str, text: str) -> bool:
    return text in await node.ask(*command)


async def _agree(condition: Callable[[], Awaitable[bool]]) -> None:
    if not await wait_until(condition, seconds=_PATIENCE_SECONDS):
        raise LocalRunError(f"the nodes of Redis do not agree after {_PATIENCE_SECONDS:.0f} s")
