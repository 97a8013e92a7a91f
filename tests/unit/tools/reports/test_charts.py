"""The pictures of reports."""

from itertools import pairwise
from operator import attrgetter

from tools.reports.charts import draw, panel, steps
from tools.reports.palette import Color

COLORS = (Color.BLUE, Color.ORANGE, Color.GREEN, Color.PURPLE)


def test_lines_that_lie_on_each_other_all_show():
    """Four equal lines in one panel: each that is painted over another is narrower than it."""
    painted = []

    def paint(axis):
        for color in COLORS:
            steps(axis, [1.0, None, 2.0], width=1, color=color, label=color.name)
        panel(axis, "four at one place", y="writes/s", x="seconds")
        painted.extend(sorted(axis.lines, key=attrgetter("zorder")))

    draw(paint, name="same", label="Four equal lines", heights=(100,))
    assert sorted(line.get_color() for line in painted) == sorted(COLORS)
    assert all(below.get_linewidth() > above.get_linewidth() + 1 for below, above in pairwise(painted))
