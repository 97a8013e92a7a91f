"""From pages that are read to the mark that readers see, through a real Redis: also one that is killed on the way."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest

from hotpartition.control.consumer import Consumer
from hotpartition.control.ends import ControlEnds
from hotpartition.core.ports import ReadRoute
from hotpartition.core.sampler import ReadSampler
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.redis.cluster import read_hot_key
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSource
from hotpartition_messages.keys import KEY_FORM
from support.builders import READ_THRESHOLDS, THRESHOLDS, route_of
from support.fakes import FakeClock, FakeJournal, FakeRoutingItems, FakeTable, FakeTelemetry
from support.redis_process import report_sink

PARTITIONS = 4
PAGES_PER_COPY = 500.0
PAGE_RCU = 8.5


class Stack:
    """Twenty environments that read, and a consumer, on one Redis; their clock stands still while anything works."""

    def __init__(self, connection, table_name):
        self.registry = RedisRegistry(connection, table_name)
        self.telemetry = FakeTelemetry()
        self._connection, self._table_name = connection, table_name
        self._random = Random(7)
        self._clock = FakeClock(time.time_ns() // 1_000_000)
        reports = report_sink(connection, table_name, PARTITIONS, now_ms=lambda: self._clock.now_ms)
        self._environments = [
            ReadCounting(
                sampler=ReadSampler(environment_id=f"e{i}", sampling_distance_rcu=100, random=self._random.random),
                reports=reports,
                telemetry=self.telemetry,
                now_ms=lambda: self._clock.now_ms,
            )
            for i in range(20)
        ]

    def read(self, pages):
        """Read pages, all in one instant."""
        for _ in range(pages):
            self._random.choice(self._environments).count("c", PAGE_RCU)

    def consume(self):
        """Let a new consumer run."""
        table = FakeTable()
        ends = ControlEnds(
            source=RedisReportSource(self._connection, self._table_name),
            journal=FakeJournal(table),
            routing_items=FakeRoutingItems(table),
            registry=self.registry,
            telemetry=self.telemetry,
            clock=self._clock.as_clock(self._random.random),
            form=KEY_FORM,
        )
        return Consumer(
            ends,
            thresholds=THRESHOLDS,
            read_thresholds=replace(READ_THRESHOLDS, pages_per_copy=PAGES_PER_COPY),
            stream_partitions=PARTITIONS,
            max_raises_per_hour=1,
        ).run(300)


def test_what_is_read_too_much_is_marked_for_all_readers(redis_server, connect, table_name):
    """With its route, in as many copies as its pages ask for; what is read a little is not."""
    stack = Stack(connect(redis_server.port), table_name)
    stack.registry.add("c", route_of((4, 5)).generations)
    stack.read(20)
    stack.consume()
    assert stack.registry.get_for_reading("c") == ReadRoute(route_of((4, 5)), 0)
    stack.read(1_700)
    summary = stack.consume()
    assert stack.registry.get_for_reading("c") == ReadRoute(route_of((4, 5)), 4)
    assert (summary.malformed, summary.out_of_window) == (0, 0)
    with redis_server.admin as admin:
        assert 0 < admin.pttl(read_hot_key(table_name, "c")) <= 60_000


@pytest.mark.slow
def test_a_redis_that_is_killed_takes_detection_along_and_nothing_else(own_redis_server, connect):
    """Pages are counted on, a consumer runs on; once Redis is back, the next pages mark it, in no fewer copies."""
    with own_redis_server.admin as admin:
        admin.config_set("appendfsync", "always")
    stack = Stack(connect(own_redis_server.port), "t")
    stack.read(1_700)
    stack.consume()
    own_redis_server.kill()
    stack.read(10)
    assert stack.consume().entries == 0
    own_redis_server.start()
    stack.read(300)
    stack.consume()
    assert stack.registry.get_for_reading("c").copies == 4
    assert "Decision-cooled" not in stack.telemetry.counts
