"""The short form of `make soak`: every kind of fault once, at random, under load."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.trials.faults import KINDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_while_every_part_fails(tmp_path):
    """The verdict is `pass`, and the summary has the fields of the demonstration, the faults and the seed."""
    command = [
        *(sys.executable, "-m", "tools.trials.soak", "--seconds", "45", "--rate", "40", "--seed", "11"),
        *("--out", str(tmp_path)),
    ]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-6_000:] + finished.stderr[-2_000:]
    assert finished.stdout.startswith("seed 11:")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["verdict"], summary["seed"]) == ("pass", 11)
    assert (summary["missing"], summary["duplicated"], summary["out_of_order"]) == (0, 0, 0)
    assert summary["faults"].keys() == {kind.name for kind in KINDS}
    assert min(summary["faults"].values()) >= 1
