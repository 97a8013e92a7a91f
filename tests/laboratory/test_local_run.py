"""The local run: environments as Lambda has them, events as API Gateway sends them, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tools.local.events import HttpRequest, Route, build_http_event
from tools.local.pool import ThrottledInvocationError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def _invoke_in(loop: Any, pool: Any, event: object = None) -> Any:
    outcome = loop.run(pool.invoke(json.dumps(event).encode()))
    return json.loads(outcome.payload)


async def _invoke_together(pool: Any, count: int) -> list[Any]:
    return await asyncio.gather(*(pool.invoke(b"{}") for _ in range(count)), return_exceptions=True)


def test_a_function_sees_lambdas_world_and_only_its_own_packages(loop: Any, make_pool: Any) -> None:
    """Code, layers and variables are the template's; of this program's packages, only what Lambda brings is there."""
    pool = make_pool("""
        import importlib.util, os
        import boto3
        import from_layer
        def handler(event, context):
            names = ("GIVEN", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_ENDPOINT_URL_DYNAMODB", "_HANDLER")
            return {
                "event": event, "layer": from_layer.WORD, "environment": [os.environ.get(name) for name in names],
                "moto": importlib.util.find_spec("moto") is not None,
                "cwd": os.getcwd() == os.environ["LAMBDA_TASK_ROOT"],
                "remaining": 0 < context.get_remaining_time_in_millis() <= 600_000,
                "arn": context.invoked_function_arn,
                "table": boto3.resource("dynamodb").Table("readings").name,
            }
    """)
    assert _invoke_in(loop, pool, {"ä": 1}) == {
        "event": {"ä": 1},
        "layer": "layered",
        "environment": ["value", "128", "http://127.0.0.1:9", "handler.handler"],
        "moto": False,
        "cwd": True,
        "remaining": True,
        "arn": "arn:aws:lambda:eu-central-1:123456789012:function:f",
        "table": "readings",
    }


def test_an_environment_is_frozen_between_requests(loop: Any, make_pool: Any) -> None:
    """A thread that ticks every millisecond does not tick while no request is there, and goes on with the next."""
    pool = make_pool("""
        import threading, time
        ticks = 0
        def tick():
            global ticks
            while True:
                ticks += 1
                time.sleep(0.001)
        threading.Thread(target=tick, daemon=True).start()
        def handler(event, context):
            before = ticks
            while ticks == before:
                time.sleep(0.001)
            return ticks
    """)
    first = _invoke_in(loop, pool)
    (environment,) = pool._environments
    # The signal was sent; when the kernel has stopped every thread is its own affair.
    loop.run(_until(lambda: set(_threads(environment.pid, "stat")) == {"T"}))
    worked = _threads(environment.pid, "schedstat")
    loop.run(asyncio.sleep(0.2))
    assert _threads(environment.pid, "schedstat") == worked
    assert _invoke_in(loop, pool) > first


def _threads(pid: int, file: str) -> list[str]:
    """Read the first field of each thread of a process; of `stat` that which comes after the thread's name."""
    texts = [(task / file).read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [text.rpartition(")")[2].split()[0] for text in texts]


def test_environments_follow_concurrency_up_to_the_limit(loop: Any, make_pool: Any, tmp_path: Path) -> None:
    """Six requests at once get three environments, each one request at a time; afterwards all three rest."""
    folder = tmp_path / "pids"
    folder.mkdir()
    pool = make_pool(
        f"""
        import os, pathlib, time
        busy = False
        def handler(event, context):
            global busy
            assert not busy
            busy = True
            folder = pathlib.Path({str(folder)!r})
            (folder / str(os.getpid())).touch()
            while len(list(folder.iterdir())) < 3:
                time.sleep(0.01)
            busy = False
            return os.getpid()
        """,
        most=3,
    )
    outcomes = loop.run(_invoke_together(pool, 6))
    assert [outcome.error for outcome in outcomes] == [None] * 6
    assert len({outcome.payload for outcome in outcomes}) == 3
    loop.run(_until(lambda: pool.status()["frozen"] == 3))


def test_any_idle_environment_may_get_a_request(loop: Any, make_pool: Any) -> None:
    """So that a load is spread over all of them."""
    pool = make_pool("import os\ndef handler(event, context):\n    return os.getpid()\n", least=3)
    loop.run(pool.start())
    used = set()
    for _ in range(12):
        used.add(_invoke_in(loop, pool))
        loop.run(_until(lambda: pool.status()["frozen"] == 3))
    assert len(used) == 3


def test_reserved_concurrency_refuses_at_once_and_the_limit_after_a_while(
    loop: Any, make_pool: Any, tmp_path: Path
) -> None:
    """Lambda's throttle is an error of its own; a full machine lets requests wait for a bounded time."""
    gate = tmp_path / "gate"
    source = f"""
        import pathlib, time
        def handler(event, context):
            while not pathlib.Path({str(gate)!r}).exists():
                time.sleep(0.01)
    """
    reserved = make_pool(source, least=1, most=4, reserved=1)
    limited = make_pool(source, least=1, most=1, queue_seconds=0.2)
    for pool in (reserved, limited):
        loop.run(pool.start())
        first = loop.submit(pool.invoke(b"{}"))
        loop.run(_until(lambda: pool.status()["busy"] == 1))  # noqa: B023 - runs within this turn
        with pytest.raises(ThrottledInvocationError):
            loop.run(pool.invoke(b"{}"))
        gate.touch()
        assert first.result().error is None
        assert pool.status()["throttled"] == 1
        gate.unlink()


def test_a_timeout_kills_the_environment(loop: Any, make_pool: Any) -> None:
    """The response is Lambda's, and the next request gets a new process."""
    source = "import os, time\ndef handler(event, context):\n    time.sleep(event or 0)\n    return os.getpid()\n"
    pool = make_pool(source, timeout_seconds=2.0)

    def invoke_in_time():
        while not isinstance(pid := _invoke_in(loop, pool, 0), int):
            assert pid["errorType"] == "Sandbox.Timedout"
        return pid

    first = invoke_in_time()
    late = _invoke_in(loop, pool, 600)
    assert late["errorType"] == "Sandbox.Timedout"
    assert late["errorMessage"].endswith("Task timed out after 2.00 seconds")
    assert invoke_in_time() != first
    assert not Path(f"/proc/{first}").exists()


def test_errors_crashes_and_kills_are_failed_requests(loop: Any, make_pool: Any) -> None:
    """An exception leaves the environment alive, an exit does not; both are counted."""
    pool = make_pool("""
        import os
        def handler(event, context):
            if event == "raise":
                raise ValueError("no")
            if event == "exit":
                os._exit(3)
            return "fine"
    """)
    assert _invoke_in(loop, pool, "raise")["errorType"] == "ValueError"
    assert _invoke_in(loop, pool, "exit")["errorType"] == "Runtime.ExitError"
    assert _invoke_in(loop, pool) == "fine"
    loop.run(_until(lambda: pool.status()["frozen"] == 1))
    assert loop.run(pool.kill_one()) is not None
    assert _invoke_in(loop, pool) == "fine"
    status = pool.status()
    assert (status["errors"], status["killed"], status["started"]) == (2, 1, 3)


def test_who_asks_a_function_that_cannot_be_imported_is_told_why(loop: Any, make_pool: Any) -> None:
    """As Lambda tells it: the invocation fails with the runtime's own report, each time anew."""
    pool = make_pool("import nothing_of_this_name\n")
    for _ in range(2):
        report = _invoke_in(loop, pool)
        assert report["errorType"] == "Runtime.ImportModuleError"
        assert "nothing_of_this_name" in report["errorMessage"]


async def _until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - the state of a process
        await asyncio.sleep(0.005)


LIST = Route.parse("GET /conversations/{conversation_id}/messages")
HEADERS = (("Host", "h"), ("X-A", "1"), ("x-a", "2"), ("Cookie", "a=1; b=2"), ("User-Agent", "u"))


def test_an_event_has_payload_format_2() -> None:
    """Headers are lowercased and joined, cookies apart, query values joined, parameters decoded."""
    request = HttpRequest("GET", "/conversations/a%23/messages", "x=1&x=2&y=%20", HEADERS, b"", "127.0.0.1")
    event = build_http_event(request, LIST, {"conversation_id": "a#"}, request_id="id", now_ms=1_584_036_238_000)
    assert event == {
        "version": "2.0",
        "routeKey": "GET /conversations/{conversation_id}/messages",
        "rawPath": "/conversations/a#/messages",
        "rawQueryString": "x=1&x=2&y=%20",
        "cookies": ["a=1", "b=2"],
        "headers": {"host": "h", "x-a": "1,2", "user-agent": "u"},
        "queryStringParameters": {"x": "1,2", "y": " "},
        "pathParameters": {"conversation_id": "a#"},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "local",
            "domainName": "h",
            "domainPrefix": "local",
            "http": {
                "method": "GET",
                "path": "/conversations/a#/messages",
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "u",
            },
            "requestId": "id",
            "routeKey": "GET /conversations/{conversation_id}/messages",
            "stage": "$default",
            "time": "12/Mar/2020:18:03:58 +0000",
            "timeEpoch": 1_584_036_238_000,
        },
        "isBase64Encoded": False,
    }


def _call(url: str, body: bytes | None = None) -> tuple[int, Any]:
    method = "GET" if body is None else "POST"
    response = urllib3.request(method, url, body=body, headers={"Content-Type": "application/json"})
    return response.status, response.json()


def _children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def _wait_until_gone(pids: set[int]) -> None:
    """Wait until none runs any more; zombies of a dead parent are init's to collect."""
    while any(map(_is_running, pids)):
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _command(assembly: Path, folder: Path, *options: str) -> list[str]:
    where = ["--assembly", str(assembly), "--work-dir", str(folder / "work"), "--ready-file", str(folder / "ready")]
    return [sys.executable, "-m", "tools.local", "up", *where, *options]


@contextmanager
def _running(assembly: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = _command(assembly, folder)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            while not (folder / "ready").exists():
                assert process.poll() is None, process.communicate()[0]
                time.sleep(0.02)
            yield process, json.loads((folder / "ready").read_text())
        finally:
            if process.poll() is None:
                process.kill()


def test_the_run_serves_the_template_and_stops_without_a_trace(assembly: Path, tmp_path: Path) -> None:
    """Route, schedule, control and stop, from one start."""
    with _running(assembly, tmp_path) as (process, ready):
        children = _children(process.pid)
        assert process.pid == ready["pid"]
        assert len(children) == 3  # Redis, moto, one environment
        status, response = _call(f"{ready['api_url']}/echo/a%23b", b'{"x": 1}')
        assert status == 200
        assert (response["path"], response["body"], response["table"]) == ({"word": "a#b"}, '{"x": 1}', "s-Table")
        assert response["redis"] == str(ready["redis"]["port"])
        assert _call(f"{ready['api_url']}/echo/", b"{}")[1]["path"] == {"word": ""}
        assert _call(f"{ready['api_url']}/nowhere") == (404, {"message": "Not Found"})
        assert _call(f"{ready['api_url']}/echo/a", b"x" * (7 * 1024 * 1024))[0] == 413
        control = ready["control_url"]
        invoked = _call(f"{control}/functions/echo/invoke", b'{"detail-type": "x"}')
        assert invoked == (200, {"scheduled": "x"})
        assert _call(f"{control}/functions/other/kill", b"")[0] == 404
        while (state := _call(f"{control}/status")[1])["functions"]["echo"]["invocations"] < 4:  # one by the schedule
            time.sleep(0.02)
        assert state["dynamodb"]["endpoint"] == response["endpoint"]
        assert _call(f"{control}/redis/kill", b"")[1]["running"] is False
        assert _call(f"{control}/redis/start", b"")[1]["running"] is True
        assert _call(f"{control}/dynamodb/timeline?since_ms=0") == (200, {"buckets": []})
        children |= _children(process.pid)
        assert _call(f"{control}/stop", b"") == (200, {"stopping": True})
        output, _ = process.communicate()
    assert process.returncode == 0
    assert "authorization is not checked locally" in output
    _wait_until_gone(children)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_nothing_outlives_the_run_however_it_ends(
    number: signal.Signals, status: int, assembly: Path, tmp_path: Path
) -> None:
    """Frozen environments, Redis and moto end with it, even when it is killed."""
    with _running(assembly, tmp_path) as (process, _):
        children = _children(process.pid)
        process.send_signal(number)
        process.communicate()
    assert process.returncode == status
    assert len(children) == 3
    _wait_until_gone(children)
