"""Pages: numbers as people read them, and nothing unescaped."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from tools.reports.page import number, percent, render, seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (12_345.0, "12,345"),
        (1_000_000, "1,000,000"),
        (2.5004, "2.5"),
        (1e-9, "1e-9"),
        (None, "-"),
        ("launch-day", "launch-day"),
    ],
)
def test_numbers_are_written_as_people_read_them(value, text):
    """Thousands apart, no zeros at the end, no exponents but for what is next to nothing."""
    assert number(value) == text


def test_shares_and_times_are_written_with_their_units():
    """A share that is not 0 is never written as 0."""
    assert [percent(part, 1000) for part in (0, 0.5, 125)] == ["0 %", "< 0.1 %", "12.5 %"]
    assert [seconds(value) for value in (None, float("inf"), 0.914)] == ["never", "never", "0.91 s"]


def test_a_template_that_lacks_a_value_is_an_error():
    """A page with a hole is no page."""
    with pytest.raises(UndefinedError):
        render("demo.html.j2")
