"""The one error of the local run that a person sees."""

from __future__ import annotations

from pathlib import Path

_TAIL_LINES = 15


class LocalRunError(Exception):
    """Something the local run needs is missing, taken or broken. The message is the line that the person reads."""


def log_tail(path: Path) -> str:
    """Return a log's last lines, indented, to stand below an error's line."""
    if not path.exists():
        return ""
    lines = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return "".join(f"\n    {line}" for line in lines if line.strip())
