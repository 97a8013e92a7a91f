"""Consumers that overlap, pause and crash, on the virtual clock: the routes are those of one that never did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import pytest

from golden.stage import JOURNAL_CALL_MS, STREAM_PARTITIONS, Pause, Stage, ThinFleet, WritingFleet
from golden.traces import ONSET_MS, TRACES, perform, run_trace
from hotpartition.control.consumer import POLL_MS
from hotpartition.core.ports import StreamEntry
from hotpartition.core.reports import stream_partition_of
from hotpartition.core.route import Route
from hotpartition.core.sampler import SLOT_MS
from hotpartition.errors import RegistryUnavailableError
from support.fleet import START_MS

PAUSE_MS = 5_000
OVERLAPS = {"two-hot-conversations": 0, "step-x40": 0, "slow-clients": 0, "unlucky-partition": SLOT_MS}
"""Traces, and how far apart their `since` may be: the end of a pause between raises is seen at the next poll."""


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize("seed", range(3))
def test_two_consumers_one_of_them_paused_end_with_the_routes_of_one(name, seed):
    """Wherever the pause of 5 s begins: what was decided before it, or is decided after it, is there already."""
    from_ms = START_MS + ONSET_MS + Random(f"{name}-{seed}").randrange(-500, 1_500)
    both = perform(TRACES[name], consumers=(Pause(from_ms, from_ms + PAUSE_MS), None)).routes
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
    from_ms = raise_instant("clean") + into_ms
    both = perform(TRACES["clean"], consumers=(Pause(from_ms, from_ms + PAUSE_MS), None))
    assert both.routes == run_trace("clean").routes


HOT = {"room": 4_000.0, "hall": 1_800.0}
WARM = {"warm": 500.0, **{f"quiet{i}": 5.0 for i in range(10)}}
RUN_ON_MS = 4_000
CATCH_UP_MS = 15_000
SAMPLING_DISTANCE_WCU = 2.0
LONG = (pytest.mark.long, pytest.mark.slow)


@dataclass(frozen=True)
class Crash:
    """When things happen in a run with a crash, in Unix ms. The predecessor starts at START_MS."""

    seed: int
    onset_ms: int
    kill_ms: int
    successor_ms: int

    @classmethod
    def at_random(cls, seed: int) -> Crash:
        """The successor starts 1 to 119 s after its predecessor, which is killed at a random moment."""
        random = Random(f"crash-{seed}")
        successor_ms = START_MS + random.randrange(1_000, 119_001)
        kill_ms = random.randrange(START_MS + 10, successor_ms + 1_500)
        # Heat within 2 s of the kill, on either side: elsewhere it meets a consumer that is whole.
        return cls(seed, max(START_MS, kill_ms + random.randrange(-2_000, 2_000)), kill_ms, successor_ms)

    def rates(self) -> dict[str, Callable[[int], float]]:
        """The hot conversations step up at onset; the others stay as they are."""

        def steps_up(hot: float) -> Callable[[int], float]:
            return lambda offset: hot if START_MS + offset >= self.onset_ms else 50.0

        def stays(rate: float) -> Callable[[int], float]:
            return lambda _: rate

        return {**{c: steps_up(hot) for c, hot in HOT.items()}, **{c: stays(rate) for c, rate in WARM.items()}}


def play(crash: Crash, *, is_killed: bool) -> dict[str, Route]:
    """Run the predecessor and the successor over a fleet that becomes hot; return the routes in the end.

    Left out is what nobody can notice: the time long before the heat, the time with no consumer that is too old for
    the next one, and, without a kill, the time after the raises.
    """
    stage = Stage()
    stage.fleet = fleet = ThinFleet(crash.rates(), stage.registry, crash.seed, SAMPLING_DISTANCE_WCU)
    from_ms = max(START_MS, crash.onset_ms - 3_000)
    successor_ms = max(crash.successor_ms, from_ms)
    fleet.skip_to(from_ms - 3_000)
    stage.start_consumer(at_ms=from_ms, kill_ms=crash.kill_ms if is_killed else None)
    if not is_killed and successor_ms > crash.onset_ms + RUN_ON_MS:
        stage.run(crash.onset_ms + RUN_ON_MS)
        return stage.routes()
    if is_killed and crash.kill_ms < successor_ms - CATCH_UP_MS:
        stage.run(crash.kill_ms + POLL_MS)
        fleet.skip_to(successor_ms - CATCH_UP_MS)
    stage.start_consumer(at_ms=successor_ms)
    stage.run(max(successor_ms, crash.onset_ms) + RUN_ON_MS)
    return stage.routes()


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=LONG) for seed in range(4, 50))])
def test_after_a_crash_at_any_point_the_successor_covers_what_is_hot(seed):
    """What was hot is raised once, by at most a third more shards than without the crash, and nothing else is.

    The two may size from different slots of the same load, so chance tells them apart: at z = 2 a slot's estimate of
    4,000 WCU/s has a standard deviation of 4.5 %, at the default of z = 10 it is 10 %.
    """
    crash = Crash.at_random(seed)
    killed, whole = play(crash, is_killed=True), play(crash, is_killed=False)
    assert killed.keys() == whole.keys() == HOT.keys()
    for conversation_id, rate in HOT.items():
        assert len(killed[conversation_id].generations) == 1
        assert killed[conversation_id].max_shard_count >= rate / 800
        assert killed[conversation_id].max_shard_count <= 1.3 * whole[conversation_id].max_shard_count + 1


def test_a_stream_that_is_away_does_not_hide_the_heat_of_the_others():
    """The nodes of all streams but one cannot be reached: its conversations are still raised in time."""
    stage = Stage()
    stage.fleet = WritingFleet(TRACES["clean"].writers, stage.registry)
    read, only = stage.reports.read, stream_partition_of("room", STREAM_PARTITIONS)

    def read_one_stream_only(partition: int, after_id: str, limit: int) -> Sequence[StreamEntry]:
        if partition != only:
            raise RegistryUnavailableError("this node is away")
        return read(partition, after_id, limit)

    stage.reports.read = read_one_stream_only
    stage.start_consumer(at_ms=START_MS, run_ms=10_000)
    stage.run(START_MS + 10_000)
    assert stage.routes() == run_trace("clean").routes
