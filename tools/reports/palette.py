"""The reports' colours, for light and dark ground; data colours follow Okabe and Ito, so that everybody can tell them.

M. Okabe, K. Ito, Color Universal Design (2008). Where one is too pale for a thin line, it is darkened here.
"""

from __future__ import annotations

from enum import StrEnum


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
