"""The registry as the local run starts it: one node, one behind TLS that asks for a password, or one with a replica.

Functions connect to `port`, which stands for ElastiCache's configuration endpoint: whatever node dies, it leads to one
that lives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from tools.local.errors import LocalRunError
from tools.local.redis_access import ADMIN_USER, FUNCTIONS_USER, Guard, make_guard
from tools.local.redis_front import Front
from tools.local.redis_server import RedisServer, free_port

RedisForm = Literal["single", "guarded", "replicated"]

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.02


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
        """Delete what the nodes have stored; the slots stay assigned. REQUIRES: none runs."""
        for node in self._nodes:
            node.erase()

    def pause(self) -> None:
        """Freeze every node."""
        for node in self._nodes:
            node.pause()

    def resume(self) -> None:
        """Continue paused nodes."""
        for node in self._nodes:
            node.resume()

    async def cut_replica(self) -> None:
        """Cut the replica off from its primary: what is written from now on, it does not see."""
        replica = self._need_replica()
        # Sent at its next attempt to connect: the primary knows no such user and turns it away.
        await _order(replica, "CONFIG", "SET", "masteruser", "nobody", "masterauth", "nothing")
        await _order(self._primary, "CLIENT", "KILL", "TYPE", "replica")
        await _wait_for(lambda: _says(replica, "INFO", "replication", text="master_link_status:down"))

    async def fail_over(self) -> None:
        """Kill the primary and promote its replica, as it is. The next `start` makes the old primary a replica."""
        replica = self._need_replica()
        await self._primary.kill()
        # Not the vote of a majority, which one primary and its replica do not have.
        await _order(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
        await _wait_for(lambda: _says(replica, "INFO", "replication", text="role:master"))
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
        await _wait_for(lambda: _says(replica, "CLUSTER", "REPLICATE", primary_id, text="+OK"))
        await _wait_for(lambda: _says(replica, "INFO", "replication", text="master_link_status:up"))


async def _order(node: RedisServer, *command: str) -> str:
    response = await node.ask(*command)
    if response.startswith("-"):
        raise LocalRunError(f"Redis refused {' '.join(command)}: {response[1:]}")
    return response


async def _says(node: RedisServer, *command: str, text: str) -> bool:
    return text in await node.ask(*command)


async def _wait_for(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not await condition():
        if time.monotonic() > deadline:
            raise LocalRunError(f"the nodes of Redis do not agree after {_PATIENCE_SECONDS:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)
