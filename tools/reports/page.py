"""Pages from the templates in this folder: everything is escaped that does not say it is markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tools.reports.palette import palette_css


def render(template: str, **values: Any) -> str:
    """Fill a template; a name that it does not get is an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": number, "percent": percent, "seconds": seconds}
    return environment.get_template(template).render(values, palette=palette_css())


def remove_results(folder: Path) -> None:
    """Remove what an older run wrote, so that an interrupted one leaves nothing behind that looks like its own."""
    for file in (folder / "summary.json", folder / "report.html", *folder.glob("*.svg")):
        file.unlink(missing_ok=True)


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
