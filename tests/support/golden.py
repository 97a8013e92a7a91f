"""Text that is pinned in a file and read as a diff: `UPDATE_GOLDEN=1` writes what was made in place of what stands."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from pathlib import Path


def assert_golden(path: Path, text: str) -> None:
    """Compare a text with its file, or write the file."""
    text = text.rstrip("\n") + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pinned = path.read_text() if path.is_file() else ""
    differing = list(difflib.unified_diff(pinned.splitlines(), text.splitlines(), str(path), "made", lineterm="", n=1))
    assert not differing, "\n".join([*differing, "", "Read the diff; UPDATE_GOLDEN=1 writes it if it is meant."])


def assert_all_tested(folder: Path, names: Iterable[str]) -> None:
    """Check that a folder of pinned texts holds one for each name and no other."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def assert_answers(path: Path, answer: Callable[[str], Iterable[str]]) -> None:
    """Compare what is answered to each request of a file: a request is a line, indented lines below it are the answer.

    Lines that begin with `#` say what follows.
    """
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("    "):
            lines.append(line)
            lines += [f"    {said}" for said in answer(line)] if line and not line.startswith("#") else []
    assert_golden(path, "\n".join(lines))
