"""The comparison of patterns: short runs show what each takes, and the files say what was measured."""

import json
from dataclasses import replace

import pytest

from tools.patterns.model import EVEN, PATTERNS, SKEWED, Course
from tools.patterns.run import simulate
from tools.patterns.study import Job, judge, summarize, write_summary

pytestmark = pytest.mark.slow

SHORT = Course(whole=11.0, close_up=4.0, edge=5.5, reads=1.5)
BRIEF = Course(whole=3.0, close_up=3.0, reads=0.0)
SECOND = Course(whole=1.0, close_up=1.0, reads=0.0)


def failed_share(sample):
    return sample.failed / sample.offered


def test_one_key_takes_a_thousand_units():
    """Of 5,000 writes a second one key takes 1,000, and what it saved in the second before."""
    # 1,000, and 1,000 saved; those of the last 0.3 s still try
    assert failed_share(simulate(PATTERNS["none"], EVEN, 1, SECOND)) == pytest.approx(0.4, abs=0.15)


def test_sixteen_shards_take_the_load():
    """The random suffix takes all of it."""
    assert failed_share(simulate(PATTERNS["random"], EVEN, 1, SECOND)) == 0


def test_one_index_key_refuses_what_the_shards_would_take():
    """With one index key for each hour, the index is the hot key, and its entries come late."""
    sample = simulate(PATTERNS["buckets"], EVEN, 1, SECOND)
    # What it takes in a second, what it saved in the one before, and a second's backlog.
    assert sample.counts.stored == pytest.approx(3_000, rel=0.1)
    assert sample.counts.refused_by_index == sample.counts.refused
    assert max(sample.counts.lag_seconds) > 0.9


def test_a_busy_device_breaks_the_calculated_suffix_and_not_the_adaptive_one():
    """60 % of the events go to one shard of the first; the second has three choices for them."""
    calculated = simulate(PATTERNS["calculated"], SKEWED, 1, BRIEF)
    adaptive = simulate(PATTERNS["adaptive-attribute"], SKEWED, 1, BRIEF)
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


def test_reads_find_the_events(adaptive_buckets):
    """A second holds about 5,000 events, a device of 1 % has 50 of them, and the newest page is full."""
    means = {name: sum(kind.items) / len(kind.items) for name, kind in adaptive_buckets.reads.items()}
    assert means["range"] == pytest.approx(5_000, rel=0.1)
    assert means["targeted"] == pytest.approx(50, rel=0.3)
    assert means["newest"] == 50


def test_a_targeted_read_asks_the_base_key_and_the_choices_of_its_attribute():
    """By attribute, three of the shards can hold a device's events; without it, all of them."""
    by_attribute = simulate(PATTERNS["adaptive-attribute"], EVEN, 1, SHORT)
    assert set(by_attribute.reads["targeted"].queries) == {4}
    assert min(by_attribute.reads["range"].queries) > 10


def test_the_same_seed_gives_the_same_run():
    """Nothing is left to chance but by the seed."""
    first, second = (simulate(PATTERNS["adaptive"], EVEN, 3, SECOND) for _ in range(2))
    assert (first.counts, first.write_seconds) == (second.counts, second.write_seconds)


def test_the_summary_says_what_was_measured(tmp_path, adaptive_buckets):
    """It is written, and a missed bar is missed."""
    sample = adaptive_buckets
    runs = [[Job(name, EVEN.name, 1)] for name in ("buckets", "adaptive-buckets")] + [[Job("random", EVEN.name, 1, 5)]]
    study = summarize(runs, [[sample]] * 3, 1)
    path = write_summary(study, tmp_path)
    assert json.loads(path.read_text())["patterns"]["results"][1]["pattern"] == "adaptive-buckets"
    assert [bar.holds for bar in study.bars] == [True, False]  # the one index key did not refuse in these borrowed runs
    refused = replace(study.results[1], index_refusals_after_raise=1.0)
    assert not judge(replace(study, results=(study.results[0], refused)))[0].holds
