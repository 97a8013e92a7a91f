"""Stream entries: what is written is read back, and what is none of ours is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.reports import MAX_SOURCE_LENGTH, MAX_VALUE_WCU, ReadReport, WriteReport
from hotpartition.errors import MalformedReportError

NAMES = st.text(min_size=1, max_size=40)
VALUES = st.floats(min_value=0, max_value=MAX_VALUE_WCU, exclude_min=True)
READS = ReadReport("c", 6_800_000_000, "e1", 12.5, 3.0)


@given(NAMES, st.integers(0, 2**40), st.text(min_size=1, max_size=MAX_SOURCE_LENGTH), VALUES, VALUES)
def test_a_read_report_survives_the_stream(collection, slot, source, value, pages):
    """Whatever its names hold."""
    report = ReadReport(collection, slot, source, value, pages)
    assert ReadReport.decode(report.encode()) == report


def test_formats_are_told_apart():
    """Neither kind is taken for the other: a consumer that knows only writes counts the entry as malformed."""
    assert READS.encode() == "3|c|6800000000|12.5|3.0|e1"
    with pytest.raises(MalformedReportError, match="format '3' is not '2'"):
        WriteReport.decode(READS.encode())
    with pytest.raises(MalformedReportError, match="6 parts of format '2', not 6 of '3'"):
        ReadReport.decode(WriteReport("c", 1, "e1", 5.0, 250, 0).encode())


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
    """By name, and by nothing else."""
    with pytest.raises(MalformedReportError):
        ReadReport.decode(entry)
