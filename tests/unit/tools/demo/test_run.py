"""A whole demonstration against a stand-in for the local run, in a few seconds of real time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tools.demo.__main__ import stoppable
from tools.demo.run import Plan, demonstrate
from tools.demo.scale import choose_scale
from tools.demo.stack import StackError, environments_for, up_command
from tools.demo.workload import generate_workload

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def plan(tmp_path) -> Plan:
    scale = choose_scale(cores=2)
    workload = generate_workload(seed=1, scale=scale, duration_seconds=6.0)
    return Plan(workload=workload, scale=scale, seed=1, cores=2, out_dir=tmp_path, shortened=True)


def fake_command(**environ):
    def build(**options):
        _, _, _, _, *rest = up_command(**options)
        variables = [f"{name}={value}" for name, value in environ.items()]
        path = f"PYTHONPATH={os.pathsep.join(sys.path)}"
        return ("env", path, *variables, sys.executable, "-m", "tests.unit.tools.demo.fake_local", *rest)

    return build


def play(plan, **environ):
    console = Console(file=StringIO(), width=200)
    outcome = asyncio.run(demonstrate(plan, console=console, now=time.time, build_command=fake_command(**environ)))
    return outcome, console.file.getvalue()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # An ended process whose parent has gone may still wait to be collected.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # where there is no /proc, the signal has said all


def test_a_right_stack_passes(plan):
    """Everything is played, read, judged and written down, and the child is gone."""
    outcome, printed = play(replace(plan, kill_redis_at=1.0, restart_redis_at=2.5))
    assert outcome.judgement.reasons == ()
    assert outcome.history.holds
    summary = json.loads(plan.summary_file.read_text())
    assert summary["verdict"] == "pass"
    assert summary["acknowledged"] == len(plan.workload.offers)
    assert (summary["raises"], summary["max_n"]) == (1, 6)
    assert 0 < summary["onset_to_raise_seconds"] < 3
    assert summary["environments"] == 6
    report = plan.report_file.read_text()
    assert "launch-day#5" in report
    assert "Redis is killed, as asked for" in report
    assert "writes/s" in printed
    assert "factor 0.02" in printed
    assert not is_alive(json.loads((plan.out_dir / "ready.json").read_text())["pid"])


def test_a_stack_that_loses_messages_fails(plan):
    """What was acknowledged and is not there ends in `fail`, with the messages named."""
    outcome, _ = play(plan, FAKE_LOSE_EVERY="100")
    summary = json.loads(plan.summary_file.read_text())
    assert summary["verdict"] == "fail"
    assert summary["missing"] >= 2
    assert any(reason.startswith("no message missing") for reason in outcome.judgement.reasons)
    assert "Why it failed" in plan.report_file.read_text()


def test_a_stack_that_responds_500_fails(plan):
    """Though nothing is lost: the API promises 503 for what is worth repeating."""
    outcome, _ = play(plan, FAKE_FAIL_EVERY="40")
    assert outcome.history.holds
    assert json.loads(plan.summary_file.read_text())["verdict"] == "fail"
    (reason,) = (one for one in outcome.judgement.reasons if one.startswith("no unexpected response: "))
    assert " answered 500: {}" in reason


def test_a_stack_that_ends_in_the_middle_is_an_error(plan):
    """The demonstration says so at once instead of waiting for what cannot come."""
    with pytest.raises(StackError, match="ended by itself: the fake was told to stop"):
        play(plan, FAKE_STOP_AFTER="2")


OWNER = """
import asyncio, sys
from pathlib import Path
from tools.demo.stack import Stack

async def own():
    folder = Path(sys.argv[1])
    async with Stack(sys.argv[2:], ready_file=folder / "ready.json", log_file=folder / "log") as stack:
        await stack.watch()

asyncio.run(own())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child whose parent was killed")
def test_a_killed_demonstration_leaves_nothing_running(plan, tmp_path):
    """SIGKILL leaves no time to end the child; the kernel does it."""
    ready_file = tmp_path / "ready.json"
    command = fake_command()(
        scale=plan.scale, environments=environments_for(2), seed=1, ready_file=ready_file, work_dir=tmp_path
    )
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path), *command], cwd=ROOT) as owner:
        try:
            assert until(ready_file.exists)
            child = json.loads(ready_file.read_text())["pid"]
            assert is_alive(child)
        finally:
            owner.kill()
    assert until(lambda: not is_alive(child))


def until(condition) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


def test_a_polite_end_leaves_nothing_running(plan):
    """SIGTERM ends the child as well."""

    async def scenario():
        work = stoppable(
            demonstrate(plan, console=Console(file=StringIO()), now=time.time, build_command=fake_command())
        )
        running = asyncio.ensure_future(work)
        while not (plan.out_dir / "ready.json").exists():  # noqa: ASYNC110 - a file tells of no event
            await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scenario())
    assert not is_alive(json.loads((plan.out_dir / "ready.json").read_text())["pid"])
