"""The page about `ShardedTable` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs/sharded-table.md"


@pytest.mark.slow
def test_the_quick_start_runs_as_it_stands(tmp_path):
    """In twenty lines or so, without AWS: it prints what it wrote, from several partition keys."""
    code = PAGE.read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 21
    script = tmp_path / "quick_start.py"
    script.write_text(code)
    environ = {
        "PYTHONPATH": ":".join(sys.path),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, script], env=environ, capture_output=True, text=True, check=True, timeout=120
    )
    items, places = done.stdout.splitlines()
    assert items == str([f"2026-11-21T09:{minute}" for minute in range(39, 29, -1)])
    assert places.endswith("partition keys")
    assert int(places.split()[0]) > 10
