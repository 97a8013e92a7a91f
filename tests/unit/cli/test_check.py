"""What `check` makes of broken stacks and those of others; `tests/e2e` tries real ones."""

from collections import deque

import pytest

from hotpartition_cli.callers import OUTPUTS, Api, Response
from hotpartition_cli.check import check
from hotpartition_cli.errors import FailedError, Status
from hotpartition_cli.main import run

AT = "2026-11-21T09:30:00.000Z"
ROUTE = {"shard_count": 4, "agreement": "equal", "in_registry": True}
HOT = {"at": AT, "consumer_started_at": AT, "active": 0}
LATER = "2026-11-21T09:34:00.000Z"
UNKNOWN = {"consumer_started_at": None, "active": None}


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


CREATED = Response(201, {"message_id": "m"})
OTHER = Response(200, {"message_id": "m", "body": "x"})
NO = Response(403, {"detail": "no"})


def with_messages(*responses):
    """A stack whose API responds so."""
    return Scripted(tuple(OUTPUTS), responses=responses)


@pytest.mark.parametrize(
    ("step", "stack", "result", "came"),
    [
        ("raise by hand", Scripted(**{"raise": {**ROUTE, "in_registry": False}}), "failed", "but not in Redis"),
        ("raise by hand", Scripted(route={**ROUTE, "shard_count": 0}), "failed", "N = 0, registry against"),
        ("raise by hand", Scripted(route={**ROUTE, "agreement": "malformed"}), "failed", "against journal: malformed"),
        ("find the consumer", Scripted(hot={**HOT, "consumer_started_at": None}), "failed", "last started never"),
        ("find the consumer", Scripted(hot={**HOT, "at": "now"}), "failed", "a response of another form: "),
        ("find the consumer", Scripted(hot={**HOT, "at": LATER}), "failed", "last started 240 s ago"),
        ("find the consumer", Scripted(hot={**HOT, **UNKNOWN}), "failed", "Redis did not"),
        ("write", with_messages(NO), "failed", "403 (no): does the API admit"),
        ("read the message", with_messages(NO), "skipped", "not tried: nothing was written"),
        ("write", with_messages(Response(201, {})), "failed", "a response without 'message_id'"),
        ("write", with_messages(Response(201)), "failed", "a response of another form: "),
        ("repeat the write", with_messages(CREATED, Response(409)), "failed", "409"),
        ("read the message", with_messages(CREATED, CREATED, OTHER), "failed", "another"),
    ],
)
def test_what_is_odd_fails_its_own_step(step, stack, result, came):
    """With what came instead; after a write that failed there is nothing to read."""
    found, said = steps_of(stack)[step]
    assert found == result
    assert came in said


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
