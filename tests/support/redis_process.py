"""A real `redis-server` for tests that are not asynchronous: the local run's; and all adapters on one connection."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hotpartition.redis.cluster import RedisConnection
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import RedisReportSink, RedisReportSource
from support.fakes import FakeTelemetry, InlineBackground
from tools.local.processes import free_port
from tools.local.redis import RedisServer, find_binary


class Adapters(NamedTuple):
    """All that use Redis."""

    registry: RedisRegistry
    source: RedisReportSource
    pages: RedisPageStore
    sink: RedisReportSink
    telemetry: FakeTelemetry
    """What they report of foreign data."""

    @classmethod
    def on(
        cls,
        connection: RedisConnection,
        table_name: str = "t",
        *,
        timer: Callable[[], float] = time.monotonic,
        **sending: Any,
    ) -> Adapters:
        """Put them on a connection; reports are sent at once, by the wall clock, unless `sending` differs."""
        telemetry = FakeTelemetry()
        usual = {"partitions": 1, "background": InlineBackground(), "now_ms": lambda: time.time_ns() // 1_000_000}
        return cls(
            RedisRegistry(connection, table_name, telemetry),
            RedisReportSource(connection, table_name, telemetry),
            RedisPageStore(connection, table_name, telemetry, timer),
            RedisReportSink(connection, table_name, **usual | sending),
            telemetry,
        )


@contextmanager
def running_redis(folder: Path, port: int | None = None) -> Iterator[RedisServer]:
    """Run a server in a block, at the end of which it is killed; it may be paused, and run again on its port."""
    server = RedisServer(find_binary(os.environ), folder, port or free_port())
    with asyncio.Runner() as runner:
        runner.run(server.start())
        try:
            yield server
        finally:
            runner.run(server.kill())
