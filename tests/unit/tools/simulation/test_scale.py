"""The scale study: agreement with single writes, with theory, and with the parts that it counts for."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hotpartition.core.detector import HORIZON_SLOTS, SLOTS_PER_SECOND, ReportWindow
from hotpartition.core.reports import WriteReport
from hotpartition.core.route import EMPTY_ROUTE
from hotpartition.core.sampler import SLOT_MS, LoadSampler
from hotpartition.engine.route_cache import RouteCache
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.reports import FIELD
from support.redis_process import RedisProcess
from tools.simulation import scale
from tools.simulation.scale import (
    LEVELS,
    QUIET_WCU,
    START_MS,
    STATE_BYTES_PER_REPORT,
    STATE_BYTES_PER_SECOND,
    THRESHOLDS,
    Level,
    Traffic,
    busiest_consumer_share,
    busiest_share,
    consumers_needed,
    partitions_needed,
    popularity,
    run_level,
    run_study,
    summarize,
)
from tools.simulation.scale_theory import (
    STREAM_ENTRY_OVERHEAD_BYTES,
    command_bytes,
    excess_odds,
    lookups_per_second,
    relative_error,
    stream_entry_bytes,
)

SMALL = Level(writes_per_second=2_000, rushes=1, seeds=4, run_ms=4_500)


def report_of(conversation_id="conversation-0000001", source="0" * 32, at_ms=START_MS):
    return WriteReport(conversation_id, at_ms // SLOT_MS, source, 5.0, at_ms, 0)


@pytest.mark.parametrize(("rate", "environments"), [(600, 20), (4_000, 50), (800, 400)])
def test_error_of_the_estimate_is_the_counters(rate, environments):
    """Counters that are given Poisson counts err as the formula says; in a wide fleet by sqrt(z - 1) a write."""
    z, random, draw = 5.0, Random(3), np.random.default_rng(3)
    errors = []
    for second in range(120):
        counters = [
            LoadSampler(environment_id=f"e{i}", sampling_distance_wcu=z, random=random.random)
            for i in range(environments)
        ]
        counts = draw.poisson(rate / 4 / environments, size=(4, environments))
        estimate = 0.0
        for slot in range(4):
            for counter, count in zip(counters, counts[slot].tolist(), strict=True):
                crossing = counter.record("c", count, START_MS + second * 1000 + slot * SLOT_MS) if count else None
                estimate += crossing.value_wcu if crossing else 0.0
        errors.append(estimate / counts.sum() - 1)
    assert np.std(errors) == pytest.approx(relative_error(rate, z, environments), rel=0.2)
    assert np.mean(errors) == pytest.approx(0, abs=4 * np.std(errors) / len(errors) ** 0.5)
    assert relative_error(rate, z, 10**6) == pytest.approx(((z - 1) / rate) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("z", "environments", "at_most"), [(10.0, 100, 0.05), (10.0, 2_000, 0.6), (7.0, 2_000, 6e-3), (5.0, 2_000, 1e-5)]
)
def test_how_many_seconds_of_a_quiet_hour_are_hot_by_chance(z, environments, at_most):
    """Expected for 50 conversations at 600 WCU/s each: why the sampling distance is 5."""
    odds = excess_odds(600.0, z, environments, slots=SLOTS_PER_SECOND, limit_wcu=THRESHOLDS.hot_at_once_wcu)
    assert at_most / 5 < 50 * 3_600 * SLOTS_PER_SECOND * odds <= at_most


def test_popularity_adds_up_and_is_cut_off():
    """All loads sum up to the level's, and none is hot."""
    for level in LEVELS:
        rates = popularity(level)
        assert rates.sum() == pytest.approx(level.writes_per_second)
        assert rates[0] == QUIET_WCU
        assert (np.diff(rates) <= 0).all()


def test_traffic_is_what_the_level_says():
    """Steps hold as many writes as they should, before and after a rush began, summed up or one by one."""
    for exact in (False, True):
        traffic = Traffic(SMALL, 1, exact=exact)
        onset = traffic.rushes[0].onset_ms
        steps = list(traffic.steps())
        before = sum(int(s.wcu.sum()) for s in steps if s.at_ms < onset) / (onset - START_MS) * 1000
        hot = sum(int(s.wcu[s.conversations == traffic.rushes[0].conversation].sum()) for s in steps if s.at_ms > onset)
        rate = hot / (START_MS + SMALL.run_ms - onset) * 1000
        assert before == pytest.approx(2_000, rel=0.06)
        assert rate == pytest.approx(4_000, rel=0.06)


def test_study_does_not_depend_on_the_number_of_workers():
    """Results come in any order; the study has one."""
    studies = []
    for workers in (1, 3):
        with ThreadPoolExecutor(workers) as pool:
            studies.append(run_study((SMALL,), first_seed=1, pool=pool))
    assert studies[0] == studies[1]
    assert studies[0].levels[0].detection_seconds.missing == 0


@pytest.mark.slow
def test_sums_agree_with_single_writes_at_10_000_a_second():
    """Reports within 1 %, delays within 40 ms, errors of the estimate within a fifth of the theory's, both ways."""
    level = replace(LEVELS[0], rushes=4, seeds=0)
    sums, singles = (
        summarize(level, [run_level(level, seed, exact=exact) for seed in range(12)]) for exact in (False, True)
    )
    assert sums.reports_per_second == pytest.approx(singles.reports_per_second, rel=0.01)
    assert sums.reports_per_write == pytest.approx(1 / level.z, rel=0.01)
    assert singles.reports_per_write == pytest.approx(1 / level.z, rel=0.01)
    assert sums.detection_seconds.missing == singles.detection_seconds.missing == 0
    assert np.mean(sums.delays_seconds) == pytest.approx(np.mean(singles.delays_seconds), abs=0.04)
    assert sums.detection_seconds.p95 == pytest.approx(singles.detection_seconds.p95, abs=0.06)
    for study in (sums, singles):
        assert study.quiet_error == pytest.approx(study.quiet_error_theory, rel=0.25)
        assert study.rush_error == pytest.approx(study.rush_error_theory, rel=0.25)
        assert abs(study.quiet_error_mean) < 0.03
        assert study.raises_per_rush == 1
        assert study.false_raises == 0


