"""The local run: environments as Lambda has them, events as API Gateway sends them.

Its processes are real: whether they are frozen is read from `/proc`. That none outlives a run, `tests/e2e` shows.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp.test_utils import TestClient, TestServer

from tools.local.config import LocalConfig
from tools.local.events import HttpRequest, build_http_event, find_route
from tools.local.functions import ThrottledInvocationError
from tools.local.gateway import Gateway
from tools.local.processes import LocalRunError
from tools.local.run import LocalRun

pytestmark = pytest.mark.slow


async def until(condition):
    """Wait for a process to get into a state."""
    while not condition():  # noqa: ASYNC110 - nothing says when
        await asyncio.sleep(0.005)


def event(do, **more):
    return json.dumps({"do": do, **more}).encode()


@pytest.fixture
def invoke(loop):
    """Invokes a pool's function, and returns what it responded."""

    def invoke(pool, do="say", **more):
        return json.loads(loop.run(pool.invoke(event(do, **more))).payload)

    return invoke


def test_a_function_sees_lambdas_world_and_only_its_own_packages(invoke, make_pool):
    """Code, layers and variables are the template's; of this program's packages, only what Lambda brings is there."""
    arn = "arn:aws:lambda:eu-central-1:123456789012:function:f"
    variables = ["value", "128", "http://127.0.0.1:9", "handler.handler"]
    seen = invoke(make_pool(), "look", ä=1)
    assert seen == [{"do": "look", "ä": 1}, "layered", *variables, arn, "readings", True, True, True]


def test_an_environment_is_frozen_between_requests(loop, invoke, make_pool):
    """A thread that ticks every millisecond does not tick while no request is there, and goes on with the next."""
    pool = make_pool()
    first = invoke(pool, "await tick")
    (environment,) = pool._environments
    # The signal was sent; when the kernel has stopped every thread is its own affair.
    loop.run(until(lambda: set(threads_of(environment.pid, "stat")) == {"T"}))
    worked = threads_of(environment.pid, "schedstat")
    loop.run(asyncio.sleep(0.2))
    assert threads_of(environment.pid, "schedstat") == worked
    assert invoke(pool, "await tick") > first


