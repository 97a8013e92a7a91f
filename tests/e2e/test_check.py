"""`hotpartition check` against a stack of which a part is broken: it fails its own line. `make acceptance` passes."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from hotpartition_cli.main import run
from stack import SETTINGS, running_stack
from tools.local.synthesis import synthesize

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def check(capsys):
    """Checks a stack: exit status, the steps' results by name, and what came by name."""

    def check(stack, *options):
        status = run(["check", "--url", stack.control_url, "--json", *options], {})
        document = json.loads(capsys.readouterr().out)
        assert document["passed"] == (status == 0)
        steps = document["steps"]
        return status, {s["name"]: s["result"] for s in steps}, {s["name"]: s["came"] for s in steps}

    return check


def failed(results):
    return {name for name, result in results.items() if result == "failed"}


def test_a_missing_permission_of_the_table_fails_the_writes(guarded_stack, check):
    """The write function may not put: its log has the right that it lacks, in IAM's words."""
    guarded_stack.set_faults({"operation": "PutItem", "fault": "deny"})
    try:
        status, results, came = check(guarded_stack, "--seconds", "1")
    finally:
        guarded_stack.set_faults()
    assert status == 1
    assert failed(results) == {"write", "write to the shards", "raise by load", "look for refusals"}, came
    assert came["write"].startswith("500")
    assert "not authorized to perform: dynamodb:PutItem" in came["look for refusals"]
    assert came["look for refusals"].startswith("write_message: StoreRefusedError")


def test_a_redis_that_refuses_the_user_fails_the_refusals(guarded_stack, check):
    """Messages are written and read nevertheless; which function is refused as which user is said."""
    password_file = Path(guarded_stack.status()["redis"]["password_file"])
    password = password_file.read_text()
    password_file.write_text("wrong")
    try:
        for function in ("operate", "write_message", "read_messages"):
            for _ in range(guarded_stack.status()["functions"][function]["environments"]):
                guarded_stack.control(f"/functions/{function}/kill")
        status, results, came = check(guarded_stack, "--seconds", "2", "--wait", "0")
    finally:
        password_file.write_text(password)
        time.sleep(SETTINGS["registry_rest_ms"] / 1_000)
    assert status == 1
    assert failed(results) == {"raise by hand", "find the consumer", "look for refusals"}, came
    assert "Redis was not told" in came["raise by hand"]
    assert "invalid username-password pair" in came["look for refusals"]
    assert "(user hotpartition)" in came["look for refusals"]


@pytest.fixture
def crippled_stack(tmp_path):
    """Its consumer has no concurrency, and its read function no handler."""
    assembly = asyncio.run(synthesize(tmp_path / "assembly", settings=SETTINGS, options={}))
    (template,) = assembly.glob("*.template.json")
    document = json.loads(template.read_text())
    functions = [one for one in document["Resources"].values() if one["Type"] == "AWS::Lambda::Function"]
    variables = {id(one): one["Properties"]["Environment"]["Variables"] for one in functions}
    (reader,) = (one for one in functions if variables[id(one)].get("POWERTOOLS_SERVICE_NAME") == "read_messages")
    reader["Properties"]["Handler"] = "handler.nobody"
    template.write_text(json.dumps(document))
    options = ("--max-environments", "consume_reports=0", "--min-environments", "read_messages=0")
    with running_stack(assembly, tmp_path, *options) as running:
        yield running


@pytest.mark.long
def test_a_dead_consumer_and_a_function_that_cannot_start_fail_their_lines(crippled_stack, check):
    """The consumer never started, and the read function has no handler: all else is tried, and works."""
    status, results, came = check(crippled_stack, "--wait", "1")
    assert status == 1
    reading = {"start read_messages", "read the message", "read the page", "read all shards"}
    reading |= {"edit the message", "delete the message"}  # which read what became of it
    assert failed(results) == {*reading, "start consume_reports", "find the consumer", "look for refusals"}, came
    assert "Runtime.HandlerNotFound" in came["start read_messages"]
    assert "last started never" in came["find the consumer"]
    assert results["raise by load"] == "skipped"
