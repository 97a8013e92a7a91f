"""The command: options, one clear line for an error, and a child that never outlives it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import tools.local.config
from tools.demo.__main__ import build_plan, main, parse_arguments
from tools.demo.client import Recorder
from tools.demo.observer import Event, Observations
from tools.demo.run import demonstrate, with_signs_of_life
from tools.demo.scale import choose_scale
from tools.demo.stack import Stack, StackError, environments_for, up_command
from tools.demo.view import Camera, LineView, render

ROOT = Path(__file__).resolve().parents[4]


def test_a_file_is_named_by_option_or_variable():
    """`MESSAGES` and `--messages` mean the same, the option wins."""
    assert parse_arguments([], {}).messages is None
    assert str(parse_arguments([], {"MESSAGES": "a.jsonl"}).messages) == "a.jsonl"
    assert str(parse_arguments(["--messages", "b.jsonl"], {"MESSAGES": "a.jsonl"}).messages) == "b.jsonl"


def test_a_shorter_run_is_marked_as_one(tmp_path):
    """Only a duration below the usual one lowers the bars."""
    assert not build_plan(parse_arguments([], {}), cores=2).shortened
    short = build_plan(parse_arguments(["--duration", "20", "--out", str(tmp_path)], {}), cores=2)
    assert short.shortened
    assert len(short.workload.offers) > 1000


def test_a_wrong_file_is_one_line_and_a_status(tmp_path, capsys):
    """The command says what is wrong and ends without a traceback."""
    path = tmp_path / "m.jsonl"
    path.write_text("nonsense")
    assert main(["--messages", str(path)], {}) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"demo: {path}, line 1: not JSON")
    assert error.count("\n") == 1


def test_a_file_in_which_nothing_can_get_hot_is_one_line(tmp_path, capsys):
    """A conversation needs some messages to become hot."""
    path = tmp_path / "m.jsonl"
    path.write_text('{"conversation_id": "c", "time": "2020-01-01T00:00Z", "sender": "s", "text": "t"}')
    assert main(["--messages", str(path)], {}) == 2
    assert "at least 120 are needed to make it hot" in capsys.readouterr().err


def test_the_command_starts_without_the_chart_library():
    """It takes a second to import, and is needed at the end only."""
    program = "import sys, tools.demo.__main__; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_an_interrupted_run_leaves_no_older_results_behind(tmp_path):
    """Whoever looks after an interruption finds no report, and no other run's."""
    results = ("summary.json", "report.html", "load.svg")
    for name in results:
        (tmp_path / name).write_text("older")
    plan = build_plan(parse_arguments(["--out", str(tmp_path)], {}), cores=2)
    work = demonstrate(
        plan, console=Console(file=StringIO()), now=time.time, build_command=lambda **_: (sys.executable, "-c", "")
    )
    with pytest.raises(StackError, match="did not start"):
        asyncio.run(work)
    assert not any((tmp_path / name).exists() for name in results)


def test_a_run_that_is_broken_off_leaves_no_report(tmp_path):
    """Ctrl-C while the local run starts: what an older run wrote is gone, and nothing of this one is there."""
    (tmp_path / "report.html").write_text("older")
    plan = build_plan(parse_arguments(["--out", str(tmp_path)], {}), cores=2)
    hangs = (sys.executable, "-c", "import time; time.sleep(60)")

    async def broken_off():
        work = demonstrate(plan, console=Console(file=StringIO()), now=time.time, build_command=lambda **_: hangs)
        await asyncio.wait_for(work, 0.5)

    with pytest.raises(TimeoutError):
        asyncio.run(broken_off())
    assert not (tmp_path / "report.html").exists()
    assert not (tmp_path / "summary.json").exists()


def test_what_is_silent_says_that_it_goes_on(monkeypatch):
    """Every few seconds, with the time; at the end its result, or what it raised."""
    monkeypatch.setattr("tools.demo.run.SIGN_SECONDS", 0.02)
    said = Console(file=StringIO())

    async def work():
        await asyncio.sleep(0.05)
        return 7

    async def fail():
        raise StackError("no")

    assert asyncio.run(with_signs_of_life(work(), said, "still at it")) == 7
    assert said.file.getvalue().count("still at it") >= 1
    with pytest.raises(StackError, match="no"):
        asyncio.run(with_signs_of_life(fail(), said, "still at it"))


