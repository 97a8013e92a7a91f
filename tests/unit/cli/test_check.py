"""What `check` makes of broken stacks and those of others; `tests/e2e` tries real ones. How `plan` measures items."""

import json
from collections import deque

import pytest

from hotpartition.core.capacity import item_size_bytes
from hotpartition_cli.api import Api, Response
from hotpartition_cli.callers import OUTPUTS
from hotpartition_cli.check import check
from hotpartition_cli.errors import FailedError, Status
from hotpartition_cli.main import run
from hotpartition_cli.plan import measure_item
from support.builders import build_message

AT = "2026-11-21T09:30:00.000Z"
ROUTE = {"shard_count": 4, "agreement": "equal", "in_registry": True}
HOT = {"at": AT, "consumer_started_at": AT, "active": 0}


class Scripted:
    """A stack whose operations function responds as given, and whose other functions start."""

    name = "scripted"

    def __init__(self, functions=("operate",), *, responses=(), **operate):
        self.functions = functions
        self.operate = {"routes": {"routes": []}, "raise": ROUTE, "route": ROUTE, "hot": HOT, **operate}
        self.responses = deque(responses)
        self.api = self if responses else Api("http://127.0.0.1:1")

    def invoke(self, function, event):
        if function == "operate":
            return self.operate[event["command"]]
        return {"ready": True} if function == "consume_reports" else {"statusCode": 200}

    def request(self, *_, **__):
        return self.responses.popleft() if self.responses else Response(200, {})


def steps_of(stack):
    outcome = check(stack, lambda _: None, wait_seconds=0, timer=lambda: 0.0, sleep=lambda _: None)
    assert outcome.document["passed"] is (outcome.status is Status.FINE)
    return {step["name"]: (step["result"], step["came"]) for step in outcome.document["steps"]}


def test_somebody_elses_stack_is_tried_as_far_as_it_is_ours():
    """Its operations function, a raise by hand, the consumer; no message is written."""
    assert steps_of(Scripted()) == {
        "start operate": ("passed", "a list"),
        "raise by hand": ("passed", "N = 4, equal"),
        "find the consumer": ("passed", "started 0 s ago"),
    }


def test_a_stack_without_redis_has_no_consumer():
    """Twelve steps are tried where there is one, ten without it."""
    without = tuple(function for function in OUTPUTS if function != "consume_reports")
    assert len(steps_of(Scripted(tuple(OUTPUTS)))) == 12
    assert len(steps_of(Scripted(without))) == 10


@pytest.mark.parametrize(
    ("step", "operate", "came"),
    [
        ("raise by hand", {"raise": {**ROUTE, "in_registry": False}}, "N = 4 in the journal, but not in Redis"),
        ("raise by hand", {"route": {**ROUTE, "shard_count": 0}}, "N = 0, registry against journal: equal"),
        ("raise by hand", {"route": {**ROUTE, "agreement": "malformed"}}, "against journal: malformed"),
        ("find the consumer", {"hot": {**HOT, "consumer_started_at": None}}, "last started never"),
        ("find the consumer", {"hot": {**HOT, "at": "now"}}, "a response of another form: "),
        ("find the consumer", {"hot": {**HOT, "at": "2026-11-21T09:34:00.000Z"}}, "last started 240 s ago"),
        ("find the consumer", {"hot": {**HOT, "consumer_started_at": None, "active": None}}, "Redis did not"),
    ],
)
def test_what_is_operated_wrongly_fails_its_own_step(step, operate, came):
    """With what came instead."""
    result, said = steps_of(Scripted(**operate)).pop(step)
    assert result == "failed"
    assert came in said


CREATED = Response(201, {"message_id": "m"})


@pytest.mark.parametrize(
    ("step", "responses", "came"),
    [
        ("write", [Response(403, {"detail": "no"})], ("failed", "403 (no): does the API admit")),
        ("read the message", [Response(403, {"detail": "no"})], ("skipped", "not tried: nothing was written")),
        ("write", [Response(201, {})], ("failed", "a response without 'message_id'")),
        ("write", [Response(201)], ("failed", "a response of another form: ")),
        ("repeat the write", [CREATED, Response(409)], ("failed", "409")),
        ("read the message", [CREATED, CREATED, Response(200, {"message_id": "m", "body": "x"})], ("failed", "anoth")),
    ],
)
def test_what_the_api_responds_wrongly_fails_its_own_step(step, responses, came):
    """The steps after a write that failed are skipped."""
    result, said = steps_of(Scripted(tuple(OUTPUTS), responses=responses))[step]
    assert result == came[0]
    assert said.startswith(came[1])


def test_a_stack_without_a_response_fails_each_step():
    """The reason is what the tool says elsewhere."""

    class Silent(Scripted):
        def invoke(self, function, event):
            raise FailedError("nothing responds", kind="unreachable")

    assert set(steps_of(Silent()).values()) == {("failed", "nothing responds")}


def test_what_came_is_shown_as_it_is(capsys):
    """`[…]` in an answer is no markup."""
    stack = Scripted(route={**ROUTE, "agreement": "[red]odd[/red]"})
    assert run(["check", "--url", "http://u"], {}, connect_stack=lambda *_: stack) == Status.FINDING
    assert "against journal: [red]odd[/red]" in " ".join(capsys.readouterr().out.split())


def test_an_item_is_measured_as_it_is_stored():
    """By its own form, on a shard, ids and names included."""
    text = json.dumps({"sender": "ann", "body": "x" * 100, "conversation_id": "c"})
    item = build_message(conversation_id="c", body="x" * 100).to_item("c#0")
    assert measure_item(text) == item_size_bytes(item)
    longer = json.dumps({"sender": "ann", "body": "x" * 100, "conversation_id": "c", "attributes": {"n": 1}})
    assert measure_item(longer) > measure_item(text)
