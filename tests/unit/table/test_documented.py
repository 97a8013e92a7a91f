"""The pages about `ShardedTable` and `ShardedCounter` run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
NEWEST = [f"2026-11-21T09:{minute}" for minute in range(39, 29, -1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "printed"),
    [("sharded-table.md", rf"{re.escape(str(NEWEST))}\n\d\d partition keys\n"), ("counters.md", r"99\n")],
)
def test_the_quick_start_runs_as_it_stands(tmp_path, page, printed):
    """In twenty lines or so, without AWS."""
    code = (DOCS / page).read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 21
    (tmp_path / "quick_start.py").write_text(code)
    environ = {
        "PYTHONPATH": ":".join(sys.path),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "HOME": str(tmp_path),
    }
    command = [sys.executable, tmp_path / "quick_start.py"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120)
    assert re.fullmatch(printed, done.stdout)
