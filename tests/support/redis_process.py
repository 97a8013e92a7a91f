"""All adapters on one connection to Redis."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from hotpartition.redis.cluster import RedisConnection
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import RedisReportSink, RedisReportSource
from support.fakes import FakeTelemetry, InlineBackground


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