def test_lookups_are_the_caches():
    """Environments with the product's own cache ask as often as the formula says."""
    level = Level(writes_per_second=2_000, rushes=0, seeds=0)
    random, rates = Random(5), np.array([1_000.0, 500.0, 300.0, 100.0, 60.0, 40.0])
    caches = [RouteCache(ttl_seconds=2.0, max_entries=100, random=random.random) for _ in range(level.environments)]
    asked, at_ms, begin_ms, end_ms = 0, 0.0, 4_000, 24_000
    while at_ms < end_ms:
        at_ms += random.expovariate(2.0)
        conversation = random.choices("abcdef", weights=rates.tolist())[0]
        cache = random.choice(caches)
        if cache.get_fresh(conversation, int(at_ms)) is None:
            cache.learn(conversation, EMPTY_ROUTE, int(at_ms))
            asked += at_ms >= begin_ms
    expected = lookups_per_second(rates, level.environments, ttl_seconds=2.0)
    assert asked / (end_ms - begin_ms) * 1000 == pytest.approx(expected, rel=0.05)


def test_streams_needed_follow_from_the_busiest_one():
    """A stream is read whole, 5,000 entries each 100 ms; what is uneven counts."""
    even = np.ones(1_000)
    assert busiest_share(even, 1) == 1
    assert 0.25 < busiest_share(even, 4) < 0.3
    assert partitions_needed(even, 49_000) == 1
    assert partitions_needed(even, 60_000) == 2
    # Halves of 49,000 could be read, but one of the two streams gets more than half.
    assert partitions_needed(even, 98_000) == 3


def test_consumers_needed_follow_from_the_busiest_one():
    """None gets 60,000 reports a second or keeps 1 GB; what is uneven counts."""
    even = np.ones(10_000)
    assert [consumers_needed(even, reports) for reports in (1_000, 59_999, 60_000, 125_000)] == [1, 1, 2, 3]
    assert busiest_consumer_share(even, 1) == 1
    for level, consumers in zip(LEVELS, (1, 1, 4), strict=True):
        rates, reports = popularity(level), level.writes_per_second / level.z
        assert consumers_needed(rates, reports) == consumers
        busiest = reports * busiest_consumer_share(rates, consumers)
        assert busiest < 60_000
        assert busiest * STATE_BYTES_PER_SECOND < 1e9


@pytest.mark.slow
def test_several_consumers_detect_as_soon_as_one(monkeypatch):
    """Each conversation has one of them: the same raises at the same moments, and the same estimates."""
    level = Level(writes_per_second=10_000, rushes=4, seeds=0)
    one = [run_level(level, seed) for seed in (1, 2)]
    monkeypatch.setattr(scale, "consumers_needed", lambda *_: 4)
    four = [run_level(level, seed) for seed in (1, 2)]
    assert four == one
    assert {delay is None for sample in one for delay in sample.delays_seconds} == {False}


def test_command_bytes_are_those_of_the_protocol():
    """As redis-py packs them."""
    redis = pytest.importorskip("redis")
    report = report_of()
    packed = redis.Connection().pack_command(
        "XADD", reports_key("t", 0), "MINID", "~", str(START_MS - 60_000), "*", FIELD, report.encode()
    )
    assert command_bytes(report, "t") == sum(map(len, packed))


@pytest.mark.slow
def test_stream_entries_take_in_redis_what_is_computed(tmp_path):
    """MEMORY USAGE of a long stream, within a tenth."""
    random, count = Random(1), 20_000
    with RedisProcess(tmp_path) as server:
        pipe, expected = server.admin.pipeline(transaction=False), 0
        for index in range(count):
            report = report_of(f"conversation-{random.randrange(10**6):07d}", f"{random.getrandbits(128):032x}")
            expected += stream_entry_bytes(report)
            pipe.xadd("hp:t:reports:{0}", {FIELD: report.encode()}, id=f"{START_MS + index // 20}-{index}")
        pipe.execute()
        taken = server.admin.memory_usage("hp:t:reports:{0}", samples=0)
    assert taken == pytest.approx(expected, rel=0.1)
    assert STREAM_ENTRY_OVERHEAD_BYTES < 64


@pytest.mark.slow
def test_state_of_a_report_takes_what_is_stated():
    """The consumer's window, filled by a population like the study's; within a quarter, whatever the interpreter."""
    rates, draw = popularity(Level(writes_per_second=10_000, rushes=0, seeds=0)), np.random.default_rng(2)
    count = 30_000
    drawn = np.searchsorted(np.cumsum(rates), draw.random(count) * rates.sum()).tolist()
    span_ms = HORIZON_SLOTS * SLOT_MS
    entries = [
        report_of(f"conversation-{c:07d}", f"{i:032x}", START_MS + i * span_ms // count).encode()
        for i, c in enumerate(drawn)
    ]
    tracemalloc.start()
    try:
        window = ReportWindow()
        for entry in entries:
            window.add(WriteReport.decode(entry), START_MS + span_ms)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / count == pytest.approx(STATE_BYTES_PER_REPORT, rel=0.25)
