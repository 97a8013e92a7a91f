"""Reads the functions' logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DECODER = json.JSONDecoder()


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in the log of a function.

    Its environments share the file, and write a line's end apart from the line: one line may hold several objects.
    """
    for line in path.read_text(errors="replace").splitlines():
        at = line.find("{")
        while at >= 0:
            try:
                found, end = _DECODER.raw_decode(line, at)
            except json.JSONDecodeError:
                end = at + 1
            else:
                yield found
            at = line.find("{", end)
