"""The whole stack: the synthesized template, run by `python -m tools.local up`.

One run for most tests. Two small ones whose Redis is of another form, with the other client of DynamoDB and with two
consumers.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack import SETTINGS, WRITE_LIMIT_WCU, Stack
from tools.local.synthesis import synthesize

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90
FUNCTIONS = 4


@pytest.fixture(scope="session")
def assembly(tmp_path_factory) -> Path:
    """The template, at a scale that a test can reach."""
    return asyncio.run(synthesize(tmp_path_factory.mktemp("assembly") / "out", settings=SETTINGS, options={}))


@pytest.fixture(scope="session")
def stack(assembly, tmp_path_factory) -> Iterator[Stack]:
    """Start the local run, and stop it."""
    options = (
        *("--min-environments", "write_message=4", "--max-environments", "write_message=6"),
        *("--min-environments", "read_messages=2"),
    )
    with running_stack(assembly, tmp_path_factory.mktemp("local"), *options) as running:
        yield running


@contextmanager
def running_stack(assembly: Path, work: Path, *options: str) -> Iterator[Stack]:
    """Run the stack with further options of `python -m tools.local up`."""
    ready, log = work / "ready.json", work / "up.log"
    command = [
        *(sys.executable, "-m", "tools.local", "up", "--ready-file", str(ready), "--work-dir", str(work / "run")),
        *("--partition-write-limit", str(WRITE_LIMIT_WCU), "--assembly", str(assembly)),
        *("--idle-choice", "random", *options),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env={**os.environ})
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield Stack.from_ready_file(ready, work / "run")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
    assert process.returncode == 0, log.read_text()


@pytest.fixture(scope="session")
def other_assembly(tmp_path_factory) -> Path:
    """The template with the other client of DynamoDB, boto3, and with two consumers that share the streams."""
    outdir = tmp_path_factory.mktemp("other") / "out"
    settings = {**SETTINGS, "dynamodb_client": "boto3"}
    assembly = asyncio.run(synthesize(outdir, settings=settings, options={"consumers": 2}))
    (template,) = outdir.glob("*.template.json")
    assert template.read_text().count('"HOTPARTITION_DYNAMODB_CLIENT": "boto3"') == FUNCTIONS
    return assembly


@pytest.fixture(scope="session")
def guarded_stack(other_assembly, tmp_path_factory) -> Iterator[Stack]:
    """A small one whose Redis asks for TLS, user and password."""
    with small_stack(other_assembly, tmp_path_factory.mktemp("guarded"), "--redis-auth") as running:
        yield running


@pytest.fixture(scope="session")
def replicated_stack(other_assembly, tmp_path_factory) -> Iterator[Stack]:
    """A small one whose Redis has a replica."""
    with small_stack(other_assembly, tmp_path_factory.mktemp("replicated"), "--redis-replica") as running:
        yield running


@pytest.fixture(scope="session")
def crippled_stack(assembly, tmp_path_factory) -> Iterator[Stack]:
    """A small one whose consumer has no concurrency, and whose read function has no handler."""
    work = tmp_path_factory.mktemp("crippled")
    (template,) = assembly.glob("*.template.json")
    broken = work / "out"
    broken.mkdir()
    for file in assembly.iterdir():
        (broken / file.name).symlink_to(file)
    resources = json.loads(template.read_text())
    (reader,) = (
        resource["Properties"]
        for resource in resources["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function"
        and resource["Properties"]["Environment"]["Variables"].get("POWERTOOLS_SERVICE_NAME") == "read_messages"
    )
    reader["Handler"] = "handler.nobody"
    (broken / template.name).unlink()
    (broken / template.name).write_text(json.dumps(resources))
    options = ("--max-environments", "consume_reports=0", "--min-environments", "read_messages=0")
    with small_stack(broken, work, *options) as running:
        yield running


def small_stack(assembly: Path, work: Path, *options: str):
    """Fewer environments than the others' start sooner."""
    counts = ("--min-environments", "write_message=2", "--max-environments", "write_message=4")
    return running_stack(assembly, work, *options, *counts)
