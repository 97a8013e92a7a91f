"""What `check` makes of broken stacks and those of others, and plans worked by hand; `tests/e2e` tries real stacks."""

import json
from collections import deque

import pytest

from hotpartition.core.capacity import item_size_bytes
from hotpartition.core.detector import Thresholds
from hotpartition_cli.api import Api, Response
from hotpartition_cli.check import check
from hotpartition_cli.errors import FailedError, Status, UsageError
from hotpartition_cli.main import run
from hotpartition_cli.plan import default_thresholds, make_plan, measure_item
from hotpartition_cli.stacks import OUTPUTS
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


THRESHOLDS = Thresholds(hot_at_once_wcu=1_000, hot_sustained_wcu=800, target_shard_wcu=330, max_shard_count=128)


@pytest.mark.parametrize(
    ("rate", "item_bytes", "wcu", "least", "count"),
    [
        (5_000, 100, 1, 5, 16),  # a small item is a whole unit
        (800, 1_024, 1, 1, 0),  # as much as the base key is trusted with
        (801, 1_024, 1, 1, 3),
        (3, 409_600, 400, 2, 4),
        (100_000, 1_024, 1, 100, 128),
        (150_000, 1_024, 1, 150, 128),  # at the cap the rest is refused
    ],
)
def test_sizes_worked_by_hand(rate, item_bytes, wcu, least, count):
    """WCU a message times messages a second, over 1,000 at least; over 330 with room; 128 keys are the most."""
    plan = make_plan(rate, item_bytes, THRESHOLDS)
    assert [plan[name] for name in ("wcu_per_message", "least_shard_count", "shard_count")] == [wcu, least, count]
    assert plan["wcu_per_second"] == rate * wcu
    assert plan["after"]["wcu_per_second_per_key"] == round(rate * wcu / max(count, 1), 1)
    assert (plan["is_at_cap"], plan["is_covered"]) == (rate > 42_240, rate <= 128_000)
    refused = [plan[side]["wcu_per_second_refused"] for side in ("before", "after")]
    assert refused == [max(0, rate * wcu - 1_000), max(0, rate * wcu - 128_000)]


def test_an_item_is_measured_as_it_is_stored():
    """By its own form, on a shard, ids and names included."""
    text = json.dumps({"sender": "ann", "body": "x" * 100, "conversation_id": "c"})
    item = build_message(conversation_id="c", body="x" * 100).to_item("c#0")
    assert measure_item(text) == item_size_bytes(item)
    longer = json.dumps({"sender": "ann", "body": "x" * 100, "conversation_id": "c", "attributes": {"n": 1}})
    assert measure_item(longer) > measure_item(text)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"sender": "a", "body": 3}', '{"sender": "a", "body": "b", "conversation_id": "a#1"}'],
)
def test_what_is_no_message_is_refused(text):
    """With a sentence that names the option."""
    with pytest.raises(UsageError, match="--item"):
        measure_item(text)


def test_the_stacks_own_numbers_are_the_default():
    """What the consumer would decide."""
    assert default_thresholds() == THRESHOLDS
