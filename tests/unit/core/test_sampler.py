"""Sampling is unbiased and bounded; reports and their codec."""

import tracemalloc
from math import ceil
from operator import itemgetter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.errors import MalformedReportError
from hotpartition.core.reports import MAX_SOURCE_LENGTH, MAX_VALUE, Report
from hotpartition.core.sampler import SLOT_MS, Crossing, LoadSampler, slot_of
from hotpartition.core.window import HORIZON_SLOTS, ReportWindow


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.integers(1, 12), st.integers(0, 3 * SLOT_MS)), min_size=1, max_size=80
    ),
    st.sampled_from([0.25, 1.0, 2.5, 5.0, 10.0]),
    st.integers(0, 1000),
)
def test_crossings_are_those_of_the_definition(writes, z, seed):
    """The write that takes the slot's count past (u + k) z reports (k + 1) z: worked out from whole counts.

    u is uniform, so the estimate is unbiased. Nothing is kept of an earlier slot.
    """
    subject, draws = LoadSampler(environment_id="e", sampling_distance=z, random=Random(seed).random), Random(seed)
    slot, counts, points = -1, {}, {}
    for conversation, wcu, now_ms in sorted(writes, key=itemgetter(2)):
        if slot_of(now_ms) != slot:
            slot, counts, points = slot_of(now_ms), {}, {}
        before = counts.get(conversation, 0)
        counts[conversation] = before + wcu
        point = points.get(conversation)
        point = points[conversation] = draws.random() * z if point is None else point
        passed_before, passed = (max(0, ceil((count - point) / z)) for count in (before, before + wcu))
        expected = Crossing(slot_of(now_ms), "e", passed * z) if passed > passed_before else None
        assert subject.record(conversation, wcu, now_ms) == expected
        assert subject._left.keys() == counts.keys()


COUNTED = {
    "collection": st.text(min_size=1, max_size=40),
    "slot": st.integers(0, 2**40),
    "source": st.text(min_size=1, max_size=MAX_SOURCE_LENGTH),
}

NOT_OF_READS = {"position": st.just(0), "shard_count": st.just(0), "is_throttled": st.just(False)}

VALUES = st.floats(min_value=0, max_value=MAX_VALUE, exclude_min=True)

WRITES = Report("room:1", 7_000_000, "e.12", 12.25, 1_700_000_000_000, 8, is_throttled=True)

READS = Report("c", 6_800_000_000, "e1", 12.5, pages=3.0)


@given(
    st.builds(Report, **COUNTED, value=VALUES, pages=VALUES, **NOT_OF_READS)
    | st.builds(
        Report,
        **COUNTED,
        value=VALUES,
        position=st.integers(0, 2**48),
        shard_count=st.integers(0, 1024),
        is_throttled=st.booleans(),
        pages=st.just(0.0),
    )
)
def test_a_report_survives_the_stream(report):
    """To the last digit, whatever its names hold."""
    assert type(report).decode(report.encode()) == report


def test_the_forms_are_a_contract_and_told_apart():
    """Between versions that run at once."""
    assert WRITES.encode() == "2|room:1|7000000|12.25|1700000000000|8|1|e.12"
    assert READS.encode() == "3|c|6800000000|12.5|3.0|e1"
    assert [Report.decode(report.encode()) for report in (WRITES, READS)] == [WRITES, READS]


LONG = "e" * 65
MALFORMED = {
    "2|c": "2 parts, not 8",
    "2|c|x|5.0|0|8|1|e": "invalid literal for int",
    "2|c|-1|5.0|0|8|1|e": "should not be negative",
    "2|c|1|nan|0|8|1|e": r"value nan is not within 0 and 1e\+06 WCU",
    "2|c|1|inf|0|8|1|e": "value inf is not within",
    "2|c|1|-1|0|8|1|e": "value -1.0 is not within",
    "2|c|1|much|0|8|1|e": "could not convert string to float",
    "2|c|1|5.0|-1|8|1|e": "should not be negative",
    "2|c|1|5.0|0|-2|1|e": "should not be negative",
    "2|c|1|5.0|0|8|maybe|e": "throttled is 'maybe', neither 0 nor 1",
    "2|c|1|5.0|0|8|1|": "source has 0 characters",
    f"2|c|1|5.0|0|8|1|{LONG}": "source has 65 characters",
    "3|c|1|5.0|1.0": "5 parts, not 6",
    "4|c|1|5.0|1.0|e": "format '4' is neither",
    "": "format '' is neither",
    "3|c|x|5.0|1.0|e": "invalid literal for int",
    "3|c|1|5.0|1.0|": "source has 0 characters",
    f"3|c|1|5.0|1.0|{LONG}": "source has 65 characters",
    **dict.fromkeys(("3|c|1|0.0|1.0|e", "3|c|1|nan|1.0|e", "3|c|1|1e7|1.0|e"), "value .* is not within"),
    **dict.fromkeys(("3|c|-1|5.0|1.0|e", "3|c|1|5.0|nan|e", "3|c|1|5.0|0|e", "3|c|1|5.0|1e7|e"), "their ranges"),
}


@pytest.mark.parametrize("entry", MALFORMED)
def test_what_is_no_report_is_refused(entry):
    """Of writes or reads."""
    with pytest.raises(MalformedReportError, match=MALFORMED[entry]):
        Report.decode(entry)


def measure_kept(build):
    """How many bytes are kept of what is built."""
    tracemalloc.start()
    try:
        _kept = build()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_report_takes_as_much_of_the_window_as_is_stated():
    """500 bytes: of many keys and sources, over the whole horizon; within a third, whatever the interpreter."""
    count, span_ms, start_ms = 20_000, HORIZON_SLOTS * SLOT_MS, 1_800_000_000_000
    at = [start_ms + index * span_ms // count for index in range(count)]
    reports = [Report(f"c-{i * 7919 % 1_000:07}", t // SLOT_MS, f"{i:032x}", 5.0, t, 0) for i, t in enumerate(at)]
    entries = [report.encode() for report in reports]

    def fill():
        window = ReportWindow()
        for entry in entries:
            window.add(Report.decode(entry), start_ms + span_ms)
        return window

    assert measure_kept(fill) / count == pytest.approx(500, rel=0.35)
