"""What a cold start imports, and that nothing is missing because of what waits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hotpartition
from hotpartition.runtime.deferred import defer

ROOT = Path(__file__).resolve().parents[3]
LAYERS = [ROOT / "layers" / layer / "python" for layer in ("routing", "messages")]

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "eu-central-1",
    "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9",
    "HOTPARTITION_TABLE_NAME": "t",
    "HOTPARTITION_REGISTRY_HOST": "127.0.0.1",
    "HOTPARTITION_REGISTRY_PORT": "9",
    "HOTPARTITION_REGISTRY_TLS": "false",
    "POWERTOOLS_SERVICE_NAME": "cold",
    "POWERTOOLS_METRICS_NAMESPACE": "cold",
}
REQUEST = {
    "version": "2.0",
    "rawQueryString": "",
    "headers": {},
    "pathParameters": {"conversation_id": "room-1"},
    "requestContext": {"stage": "$default", "http": {"path": "/"}},
    "isBase64Encoded": False,
}
EVENTS = {
    "write_message": REQUEST
    | {
        "routeKey": "POST /conversations/{conversation_id}/messages",
        "requestContext": {"stage": "$default", "http": {"method": "POST", "path": "/"}},
        "body": json.dumps({"sender": "ann", "body": "hello"}),
    },
    "read_messages": REQUEST
    | {
        "routeKey": "GET /conversations/{conversation_id}/messages",
        "requestContext": {"stage": "$default", "http": {"method": "GET", "path": "/"}},
    },
}
SERVE = """
import json, sys
import handler

class Context:
    function_name, memory_limit_in_mb, aws_request_id = "cold", 1769, "1"
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:cold"
    get_remaining_time_in_millis = staticmethod(lambda: 4_000)

answer = handler.handler(json.loads(sys.argv[1]), Context())
modules = sorted(sys.modules)
import gc
print(json.dumps({"status": answer["statusCode"], "modules": modules, "collects": gc.isenabled()}))
"""


def run(code, *arguments, folders=()):
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        env={"PYTHONPATH": ":".join(map(str, (*folders, *LAYERS))), **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("function", EVENTS)
def test_a_request_needs_no_sdk_and_no_half_that_is_not_used(function):
    """Up to its first answer a function has not imported boto3, asyncio clients or other services' events."""
    served = json.loads(run(SERVE, json.dumps(EVENTS[function]), folders=(ROOT / "lambdas" / function,)))
    imported = set(served["modules"])
    assert served["status"] == 503  # nobody answers in DynamoDB's place
    assert served["collects"]
    assert "hotpartition.dynamodb.curl" in imported
    unwanted = {
        "boto3",
        "email.message",  # of `importlib.metadata`
        "botocore.session",
        "s3transfer",
        "asyncio.base_events",
        "redis.asyncio.client",
        "aws_lambda_powertools.event_handler.appsync",
        "aws_lambda_powertools.utilities.data_classes.sqs_event",
        "hotpartition.core.detector",
        "hotpartition.jobs.consumer",
    }
    assert imported & unwanted == set()


def test_what_waits_is_there_when_it_is_asked_for():
    """Whoever wants the rest of a package later finds all of it, the same as ever."""
    code = """
from hotpartition.runtime import cold_start
cold_start.end()
import redis, asyncio
from redis import asyncio as aioredis
from redis.cluster import RedisCluster
from aws_lambda_powertools.event_handler import ALBResolver, AppSyncResolver, Response
from aws_lambda_powertools.utilities.data_classes import ALBEvent, SQSEvent
from aws_lambda_powertools.event_handler.api_gateway import Response as SameResponse
assert redis.RedisCluster is RedisCluster and redis.__version__ and "Redis" in redis.__all__
assert redis.asyncio is aioredis and aioredis.Redis.__module__ == "redis.asyncio.client"
assert Response is SameResponse and issubclass(SQSEvent, object) and ALBResolver and AppSyncResolver and ALBEvent
async def answer():
    await asyncio.sleep(0)
    return 42
assert asyncio.run(answer()) == 42
print("well")
"""
    assert run(code) == "well"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that imports all it has, and notes that it did."""
    folder = tmp_path / "waiting_room"
    folder.mkdir()
    (folder / "__init__.py").write_text("from waiting_room.heavy import Heavy\nfrom waiting_room.light import Light\n")
    (folder / "light.py").write_text("class Light: pass\n")
    (folder / "heavy.py").write_text("from waiting_room.light import Light\nclass Heavy(Light): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "waiting_room"
    for name in [name for name in sys.modules if name.partition(".")[0] == "waiting_room"]:
        del sys.modules[name]


def test_a_module_is_imported_without_its_package(package):
    """And a name with a known home brings just that home."""
    defer(package, {"Light": "light"})
    from waiting_room import Light  # noqa: PLC0415
    from waiting_room.light import Light as Direct  # noqa: PLC0415

    assert Light is Direct
    assert "waiting_room.heavy" not in sys.modules


def test_any_other_name_brings_the_package(package):
    """Which then is as it would have been at once; a name that does not exist is refused as usual."""
    defer(package)
    waiting_room = sys.modules[package]
    assert waiting_room.light.Light
    assert "waiting_room.heavy" not in sys.modules
    heavy = waiting_room.Heavy
    assert heavy is sys.modules["waiting_room.heavy"].Heavy
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = waiting_room.nothing


def test_a_package_within_a_package_waits_too(package, tmp_path):
    """It is found through its parent, as always."""
    inner = tmp_path / package / "inner"
    inner.mkdir()
    (inner / "__init__.py").write_text("from waiting_room.inner.deep import Deep\n")
    (inner / "deep.py").write_text("class Deep: pass\n")
    defer(f"{package}.inner")
    import waiting_room  # noqa: PLC0415

    assert waiting_room.inner is sys.modules["waiting_room.inner"]
    assert "waiting_room.inner.deep" not in sys.modules
    assert waiting_room.inner.Deep is sys.modules["waiting_room.inner.deep"].Deep


def test_a_function_is_asked_for_when_it_is_called(package, tmp_path):
    """Until then its package waits, whoever holds the function."""
    init = tmp_path / package / "__init__.py"
    init.write_text(init.read_text() + "def count(first, *, second): return [Heavy.__name__, first, second]\n")
    defer(package, functions={"count"})
    from waiting_room import count  # noqa: PLC0415

    assert "waiting_room.heavy" not in sys.modules
    assert count(1, second=2) == ["Heavy", 1, 2]
    assert sys.modules[package].count(3, second=4) == ["Heavy", 3, 4]


def test_what_is_there_already_stays(package):
    """Deferring comes too late then, and changes nothing."""
    import waiting_room  # noqa: PLC0415

    defer(package)
    assert sys.modules[package] is waiting_room
    assert "__getattr__" not in vars(waiting_room)


def test_a_package_that_does_not_exist_is_refused():
    """As an import would."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        defer("no_such_package")


@pytest.mark.parametrize("name", hotpartition.__all__)
def test_every_public_name_is_there(name):
    """Each comes from its own module when it is first used."""
    assert getattr(hotpartition, name) is not None
    assert name in dir(hotpartition)


def test_a_name_is_public_in_one_place():
    """What is listed is what has a home; anything else is refused."""
    homes = [name for names in hotpartition._HOMES.values() for name in names]
    assert sorted(homes) == sorted(hotpartition.__all__)
    with pytest.raises(AttributeError, match="module 'hotpartition' has no attribute 'nonsense'"):
        _ = hotpartition.nonsense
