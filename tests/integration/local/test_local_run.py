"""The command line on a small cloud assembly: what serves, what fails, and that nothing stays behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def _call(url: str, body: bytes | None = None) -> tuple[int, Any]:
    method = "GET" if body is None else "POST"
    response = urllib3.request(method, url, body=body, headers={"Content-Type": "application/json"})
    return response.status, response.json()


def _children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def _wait_until_gone(pids: set[int]) -> None:
    """Wait until none runs any more; zombies of a dead parent are init's to collect."""
    while any(map(_is_running, pids)):
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _command(assembly: Path, folder: Path, *options: str) -> list[str]:
    where = ["--assembly", str(assembly), "--work-dir", str(folder / "work"), "--ready-file", str(folder / "ready")]
    return [sys.executable, "-m", "tools.local", "up", *where, *options]


@contextmanager
def _running(assembly: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = _command(assembly, folder)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            while not (folder / "ready").exists():
                assert process.poll() is None, process.communicate()[0]
                time.sleep(0.02)
            yield process, json.loads((folder / "ready").read_text())
        finally:
            if process.poll() is None:
                process.kill()


def test_the_run_serves_the_template_and_stops_without_a_trace(assembly: Path, tmp_path: Path) -> None:
    """Route, schedule, control and stop, from one start."""
    with _running(assembly, tmp_path) as (process, ready):
        children = _children(process.pid)
        assert process.pid == ready["pid"]
        assert len(children) == 3  # Redis, moto, one environment
        status, response = _call(f"{ready['api_url']}/echo/a%23b", b'{"x": 1}')
        assert status == 200
        assert (response["path"], response["body"], response["table"]) == ({"word": "a#b"}, '{"x": 1}', "s-Table")
        assert response["redis"] == str(ready["redis"]["port"])
        assert _call(f"{ready['api_url']}/echo/", b"{}")[1]["path"] == {"word": ""}
        assert _call(f"{ready['api_url']}/nowhere") == (404, {"message": "Not Found"})
        assert _call(f"{ready['api_url']}/echo/a", b"x" * (7 * 1024 * 1024))[0] == 413
        control = ready["control_url"]
        invoked = _call(f"{control}/functions/echo/invoke", b'{"detail-type": "x"}')
        assert invoked == (200, {"scheduled": "x"})
        assert _call(f"{control}/functions/other/kill", b"")[0] == 404
        while (state := _call(f"{control}/status")[1])["functions"]["echo"]["invocations"] < 4:  # one by the schedule
            time.sleep(0.02)
        assert state["dynamodb"]["endpoint"] == response["endpoint"]
        assert _call(f"{control}/redis/kill", b"")[1]["running"] is False
        assert _call(f"{control}/redis/start", b"")[1]["running"] is True
        assert _call(f"{control}/dynamodb/timeline?since_ms=0") == (200, {"buckets": []})
        children |= _children(process.pid)
        assert _call(f"{control}/stop", b"") == (200, {"stopping": True})
        output, _ = process.communicate()
    assert process.returncode == 0
    assert "authorization is not checked locally" in output
    _wait_until_gone(children)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_nothing_outlives_the_run_however_it_ends(
    number: signal.Signals, status: int, assembly: Path, tmp_path: Path
) -> None:
    """Frozen environments, Redis and moto end with it, even when it is killed."""
    with _running(assembly, tmp_path) as (process, _):
        children = _children(process.pid)
        process.send_signal(number)
        process.communicate()
    assert process.returncode == status
    assert len(children) == 3
    _wait_until_gone(children)