def threads_of(pid, file):
    """Read the first field of each thread of a process; of `stat` that which comes after the thread's name."""
    texts = [(task / file).read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [text.rpartition(")")[2].split()[0] for text in texts]


@pytest.fixture
def folder(tmp_path):
    """Where processes meet."""
    (tmp_path / "met").mkdir()
    return tmp_path / "met"


def test_environments_follow_concurrency_up_to_the_limit(loop, invoke, make_pool, folder):
    """Six requests at once get three environments, each one request at a time; then any of them may get the next."""
    pool = make_pool(max_environments=3)

    async def invoke_together():
        meeting = event("meet", folder=str(folder), count=3)
        return await asyncio.gather(*(pool.invoke(meeting) for _ in range(6)))

    outcomes = loop.run(invoke_together())
    assert [outcome.error for outcome in outcomes] == [None] * 6
    assert len({outcome.payload for outcome in outcomes}) == 3
    used = set()
    for _ in range(12):
        loop.run(until(lambda: pool.status()["frozen"] == 3))
        used.add(invoke(pool))
    assert len(used) == 3


@pytest.mark.parametrize("limits", [{"reserved": 1}, {"max_environments": 1, "queue_seconds": 0.2}])
def test_reserved_concurrency_refuses_at_once_and_the_limit_after_a_while(loop, make_pool, folder, limits):
    """Lambda's throttle is an error of its own; a full machine lets requests wait for a bounded time."""
    pool = make_pool(min_environments=1, **limits)
    loop.run(pool.start())
    assert pool.status()["frozen"] == 1  # initialized already
    first = loop.submit(pool.invoke(event("meet", folder=str(folder), count=2)))
    loop.run(until(lambda: pool.status()["busy"] == 1))
    with pytest.raises(ThrottledInvocationError):
        loop.run(pool.invoke(event("say")))
    (folder / "the test").touch()
    assert first.result().error is None
    assert pool.status()["throttled"] == 1


@pytest.mark.parametrize(
    ("fault", "error", "survives"),
    [
        ("fail", "ValueError", True),
        ("exit", "Runtime.ExitError", False),
        ("hang", "Sandbox.Timedout", False),
        ("kill", None, False),
    ],
)
def test_exceptions_crashes_and_timeouts_are_failed_requests(loop, invoke, make_pool, fault, error, survives):
    """An exception leaves the environment alive; after the others, and a kill, the next request gets a new process."""
    pool = make_pool(timeout_seconds=2.0 if fault == "hang" else 600.0)

    def invoke_in_time():
        while not isinstance(pid := invoke(pool), int):
            assert pid["errorType"] == "Sandbox.Timedout"
        return pid

    first = invoke_in_time()
    if error is None:
        assert loop.run(pool.kill_one()) == first
    else:
        assert invoke(pool, fault)["errorType"] == error
    assert (invoke_in_time() == first) is survives
    assert Path(f"/proc/{first}").exists() is survives
    status = pool.status()
    assert (status["errors"] > 0, status["killed"]) == ((False, 1) if error is None else (True, 0))


def test_a_function_that_cannot_be_imported_says_why(invoke, make_pool):
    """As on Lambda: the invocation fails with the runtime's own report, each time anew."""
    pool = make_pool()
    function = replace(pool.launcher.function, handler="nothing_of_this_name.handler")
    pool.launcher = replace(pool.launcher, function=function)
    for _ in range(2):
        report = invoke(pool)
        assert report["errorType"] == "Runtime.ImportModuleError"
        assert "nothing_of_this_name" in report["errorMessage"]


def test_a_function_whose_process_cannot_be_started_says_why(invoke, make_pool, folder):
    """Here its log cannot be written."""
    pool = make_pool()
    pool.launcher = replace(pool.launcher, log_dir=folder / "missing")
    assert "No such file" in invoke(pool)["errorMessage"]


def test_an_event_has_payload_format_2():
    """Headers are lowercased and joined, cookies apart, query values joined, parameters decoded."""
    headers = (("Host", "h"), ("X-A", "1"), ("x-a", "2"), ("Cookie", "a=1; b=2"), ("User-Agent", "u"))
    request = HttpRequest("GET", "/conversations/a%23/messages", "x=1&x=2&y=%20", headers, b"", "127.0.0.1")
    wider = ("$default", "ANY /{all+}", "GET /{a}/{b}/messages", "POST /conversations/{conversation_id}/messages")
    route, parameters = find_route((*wider, "GET /conversations/{conversation_id}/messages"), "GET", request.path)
    made = build_http_event(request, route, parameters, request_id="id", now_ms=1_584_036_238_000)
    context = made.pop("requestContext")
    assert made == {
        "version": "2.0",
        "routeKey": "GET /conversations/{conversation_id}/messages",
        "rawPath": "/conversations/a#/messages",
        "rawQueryString": "x=1&x=2&y=%20",
        "cookies": ["a=1", "b=2"],
        "headers": {"host": "h", "x-a": "1,2", "user-agent": "u"},
        "queryStringParameters": {"x": "1,2", "y": " "},
        "pathParameters": {"conversation_id": "a#"},
        "isBase64Encoded": False,
    }
    assert (context["routeKey"], context["domainName"]) == (made["routeKey"], "h")
    assert (context["time"], context["timeEpoch"]) == ("12/Mar/2020:18:03:58 +0000", 1_584_036_238_000)
    by_client = {"method": "GET", "path": made["rawPath"], "sourceIp": "127.0.0.1", "userAgent": "u"}
    assert context["http"] == {**by_client, "protocol": "HTTP/1.1"}


@pytest.mark.parametrize(
    ("path", "body", "response"),
    [
        ("/echo/a%23b", "ä", (200, {"word": "a#b"})),
        # What is wrong with an empty id, the function says.
        ("/echo/", "", (200, {"word": ""})),
        ("/nowhere", "", (404, {"message": "Not Found"})),
        ("/echo/a", "x" * (7 * 1024 * 1024), (413, {"message": "Request Entity Too Large"})),
    ],
)
def test_the_gateway_responds_alone_where_no_function_can(loop, path, body, response):
    """Without a route, and to what is larger than the payload of an invocation."""
    asked = []

    async def invoke(payload):
        event = json.loads(payload)
        asked.append(event.get("body", ""))
        return SimpleNamespace(error=None, payload=json.dumps(event["pathParameters"]))

    async def post():
        server = TestServer(Gateway({"POST /echo/{word}": SimpleNamespace(invoke=invoke)}).app())
        text = {"data": BytesIO(body.encode()), "headers": {"Content-Type": "text/plain"}}
        async with TestClient(server) as client, client.post(path, **text) as found:
            return found.status, await found.json()

    assert loop.run(post()) == response
    assert asked == ([body] if response[0] == 200 else [])


def test_a_folder_is_for_one_run_at_a_time(loop, tmp_path):
    """A second one would empty it below the first."""
    (tmp_path / "file").touch()
    starts = (
        ("work", "no cloud assembly"),
        ("work", "work cannot be used: another local run"),
        ("file", "File exists"),
    )

    async def start_all():
        async with AsyncExitStack() as cleanup:
            for folder, sentence in starts:
                with pytest.raises(LocalRunError, match=sentence):
                    await LocalRun(LocalConfig(work_dir=tmp_path / folder, assembly=tmp_path), cleanup, print).start()

    loop.run(start_all())
