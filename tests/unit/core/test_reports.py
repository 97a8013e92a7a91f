"""Stream entries: what is written is read back, and what is none of ours is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.errors import MalformedReportError
from hotpartition.core.reports import MAX_SOURCE_LENGTH, MAX_VALUE, Report

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


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("2|c", "2 parts, not 8"),
        ("2|c|x|5.0|0|8|1|e", "invalid literal for int"),
        ("2|c|-1|5.0|0|8|1|e", "should not be negative"),
        ("2|c|1|nan|0|8|1|e", r"value nan is not within 0 and 1e\+06 WCU"),
        ("2|c|1|inf|0|8|1|e", "value inf is not within"),
        ("2|c|1|-1|0|8|1|e", "value -1.0 is not within"),
        ("2|c|1|much|0|8|1|e", "could not convert string to float"),
        ("2|c|1|5.0|-1|8|1|e", "should not be negative"),
        ("2|c|1|5.0|0|-2|1|e", "should not be negative"),
        ("2|c|1|5.0|0|8|maybe|e", "throttled is 'maybe', neither 0 nor 1"),
        ("2|c|1|5.0|0|8|1|", "source has 0 characters"),
        ("2|c|1|5.0|0|8|1|" + "e" * 65, "source has 65 characters"),
    ],
)
def test_what_is_no_write_report_is_refused(entry, reason):
    with pytest.raises(MalformedReportError, match=reason):
        Report.decode(entry)


@pytest.mark.parametrize(
    "entry",
    [
        "3|c|1|5.0|1.0",
        "3|c|-1|5.0|1.0|e",
        "3|c|1|0.0|1.0|e",
        "3|c|1|nan|1.0|e",
        "3|c|1|5.0|nan|e",
        "3|c|1|5.0|0|e",
        "3|c|1|1e7|1.0|e",
        "3|c|1|5.0|1e7|e",
        "3|c|x|5.0|1.0|e",
        "3|c|1|5.0|1.0|",
        "3|c|1|5.0|1.0|" + "e" * 65,
        "4|c|1|5.0|1.0|e",
        "",
    ],
)
def test_what_is_no_read_report_is_refused(entry):
    with pytest.raises(MalformedReportError):
        Report.decode(entry)
