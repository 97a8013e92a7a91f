"""Pictures: the same bytes for the same data, coloured by the page, and never without units."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools.reports.charts import draw, panel, stack, steps
from tools.reports.palette import DARK, Color, palette_css

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = "from tests.unit.tools.reports.test_charts import picture; print(picture().file())"


def picture(name: str = "load", unit: str = "writes/s"):
    def paint(axis):
        stack(axis, [([1.0, 2.0], Color.CALM, "a"), ([1.0, 0.0], Color.BLUE, "b")], width=0.5)
        steps(axis, [3.0, None], width=0.5, color=Color.ORANGE, label="<c>")
        panel(axis, "Load & co", y=unit, x="seconds")

    return draw(paint, name=name, label="what is <seen>", heights=(150,))


@pytest.mark.slow
def test_the_same_data_gives_the_same_bytes_in_another_process():
    """Ids and their order depend on nothing but the picture."""
    environ = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = [
        subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environ, check=True, capture_output=True).stdout
        for _ in range(2)
    ]
    assert printed[0] == printed[1] == f"{picture().file()}\n".encode()


def test_a_user_s_own_matplotlib_settings_change_nothing(monkeypatch):
    """The picture has a style of its own."""
    import matplotlib as mpl  # noqa: PLC0415 - only this test needs it

    before = picture()
    monkeypatch.setitem(mpl.rcParams, "font.size", 30)
    assert picture() == before


def test_a_picture_without_units_is_refused():
    """Each axis says what it counts."""
    with pytest.raises(ValueError, match="load: every axis needs a label"):
        picture(unit="")


def test_texts_are_texts_and_cannot_break_the_picture():
    """Readable by search and screen reader, escaped, in the page's own font."""
    drawn = picture()
    root = ET.fromstring(drawn.svg)  # noqa: S314 - our own text
    texts = {"".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Load & co", "writes/s", "seconds", "<c>"} <= texts
    assert root.find("{http://www.w3.org/2000/svg}title").text == "what is <seen>"
    assert "font-family" not in drawn.svg


def test_ids_are_the_pictures_own():
    """Several pictures stand in one page."""
    first, second = ({*re.findall(r' id="([^"]*)"', picture(name).svg)} for name in ("load", "other"))
    assert first
    assert first.isdisjoint(second)


def test_colours_follow_the_reader_s_ground():
    """No colour is fixed; a file brings the values for both grounds along."""
    drawn = picture()
    assert re.findall(r"#[0-9a-f]{6}\b", drawn.svg) == []
    assert palette_css() in drawn.file()
    assert set(DARK) == set(Color)


def _luminance(color: str) -> float:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_lines_and_texts_stand_out_from_their_ground(ground):
    """Contrast as WCAG 2 asks: 3 to 1 for what is drawn, 4.5 to 1 for text."""
    values = {color: color.value for color in Color} if ground == "light" else DARK
    card = _luminance(values[Color.CARD])
    for color, least in (
        *((color, 4.5) for color in (Color.INK, Color.SOFT)),
        *((color, 3.0) for color in (Color.BLUE, Color.ORANGE, Color.GREEN, Color.PURPLE, Color.YELLOW)),
    ):
        lighter, darker = sorted((_luminance(values[color]), card), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= least, color.name
