"""What a cold start imports: what its function uses, as it is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.events import find_function, page_event, post_event

pytestmark = pytest.mark.slow

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
EVENTS = {
    "write_message": post_event("room-1", {"sender": "ann", "body": "hello"}),
    "read_messages": page_event("room-1"),
}
SERVE = """
import json, sys
import handler

class Context:
    function_name, memory_limit_in_mb, aws_request_id = "cold", 1769, "1"
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:cold"
    get_remaining_time_in_millis = staticmethod(lambda: 4_000)

started = set(sys.modules)
answer = handler.handler(json.loads(sys.argv[1]), Context())
modules = sorted(sys.modules)
import gc
late = sorted(set(modules) - started)
print(json.dumps({"status": answer["statusCode"], "modules": modules, "late": late, "collects": gc.isenabled()}))
"""


IN_BAND = {name: value for name, value in ENVIRONMENT.items() if "REGISTRY" not in name}


def run(code, *arguments, folders=(), environment=ENVIRONMENT):
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        env={"PYTHONPATH": ":".join(map(str, (*folders, *LAYERS))), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("function", EVENTS)
@pytest.mark.parametrize("environment", [ENVIRONMENT, IN_BAND], ids=["adaptive", "in-band"])
def test_a_request_needs_no_sdk_and_no_other_functions_job(function, environment):
    """Up to its first response a function has imported neither boto3 nor another job; without Redis, nothing of it."""
    folders = (find_function(function),)
    served = json.loads(run(SERVE, json.dumps(EVENTS[function]), folders=folders, environment=environment))
    imported = set(served["modules"])
    assert [name for name in served["late"] if name.startswith(("hotpartition", "redis", "pycurl"))] == []
    assert served["status"] == 503  # nobody answers in DynamoDB's place
    assert served["collects"]
    assert "hotpartition.dynamodb.curl" in imported
    unwanted = {
        "boto3",
        "botocore.session",
        "s3transfer",
        "hotpartition.control.consumer",
    }
    assert imported & unwanted == set()
    of_redis = {name for name in imported if name == "redis" or name.startswith(("redis.", "hotpartition.redis"))}
    assert bool(of_redis) == (environment is ENVIRONMENT)
    assert ("hotpartition.engine.read_cache" in imported) <= (environment is ENVIRONMENT)


def test_operators_of_a_stack_without_redis_do_not_import_it():
    """Not with the handler, and not with its jobs."""
    code = "import sys, handler; handler._operations(); print([n for n in sys.modules if 'redis' in n])"
    assert run(code, folders=(find_function("operate"),), environment=IN_BAND) == "[]"
