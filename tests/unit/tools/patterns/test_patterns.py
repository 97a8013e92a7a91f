"""The comparison of patterns: short runs show what each takes, and the files say what was measured."""

import json
from dataclasses import replace

import pytest

from tools.patterns.hot_index import HOT_INDEXES, HotIndexResult, simulate_hot_index
from tools.patterns.model import EVEN, PATTERNS, SKEWED, Course
from tools.patterns.run import simulate
from tools.patterns.study import Job, judge, summarize, write_summary

pytestmark = pytest.mark.slow

SHORT = Course(whole=7.0, close_up=2.0, edge=3.5, reads=1.5)


def beginning(seconds):
    return Course(whole=seconds, close_up=seconds, reads=0.0)


def failed_share(sample):
    return sample.failed / sample.offered


def test_one_index_key_refuses_what_the_shards_would_take():
    """With one index key for each hour, the index is the hot key, and its entries come late."""
    sample = simulate(PATTERNS["buckets"], EVEN, 1, beginning(1.0))
    # What it takes in a second, what it saved in the one before, and a second's backlog.
    assert sample.counts.stored == pytest.approx(3_000, rel=0.1)
    assert sample.counts.refused_by_index == sample.counts.refused
    assert max(sample.counts.lag_seconds) > 0.9


def test_a_busy_device_breaks_the_calculated_suffix_and_not_the_adaptive_one():
    """60 % of the events go to one shard of the first; the second has three choices for them."""
    calculated = simulate(PATTERNS["calculated"], SKEWED, 1, beginning(2.0))
    adaptive = simulate(PATTERNS["adaptive-attribute"], SKEWED, 1, beginning(2.0))
    assert failed_share(calculated) > 0.2
    assert failed_share(adaptive) < 0.1


@pytest.fixture(scope="module")
def adaptive_buckets():
    return simulate(PATTERNS["adaptive-buckets"], EVEN, 1, SHORT)


def test_adaptive_buckets_are_raised_once_and_the_index_refuses_nothing_afterwards(adaptive_buckets):
    """The load is noticed within two seconds, table and index are spread, and all goes on."""
    assert len(adaptive_buckets.raises) == 1
    assert adaptive_buckets.raises[0].at_seconds < 2
    assert adaptive_buckets.index_refusals_after_raise == 0
    assert adaptive_buckets.wcu_per_write == pytest.approx(2.0)


def test_the_summary_says_what_was_measured(tmp_path, adaptive_buckets):
    """It is written, and a missed bar is missed."""
    sample = adaptive_buckets
    runs = [[Job(name, EVEN.name, 1)] for name in ("buckets", "adaptive-buckets")] + [[Job("random", EVEN.name, 1, 5)]]
    brief = [index._replace(seconds=0.5) for index in HOT_INDEXES]
    hot_index = [HotIndexResult.of(index, [simulate_hot_index(index, 1)]) for index in brief]
    study = summarize(runs, [[sample]] * 3, 1, hot_index)
    path = write_summary(study, tmp_path)
    assert json.loads(path.read_text())["patterns"]["results"][1]["pattern"] == "adaptive-buckets"
    # The one index key did not refuse in these borrowed runs, and half a second is too short for the hot value.
    assert [bar.holds for bar in study.bars] == [True, False, False, True]
    refused = replace(study.results[1], failed_after_raise=1.0)
    assert not judge(replace(study, results=(study.results[0], refused)))[0].holds
