"""What a size carries: the largest load for which both its consumer and its Redis have room."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from hotpartition_cdk.configuration import LARGE, PRODUCTION, SMALL
from tools.simulation.scale import Level, run_study
from tools.simulation.sizes import carries, find_largest


@pytest.fixture(scope="module")
def level():
    """A fleet of a thousand writes a second, as the simulator plays it."""
    with ThreadPoolExecutor(1) as pool:
        (played,) = run_study([Level(writes_per_second=1_000, rushes=1, seeds=1)], first_seed=1, pool=pool).levels
    return played


def at(level, reports=0.0, commands=0.0, load=1_000):
    return replace(
        level,
        writes_per_second=load,
        busiest_consumer_reports_per_second=reports,
        redis_commands_per_second=commands,
    )


@pytest.mark.parametrize(("size", "reports", "commands"), [(SMALL, 11_600, 20_000), (LARGE, 40_100, 200_000)])
def test_either_may_be_full_first(level, size, reports, commands):
    """The consumer's CPU, or the commands of all Redis shards."""
    assert carries(size, at(level, reports=reports, commands=commands))
    assert not carries(size, at(level, reports=1.01 * reports, commands=commands))
    assert not carries(size, at(level, reports=reports, commands=1.01 * commands))


def test_a_rush_that_is_missed_is_too_much(level):
    """However little is asked of either."""
    late = replace(level, detection_seconds=replace(level.detection_seconds, highest=2.1))
    missed = replace(level, detection_seconds=replace(level.detection_seconds, missing=1))
    assert [carries(LARGE, each) for each in (level, late, missed)] == [True, False, False]


def test_a_larger_load_than_one_that_does_not_fit_does_not_count(level):
    """As a simulated load that happens to ask for less."""
    levels = [at(level, commands=commands, load=load) for load, commands in ((1, 1), (2, 90_000), (3, 1))]
    assert find_largest(PRODUCTION, levels) == 1
