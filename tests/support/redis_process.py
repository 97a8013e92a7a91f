"""A real `redis-server` for tests that are not asynchronous: the local run's, with its own folder and port."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any, Self

import redis

from hotpartition.redis.cluster import RedisConnection
from hotpartition.redis.report_streams import RedisReportSink
from support.fakes import InlineBackground
from tools.local.processes import free_port
from tools.local.redis import RedisServer, find_binary


def report_sink(connection: RedisConnection, table_name: str, partitions: int, **options: Any) -> RedisReportSink:
    """Build a sink that sends at once, by the wall clock, unless told otherwise."""
    usual = {"background": InlineBackground(), "now_ms": lambda: time.time_ns() // 1_000_000}
    return RedisReportSink(connection, table_name, partitions=partitions, **{**usual, **options})


class RedisProcess:
    """One server, running inside the `with` block; it may be killed, started again, paused and resumed."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._server = RedisServer(find_binary(os.environ), folder, self.port)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._runner.close()

    @property
    def admin(self) -> redis.Redis:
        """A plain client of the test's own, with patience."""
        return redis.Redis(port=self.port, decode_responses=True, protocol=2)

    def start(self) -> None:
        self._runner.run(self._server.start())

    def kill(self) -> None:
        self._runner.run(self._server.kill())

    def pause(self) -> None:
        self._server.pause()

    def resume(self) -> None:
        self._server.pause(is_paused=False)
