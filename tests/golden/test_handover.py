"""Consumers that overlap and pause, on the virtual clock: the routes are those of one that never did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from golden.stage import JOURNAL_CALL_MS, STREAM_PARTITIONS, Shift, Stage
from golden.traces import ONSET_MS, TRACES, perform, run_trace
from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.ports import StreamEntry
from hotpartition.core.reports import stream_partition_of
from hotpartition.core.sampler import SLOT_MS
from support.fleet import START_MS

PAUSE_MS = 5_000
OVERLAPS = {"two-hot-conversations": 0, "step-x40": 0, "slow-clients": 0, "unlucky-partition": SLOT_MS}
"""Traces, and how far apart their `since` may be: the end of a pause between raises is seen at the next poll."""


def routes_with_one_paused(name, from_ms):
    """Run a trace with two consumers, one of which pauses for five seconds."""
    paused = Shift(pause_ms=(from_ms, from_ms + PAUSE_MS))
    return perform(replace(TRACES[name], shifts=(paused, Shift()))).routes


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize("seed", range(3))
def test_two_consumers_one_of_them_paused_end_with_the_routes_of_one(name, seed):
    """Wherever the pause of 5 s begins: what was decided before it, or is decided after it, is there already."""
    from_ms = ONSET_MS + Random(f"{name}-{seed}").randrange(-500, 1_500)
    both = routes_with_one_paused(name, from_ms)
    one = run_trace(name).routes
    assert both.keys() == one.keys()
    for conversation_id, route in one.items():
        pairs = zip(sorted(both[conversation_id].generations), sorted(route.generations), strict=True)
        for found, expected in pairs:
            assert found.shard_count == expected.shard_count
            assert abs(found.since_ms - expected.since_ms) <= OVERLAPS[name]


def raise_instant(name):
    """When the one consumer of a trace logged its first raise: its call to the journal follows at once."""
    return next(at_ms for at_ms, facts in run_trace(name).decisions if facts["generation"])


@pytest.mark.parametrize("into_ms", range(-JOURNAL_CALL_MS, JOURNAL_CALL_MS + 3, 2))
def test_a_raise_that_comes_five_seconds_late_is_one_that_is_there(into_ms):
    """Paused between reading the journal and adding to it, or half-way through: the zombie's raise adds nothing."""
    from_ms = raise_instant("clean") - START_MS + into_ms
    assert routes_with_one_paused("clean", from_ms) == run_trace("clean").routes


def test_a_stream_that_is_away_does_not_hide_the_heat_of_the_others():
    """The nodes of all streams but one cannot be reached: its conversations are still raised in time."""
    stage = Stage()
    stage.fleet = TRACES["clean"].gather_fleet(registry=stage.registry)
    read, only = stage.reports.read, stream_partition_of("room", STREAM_PARTITIONS)

    def read_one_stream_only(partition: int, after_id: str, limit: int) -> Sequence[StreamEntry]:
        if partition != only:
            raise RegistryUnavailableError("this node is away")
        return read(partition, after_id, limit)

    stage.reports.read = read_one_stream_only
    stage.play(10_000)
    assert stage.routes() == run_trace("clean").routes
