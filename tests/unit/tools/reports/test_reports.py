"""Pictures are never without units; pages write numbers as people read them, and nothing unescaped."""

import pytest
from jinja2 import UndefinedError

from tools.reports.charts import draw, panel, steps
from tools.reports.page import number, percent, render, seconds
from tools.reports.palette import Color


def picture(unit="writes/s"):
    def paint(axis):
        steps(axis, [3.0, None], width=0.5, color=Color.ORANGE, label="<c>")
        panel(axis, "Load & co", y=unit, x="seconds")

    return draw(paint, name="load", label="what is <seen>", heights=(150,))


def test_a_picture_without_units_is_refused():
    """Each axis says what it counts."""
    with pytest.raises(ValueError, match="load: every axis needs a label"):
        picture(unit="")


def test_a_picture_is_escaped_and_coloured_by_its_page():
    """Its texts cannot break the page, and no colour of its own is left."""
    drawn = picture()
    assert [text for text in ("&lt;c&gt;", "what is &lt;seen&gt;") if text not in drawn.svg] == []
    assert Color.ORANGE not in drawn.svg
    assert picture() == drawn


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (12_345.0, "12,345"), (2.5004, "2.5"), (1e-9, "1e-9"), (None, "-"), ("ramp", "ramp")],
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
