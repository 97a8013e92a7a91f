"""What `hotpartition check` makes of the logs; `tests/e2e` tries all else against a running stack."""

import pytest

from hotpartition_cli.api import Api
from hotpartition_cli.check import Limits, check
from hotpartition_cli.errors import FailedError, Status
from hotpartition_cli.stacks import OUTPUTS

REFUSED = {"message": "registry refuses this function", "reason": "Redis refused: no", "user": "writer"}
CRASHED = {"errorType": "StoreRefusedError", "errorMessage": "no PutItem"}


def connected(connect_ms):
    return {"message": "connected to Redis", "connect_ms": connect_ms, "limit_ms": 500}


FAILED = {"message": "no connection to Redis", "reason": "timed out", "connect_ms": 500, "limit_ms": 500}


class Logged:
    """A stack of which only the write function's log can be read."""

    name = "logged"
    functions = tuple(OUTPUTS)
    api = Api("http://127.0.0.1:1")
    log_delay_seconds = 7.0

    def __init__(self, lines):
        self.lines = lines

    def invoke(self, function, event):
        raise FailedError("nobody", kind="unreachable")

    def read_log(self, function, since_ms):
        return self.lines if function == "write_message" else []


def look(lines, step):
    slept = []
    outcome = check(Logged(lines), Limits(wait_seconds=0.0), lambda _: None, timer=lambda: 0.0, sleep=slept.append)
    assert outcome.status is Status.FINDING
    assert slept.count(7.0) == 1  # CloudWatch's delay
    (found,) = [found for found in outcome.document["steps"] if found["name"] == step]
    return found["result"], found["came"]


class Operated(Logged):
    """A stack of somebody else's, with a table that we raise."""

    functions = ("operate",)

    def invoke(self, function, event):
        route = {"shard_count": 4, "agreement": "equal", "in_registry": True}
        started = "2026-11-21T09:30:00.000Z"
        hot = {"at": started, "consumers_started_at": [started], "routes": [], "active": 0}
        return {"raise": route, "route": route, "hot": hot}.get(event["command"], {"routes": []})


def test_somebody_elses_stack_is_tried_as_far_as_it_is_ours():
    """Its operations function, a raise by hand, the consumer, the logs; no message is written."""
    outcome = check(Operated([]), Limits(), lambda _: None, timer=lambda: 0.0, sleep=lambda _: None)
    names = [(step["name"], step["result"]) for step in outcome.document["steps"]]
    assert names == [
        ("start operate", "passed"),
        ("raise by hand", "passed"),
        ("find the consumer", "passed"),
        ("look for refusals", "passed"),
        ("look at connects to Redis", "skipped"),
    ]


@pytest.mark.parametrize(
    ("lines", "result", "came"),
    [
        ([connected(5)], "passed", "none"),
        ([REFUSED, REFUSED], "failed", "write_message: Redis refused: no (user writer)"),
        ([CRASHED], "failed", "write_message: StoreRefusedError: no PutItem"),
    ],
)
def test_refusals_and_crashes_are_named_once(lines, result, came):
    """With the function, and the user that is refused."""
    assert look(lines, "look for refusals") == (result, came)


@pytest.mark.parametrize(
    ("lines", "result", "came"),
    [
        ([], "skipped", "no connection was opened in the last hour"),
        ([connected(5), connected(8), connected(499)], "passed", "3 connects, median 8 ms, slowest 499 ms"),
        (
            [connected(260), connected(251)],
            "failed",
            "2 connects, median 256 ms, slowest 260 ms: raise registry_connect_timeout_ms",
        ),
        ([FAILED], "failed", "0 connects; 1 failed, the last one with write_message: timed out"),
        (
            [*[connected(5)] * 9, FAILED],
            "passed",
            "9 connects, median 5 ms, slowest 5 ms; 1 failed, the last one with write_message: timed out",
        ),
    ],
)
def test_connects_are_held_to_their_limit(lines, result, came):
    """The median, since single ones may be slow; and hardly any may fail."""
    assert look(lines, "look at connects to Redis") == (result, came)
