"""Pictures as SVG: panels with lines and areas, readable on light and dark ground, the same for the same data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from math import ceil, floor, isfinite, log10

WIDTH = 1000.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 16.0, 44.0, 40.0

Points = Sequence[tuple[float, float]]

COLORS = """
:root { --ink: #1b2430; --soft: #5d6b7c; --grid: #e6ebf1; --c0: #c8352e; --c1: #c27a12; --c2: #2f74c8; --c3: #1c8a4e;
  --c4: #7a4fd0; --c5: #7d8896; --base: #9db4cc; --mark: #1b2430; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8edf3; --soft: #9aa8b8; --grid: #27323f; --c0: #ff6b62;
  --c1: #f0a63c; --c2: #64a8f5; --c3: #46c585; --c4: #b096f5; --c5: #8f9bab; --base: #4d6480; --mark: #e8edf3; } }
""".strip()
"""Colours by purpose. Lines are `c0` to `c5`; `base` is a calm area."""

PICTURE_STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
svg text { fill: var(--soft); font-size: 12px; } svg .title { fill: var(--ink); font-size: 13px; font-weight: 600; }
svg .grid { stroke: var(--grid); } svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .default { stroke: var(--mark); stroke-dasharray: 3 4; stroke-width: 1.2; } svg .note { fill: var(--ink); }
svg .event { stroke: var(--c4); stroke-width: 1.4; stroke-dasharray: 2 3; }
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: what it spans, and how it is read. Values at or below 0 lie on a logarithmic axis's lower end."""

    low: float
    high: float
    label: str = ""
    is_log: bool = False
    ticks: tuple[float, ...] = ()

    def share(self, value: float) -> float:
        """Tell where a value lies between the ends, 0 to 1."""
        if self.is_log:
            value = max(value, self.low)
            share = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    def marks(self, wanted: int) -> Sequence[float]:
        """Choose the values that are written at the axis."""
        if self.ticks:
            return self.ticks
        if self.is_log:
            first, last = ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9)
            step = max(1, -(-(last - first) // wanted))
            return [10.0**power for power in range(first, last + 1, step)]
        width = round_up((self.high - self.low) / wanted)
        first, last = ceil(self.low / width - 1e-9), floor(self.high / width + 1e-9)
        return [round(index * width, 9) for index in range(first, last + 1)]


@dataclass(slots=True, kw_only=True)
class Panel:
    """One frame within a picture, with what is drawn in it so far. Half as wide with `side` 0 (left) or 1 (right)."""

    x: Axis
    y: Axis
    title: str = ""
    height: float = 240.0
    side: int | None = None
    offset_y: float = 0.0
    parts: list[str] = field(default_factory=list)

    @property
    def width(self) -> float:
        """How wide it is."""
        return WIDTH if self.side is None else WIDTH / 2

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Tell where a point lies in the picture."""
        inner_x, inner_y = self.width - LEFT - RIGHT, self.height - TOP - BOTTOM
        return (
            round((self.side or 0) * self.width + LEFT + self.x.share(x) * inner_x, 1),
            round(self.offset_y + self.height - BOTTOM - self.y.share(y) * inner_y, 1),
        )

    def line(self, points: Iterable[tuple[float, float | None]], color: str, *, dashed: bool = False) -> None:
        """Draw a line; it is broken where a value is missing."""
        pieces: list[list[tuple[float, float]]] = [[]]
        for x, y in points:
            if y is None or not isfinite(y):
                pieces.append([])
            else:
                pieces[-1].append((x, y))
        dashes = ' stroke-dasharray="6 4"' if dashed else ""
        for piece in pieces:
            if len(piece) > 1:
                self.parts.append(f'<path class="line" style="stroke:var(--{color})"{dashes} d="{self._path(piece)}"/>')

    def dots(self, points: Iterable[tuple[float, float | None]], color: str) -> None:
        """Draw a dot for each point that is known."""
        for x, y in points:
            if y is not None and isfinite(y):
                left, top = self.at(x, y)
                self.parts.append(f'<circle cx="{left}" cy="{top}" r="3" style="fill:var(--{color})"/>')

    def area(self, upper: Points, lower: Points, color: str, *, opacity: float = 0.85) -> None:
        """Fill what lies between two lines over the same x."""
        path = self._path([*upper, *reversed(lower)])
        self.parts.append(f'<path style="fill:var(--{color});fill-opacity:{opacity:g}" d="{path}Z"/>')

    def vertical(self, x: float, css: str, text: str = "") -> None:
        """Draw a vertical line, with a few words above it."""
        left, top = self.at(x, self.y.high)
        _, bottom = self.at(x, self.y.low)
        self.parts.append(f'<line class="{css}" x1="{left}" x2="{left}" y1="{top}" y2="{bottom}"/>')
        if text:
            is_late = self.x.share(x) > 0.75
            anchor, shift = ("end", 4) if is_late else ("start", -4)
            self.parts.append(
                f'<text class="note" x="{left + shift:g}" y="{top - 5:g}" text-anchor="{anchor}">{escape(text)}</text>'
            )

    def draw(self) -> str:
        """Return the panel as SVG."""
        return self._frame() + "".join(self.parts)

    def _frame(self) -> str:
        parts = []
        for value in self.y.marks(4):
            (left, y), (right, _) = self.at(self.x.low, value), self.at(self.x.high, value)
            parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
            parts.append(f'<text x="{left - 7}" y="{y + 4}" text-anchor="end">{figure(value)}</text>')
        for value in self.x.marks(8 if self.width > 700 else 5):
            x, bottom = self.at(value, self.y.low)
            parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{figure(value)}</text>')
        middle, bottom = self.at(self.x.low, self.y.low)
        end, _ = self.at(self.x.high, self.y.low)
        parts.append(
            f'<text x="{(middle + end) / 2:g}" y="{bottom + 32}" text-anchor="middle">{escape(self.x.label)}</text>'
        )
        left, top = self.at(self.x.low, self.y.high)
        parts.append(f'<text class="title" x="{left - 52:g}" y="{top - 27:g}">{escape(self.title)}</text>')
        parts.append(f'<text x="{left - 52:g}" y="{top - 11:g}">{escape(self.y.label)}</text>')
        return "".join(parts)

    def _path(self, points: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{left},{top}" for left, top in (self.at(x, y) for x, y in points))


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A finished picture: its name (of its file), what it shows in words, its size, and its panels."""

    name: str
    label: str
    height: float
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...] = ()
    """Colour and meaning of each line."""

    def inline(self) -> str:
        """Return the picture as it stands in the report, which has the styles."""
        return self._svg("")

    def file(self) -> str:
        """Return the picture as a file of its own."""
        return self._svg(
            f"<style>{COLORS}\n{PICTURE_STYLE}\nsvg {{ background: Canvas; color-scheme: light dark; }}</style>"
        )

    def _svg(self, head: str) -> str:
        height = self.height + (26 if self.legend else 0)
        body = "".join(panel.draw() for panel in self.panels)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
            f'aria-label="{escape(self.label, quote=True)}">{head}{body}{self._legend()}</svg>'
        )

    def _legend(self) -> str:
        parts, x, y = [], LEFT - 52, self.height + 12
        for color, text in self.legend:
            parts.append(f'<rect x="{x:g}" y="{y - 5:g}" width="16" height="6" rx="2" style="fill:var(--{color})"/>')
            parts.append(f'<text x="{x + 22:g}" y="{y + 3:g}">{escape(text)}</text>')
            x += 44 + 6.6 * len(text)
        return "".join(parts)


def figure(value: float) -> str:
    """Write a number the way people read it at an axis."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:g}M"
    if size >= 1e4:
        return f"{value / 1e3:g}k"
    if size and size < 1e-3:
        return f"1e{round(log10(size))}"
    return f"{value:,g}"


def round_up(value: float, rounds: Sequence[float] = (1.0, 2.0, 2.5, 5.0, 10.0)) -> float:
    """Round up to a value that reads well as a step of an axis."""
    if value <= 0:
        return 1.0
    magnitude: float = 10.0 ** floor(log10(value) + 1e-12)
    share = value / magnitude
    return next(high for low, high in pairwise((0.0, *rounds)) if low < share <= high + 1e-9) * magnitude


def ceiling(value: float) -> float:
    """Round up to a value that reads well as an axis's upper end."""
    return round_up(value, (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0))


def steps(values: Sequence[float], width: float) -> list[tuple[float, float]]:
    """Turn values of bins into the points of a stepped line."""
    return [point for i, v in enumerate(values) for point in ((i * width, float(v)), ((i + 1) * width, float(v)))]
