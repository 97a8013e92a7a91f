"""What `hotpartition check` makes of the logs; `tests/e2e` tries all else against a running stack."""

import pytest

from hotpartition_cli.api import Api, Response
from hotpartition_cli.check import SkippedError, UnmetError, check, judge_load
from hotpartition_cli.errors import FailedError, Status
from hotpartition_cli.rush import Rush, Rushed
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

    def find_concurrency(self):
        return None

    def read_log(self, function, since_ms):
        return self.lines if function == "write_message" else []


def try_all(stack, sleep=lambda _: None):
    return check(stack, lambda _: None, load_seconds=10, wait_seconds=0, timer=lambda: 0.0, sleep=sleep)


def look(lines, step):
    slept = []
    outcome = try_all(Logged(lines), sleep=slept.append)
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
    names = [(step["name"], step["result"]) for step in try_all(Operated([])).document["steps"]]
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


RUSH = Rush("c", 2_000.0, 10.0, 25)


def judge(state=None, free=None, **made):
    return judge_load(Rushed(seconds=10.0, **made), RUSH, state, senders=4, free=free)


def test_a_load_that_does_not_arrive_is_not_judged():
    """The limit that it met is named: Lambda's, or the way from here."""
    with pytest.raises(SkippedError, match=r"refused 700 of 800: 10 executions are free"):
        judge(stored=["m"] * 100, capped=700, free=10)
    with pytest.raises(SkippedError, match=r"with 4 requests at a time, carries no more"):
        judge(stored=["m"] * 100)


def test_a_load_that_arrives_is_judged():
    """Throttled writes have arrived as well."""
    with pytest.raises(UnmetError, match=r"not raised \(2,000 WCU/s offered, 700 stored, 100 throttled\)"):
        judge(stored=["m"] * 700, throttled=100)
    with pytest.raises(UnmetError, match="1 of 801 writes failed"):
        judge(stored=["m"] * 800, failed=1)
    assert judge({"shard_count": 7, "after_seconds": 1.5}, stored=["m"] * 80).startswith("N = 7 after 1.5 s")


def test_what_never_reaches_the_function_is_counted_by_itself():
    """Lambda's refusals have no problem document; the API's own rate has a status of its own."""
    made = Rushed()
    for response in (
        Response(503, {"message": "Service Unavailable"}),
        Response(429, {"message": "Too Many Requests"}),
        *[Response(503, {"type": "throttled", "detail": "later"})] * 3,
    ):
        made.note(response)
    assert (made.capped, made.throttled, made.failed) == (2, 3, 0)
