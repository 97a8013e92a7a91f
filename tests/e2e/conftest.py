"""The whole stack, once for all end-to-end tests: the synthesized template, run by `python -m local up`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack import SETTINGS, WRITE_LIMIT_WCU, Stack

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90


@pytest.fixture(scope="session")
def stack(tmp_path_factory) -> Iterator[Stack]:
    """Start the local run at a scale that a test can reach, and stop it."""
    work = tmp_path_factory.mktemp("local")
    ready, log = work / "ready.json", work / "up.log"
    command = [
        *(sys.executable, "-m", "local", "up", "--ready-file", str(ready), "--work-dir", str(work / "run")),
        *("--partition-write-limit", str(WRITE_LIMIT_WCU), "--settings", json.dumps(SETTINGS)),
        *("--min-environments", "write_message=4", "--max-environments", "write_message=6"),
        *("--min-environments", "read_messages=2", "--idle-choice", "random"),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env={**os.environ})
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield Stack.from_ready_file(ready)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
    assert process.returncode == 0, log.read_text()
