"""The whole stack: the synthesized template, run by `python -m tools.local up`.

One run for most tests, and one whose Redis asks for TLS, with the other client of DynamoDB.
A test of Redis's replica has its own. A run's Redis and client are fixed when it starts, so each of the three stacks is
set up by itself.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from hotpartition_cli.main import run
from stack import SETTINGS, SLOWLY, Stack, running_stack
from tools.local.template import synthesize

FUNCTIONS = 4


@pytest.fixture
def conversation() -> str:
    """A conversation of the test's own."""
    return f"room:{uuid.uuid4().hex}"


@pytest.fixture
def check(capsys):
    """Checks a stack: the steps' results by name, and what came by name.

    Again, where others failed than have to: a machine that stands still fails steps as well.
    """

    def check(stack, *options, fails=frozenset()):
        for _ in range(3):
            status = run(["check", "--url", stack.control_url, "--json", *options], {})
            document = json.loads(capsys.readouterr().out)
            assert document["passed"] == (status == 0)
            failed = {step["name"] for step in document["steps"] if step["result"] == "failed"}
            if failed == fails:
                return {step["name"]: step["came"] for step in document["steps"]}
        raise AssertionError(document)

    return check


@pytest.fixture(scope="session")
def assembly(tmp_path_factory) -> Path:
    """The template, at a scale that a test can reach."""
    return asyncio.run(synthesize(tmp_path_factory.mktemp("assembly") / "out", settings=SETTINGS, options=SLOWLY))


@pytest.fixture(scope="session")
def stack(assembly, tmp_path_factory) -> Iterator[Stack]:
    """The stack as it is."""
    least = {"write_message": 4, "read_messages": 2}
    with running_stack(assembly, tmp_path_factory.mktemp("stack"), min_environments=least) as running:
        yield running


@pytest.fixture
def registry(stack) -> Iterator[redis.Redis]:
    """The Redis itself."""
    with redis.Redis(port=stack.status()["redis"]["port"], decode_responses=True) as client:
        yield client


@pytest.fixture
def replicated_stack(assembly, tmp_path) -> Iterator[Stack]:
    """A small one, for one test, whose Redis has a replica; behind its front it is not seen which process asks.

    It is killed in the end.
    """
    with running_stack(assembly, tmp_path, redis="replicated", is_killed=True) as running:
        yield running


@pytest.fixture(scope="session")
def guarded_stack(tmp_path_factory) -> Iterator[Stack]:
    """Its Redis asks for TLS, user and password; boto3 is the client."""
    folder = tmp_path_factory.mktemp("guarded")
    settings = {**SETTINGS, "dynamodb_client": "boto3"}
    assembly = asyncio.run(synthesize(folder / "assembly", settings=settings, options=SLOWLY))
    (template,) = assembly.glob("*.template.json")
    assert template.read_text().count('"HOTPARTITION_DYNAMODB_CLIENT": "boto3"') == FUNCTIONS
    with running_stack(assembly, folder, redis="guarded", min_environments={"write_message": 2}) as running:
        yield running
