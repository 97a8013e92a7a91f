"""Pictures as SVG from matplotlib: the same bytes for the same data, readable on light and dark ground and on a phone.

A picture is drawn for the width of a phone; the page lets it grow. Its text stays text, in the page's own font. Data
colours follow Okabe and Ito, Color Universal Design (2008), darkened where one is too pale for a thin line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from io import StringIO
from itertools import pairwise
from math import ceil, nan
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Color(StrEnum):
    """A colour by purpose: its value on light ground; `palette_css` has its value on dark ground."""

    INK = "#1b2430"
    SOFT = "#56647a"
    GRID = "#dfe5ec"
    CARD = "#fefefe"
    GROUND = "#f4f6f9"
    BAND = "#fdf0d5"
    CALM = "#9db4cc"
    BLUE = "#0072b2"
    ORANGE = "#d55e00"
    GREEN = "#00855f"
    PURPLE = "#a8478a"
    YELLOW = "#b27d00"


DARK = {
    Color.INK: "#e8edf3",
    Color.SOFT: "#a3b0c0",
    Color.GRID: "#2c3846",
    Color.CARD: "#18202a",
    Color.GROUND: "#0f141a",
    Color.BAND: "#3a2f1a",
    Color.CALM: "#506a86",
    Color.BLUE: "#56b4e9",
    Color.ORANGE: "#ff8f4d",
    Color.GREEN: "#33c69b",
    Color.PURPLE: "#e29bc8",
    Color.YELLOW: "#f0c242",
}


def variable(color: Color) -> str:
    """Return the colour as a style sheet names it."""
    return f"var(--{color.name.lower()})"


def palette_css() -> str:
    """Build the style rules that give each colour its value on light and on dark ground."""
    light = " ".join(f"--{color.name.lower()}: {color};" for color in Color)
    dark = " ".join(f"--{color.name.lower()}: {DARK[color]};" for color in Color)
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


WIDTH_PX = 380
PX_PER_INCH = 72
LEGEND_ROW_PX = 16
TWO_DECADES = 100
"""A logarithmic axis that spans less gets numbers between its powers of ten."""
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hotpartition",
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": Color.SOFT.value,
    "axes.labelcolor": Color.SOFT.value,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": Color.GRID.value,
    "text.color": Color.INK.value,
    "xtick.color": Color.SOFT.value,
    "ytick.color": Color.SOFT.value,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 10,
    "axes.prop_cycle": "cycler(linewidth=[1.5, 3, 4.5, 6], alpha=[1, 0.75, 0.6, 0.45], markersize=[3, 7, 6, 6])",
}
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A finished picture: its name (of its file), what it shows in words, and its SVG, coloured by the page's style."""

    name: str
    label: str
    svg: str

    def __html__(self) -> str:
        """Return the picture as it stands in a page."""
        return self.svg

    def file(self) -> str:
        """Return the picture as a file of its own, with its colours and ground."""
        style = f"<style>{palette_css()}\nsvg {{ background: var(--card); font-family: {FONT}; }}</style>"
        return self.svg.replace("<defs>", f"{style}<defs>", 1)


def draw(
    paint: Callable[..., None], *, name: str, label: str, heights: Sequence[float], shares_x: bool = True
) -> Picture:
    """Draw a picture of panels below each other, with one legend under them.

    `paint` gets a matplotlib `Axes` for each panel; `label` says what is seen, for those who cannot see it; `heights`
    are in CSS pixels at phone width.

    Raises:
        ValueError: an axis has no label: its unit would be unknown.
    """
    # Importing matplotlib takes a second, and most who import this module draw nothing.
    from matplotlib import style  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with style.context(["default", STYLE]):
        figure = Figure(figsize=(WIDTH_PX / PX_PER_INCH, sum(heights) / PX_PER_INCH), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=shares_x, squeeze=False, height_ratios=heights)[:, 0]
        paint(*axes)
        if not all(each.get_ylabel() and (shares_x or each.get_xlabel()) for each in axes) or not axes[-1].get_xlabel():
            raise ValueError(f"{name}: every axis needs a label with its unit")
        entries = {text: line for each in axes for line, text in zip(*each.get_legend_handles_labels(), strict=True)}
        if entries:
            figure.set_figheight(figure.get_figheight() + LEGEND_ROW_PX * ceil(len(entries) / 2) / PX_PER_INCH)
            figure.legend(entries.values(), entries.keys(), loc="outside lower left", ncols=2, columnspacing=1.2)
        drawn = StringIO()
        figure.savefig(drawn, format="svg", metadata=NO_METADATA)
    return Picture(name=name, label=label, svg=_themed(drawn.getvalue(), name, label))


def panel(axis: Axes, title: str, *, y: str, x: str = "", log: bool = False, top: float | None = None) -> None:
    """Give a panel its title, labels with units, and plain numbers; an axis begins at 0 unless it is logarithmic.

    Lines show where they lie on each other: the first is on top and the thinnest, each further one wider (`STYLE`).
    """
    for rank, line in enumerate(axis.lines):
        line.zorder -= rank / 100
    axis.set_title(title)
    axis.set_ylabel(y)
    axis.set_xlabel(x)
    if log:
        axis.set_yscale("log", subs=(2, 5))
    else:
        axis.set_ylim(bottom=0, top=top)
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(lambda value, _: number(value))
        each.set_minor_formatter(lambda _value, _: "")
    low, high = axis.get_ylim()
    if log and high / low < TWO_DECADES:
        axis.yaxis.set_minor_formatter(lambda value, _: number(value))


def steps(axis: Axes, values: Sequence[float | None], *, width: float, color: Color, label: str) -> None:
    """Draw a stepped line of bins that are `width` wide; it is broken where a value is missing."""
    known = [nan if value is None else value for value in (*values, *values[-1:])]
    axis.step([index * width for index in range(len(known))], known, where="post", color=color, label=label)


def stack(axis: Axes, layers: Sequence[tuple[Sequence[float], Color, str]], *, width: float) -> None:
    """Fill stepped areas on top of each other: the values of their bins, their colour and their meaning."""
    sums = [[0.0] * len(layers[0][0])]
    for values, _, _ in layers:
        sums.append([below + value for below, value in zip(sums[-1], values, strict=True)])
    edges = [index * width for index in range(len(sums[0]) + 1)]
    for (lower, upper), (_, color, label) in zip(pairwise(sums), layers, strict=True):
        axis.stairs(upper, edges, baseline=lower, fill=True, color=color, label=label, linewidth=0)


def _themed(svg: str, name: str, label: str) -> str:
    """Leave sizes, fonts and colours to the page, and make ids those of this picture."""
    box = re.search(r'viewBox="[^"]+"', svg)
    body = svg[svg.index(">", svg.index("<svg")) + 1 :].rstrip()
    body = re.sub(r' ?font-family: [^;"]+;?', "", body)
    body = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    for color in Color:
        body = body.replace(color.value, variable(color))
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {namespaces} {box[0] if box else ""} role="img"><title>{escape(label)}</title>{body}'


def number(value: float | str | None, digits: int = 3) -> str:
    """Write a number the way people read it; texts stay as they are, and what is not known is a dash."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if 0 < abs(value) < 10**-digits:
        return f"{value:.0e}".replace("e-0", "e-")
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(part: float, whole: float) -> str:
    """Write a share."""
    share = 100 * part / whole if whole else 0.0
    return "0 %" if not part else f"{share:.1f} %" if share >= 0.1 else "< 0.1 %"


def seconds(value: float | None) -> str:
    """Write a time, or that it never came."""
    return "never" if value is None or value == float("inf") else f"{value:.2f} s"