def test_the_local_run_is_started_at_the_scale(tmp_path):
    """Limits, settings and environments are passed on, for any number of cores."""
    scale = choose_scale(cores=2)
    command = up_command(
        scale=scale, environments=environments_for(2), seed=4, ready_file=tmp_path / "r", work_dir=tmp_path
    )
    config = tools.local.config.parse_arguments(command[3:], {})
    assert command[1:3] == ("-m", "tools.local")
    assert config.settings == scale.settings()
    assert (config.partition_write_limit_wcu, config.partition_read_limit_rcu) == (20.0, 60.0)
    assert config.seed == 4
    assert config.environments_of("write_message") == (6, 8)
    for cores in (1, 2, 4, 64):
        environments = environments_for(cores)
        assert all(environments.fewest[name] <= environments.most[name] for name in environments.most)


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def test_a_stack_that_does_not_start_says_its_last_words(tmp_path):
    """The child's last line is the error."""

    async def scenario():
        command = program("print('first'); raise SystemExit('the port is taken')")
        async with Stack(command, ready_file=tmp_path / "r.json", log_file=tmp_path / "log") as stack:
            await stack.ready()

    with pytest.raises(StackError, match="did not start: the port is taken"):
        asyncio.run(scenario())


def test_a_stack_that_ends_by_itself_is_an_error(tmp_path):
    """A run must not wait for a stack that is gone."""

    async def scenario():
        async with Stack(program("print('oh no')"), ready_file=tmp_path / "r.json", log_file=tmp_path / "log") as stack:
            await stack.watch()

    with pytest.raises(StackError, match="ended by itself: oh no"):
        asyncio.run(scenario())


def test_a_stack_is_always_ended(tmp_path):
    """Whatever happens inside, the child is gone afterwards."""
    ready_file = tmp_path / "r.json"
    child = program(
        "import json, os, pathlib, time; "
        f"pathlib.Path({str(tmp_path / 'part')!r}).write_text(json.dumps(dict(pid=os.getpid()))); "
        f"os.replace({str(tmp_path / 'part')!r}, {str(ready_file)!r}); time.sleep(60)"
    )

    async def scenario():
        async with Stack(child, ready_file=ready_file, log_file=tmp_path / "log") as stack:
            ready = await stack.ready()
            raise KeyError(ready["pid"])

    with pytest.raises(KeyError) as caught:
        asyncio.run(scenario())
    with pytest.raises(ProcessLookupError):
        os.kill(caught.value.args[0], 0)


def pictures():
    recorder, observations = Recorder(), Observations()
    clock = iter([100.0, 102.0, 104.0])
    camera = Camera(recorder, observations, now=lambda: next(clock), started_at=100.0)
    recorder.counts.offered, recorder.counts.acknowledged, recorder.counts.throttled = 50, 40, 6
    observations.events.append(Event(101.5, "room becomes hot"))
    first = camera.take()
    recorder.counts.acknowledged, recorder.counts.replays, recorder.counts.pages = 51, 1, 8
    return [first, camera.take(), camera.take()]


def test_rates_are_those_since_the_last_picture():
    """A picture counts what happened since the one before it."""
    _, second, third = pictures()
    assert (second.writes_per_second, second.reads_per_second, second.waiting) == (5.5, 4.0, 0)
    assert second.acknowledged == 50
    assert (third.writes_per_second, third.seconds) == (0.0, 4.0)


def test_lines_are_plain_and_tell_each_event_once():
    """Without a terminal every picture is a line of text."""
    lines: list[str] = []
    view = LineView(lines.append, started_at=100.0)
    for picture in pictures():
        view.show(picture)
    assert sum("room becomes hot" in text for text in lines) == 1
    assert len(lines) == 4
    assert all("writes/s" in text and "N 0" in text for text in lines if "*" not in text)


def test_a_terminal_shows_the_same_figures():
    """The live table has writes, throttles, reads, N, environments and the last events."""
    console = Console(file=StringIO(), width=100, force_terminal=True, color_system=None)
    console.print(render(pictures()[1], started_at=100.0))
    shown = console.file.getvalue()
    for words in ("writes/s", "throttles/s", "reads/s", "environments", "1.5 s  room becomes hot"):
        assert words in shown
