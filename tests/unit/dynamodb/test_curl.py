"""What a response of DynamoDB's means, and that the client `curl` never needs the SDK."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from hotpartition.dynamodb.curl import HttpResponse, read_response
from hotpartition.errors import StoreRefusedError, StoreUnavailableError

LAYERS = [Path(__file__).resolve().parents[3] / "layers" / layer / "python" for layer in ("routing", "messages")]


def http(status, content, checksum=None):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return HttpResponse(status, checksum, body)


def error_of(status, content):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the tests look at the type
        read_response(http(status, content))
    return caught.value


def test_the_checksum_decides():
    """A damaged response is none, be it a success or an error; without a checksum nothing is checked."""
    body = b'{"Items":[]}'
    checksum = b"%d" % zlib.crc32(body)
    assert read_response(http(200, body, checksum)) == {"Items": []}
    for status in (200, 400):
        with pytest.raises(StoreUnavailableError, match="damaged"):
            read_response(http(status, body.replace(b"I", b"J"), checksum))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff", b"[" * 100_000, b"1" * 10_000])
def test_a_success_that_cannot_be_read_is_worth_a_retry(body):
    """Nobody knows what it would have said."""
    with pytest.raises(StoreUnavailableError, match="not JSON"):
        read_response(http(200, body))


@pytest.mark.parametrize("prefix", ["", "com.amazonaws.dynamodb.v20120810#", "com.amazon.coral.availability#"])
@pytest.mark.parametrize("suffix", ["", ":http://internal.amazon.com/coral/"])
@pytest.mark.parametrize("spelling", ["message", "Message"])
def test_errors_are_named_with_or_without_a_namespace(prefix, suffix, spelling):
    """And explained under either spelling."""
    error = error_of(400, {"__type": f"{prefix}ResourceNotFoundException{suffix}", spelling: "no table"})
    assert isinstance(error, StoreRefusedError)
    assert (error.code, error.explanation) == ("ResourceNotFoundException", "no table")


@pytest.mark.parametrize(("status", "body"), [(301, b""), (400, b"[]")])
def test_an_error_without_a_name_is_named_by_its_status(status, body):
    """The address is something else's."""
    error = error_of(status, body)
    assert isinstance(error, StoreRefusedError)
    assert error.code == str(status)


ENVIRONMENTS = {
    "variables": {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S", "AWS_SESSION_TOKEN": "T"},
    "snapshot": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/"},
}
PROGRAM = """
import sys
from {place} import {settings}
from {module} import {open}
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.errors import StoreUnavailableError
settings = {settings}.defaults(dynamodb_client={client!r})
calls = open_dynamodb({client!r})
{open}(settings, None{calls})
try:
    DynamoDBJournal(calls, JournalPlace("t")).get("c", is_strong=True)
except StoreUnavailableError:
    print(sorted(name for name in ("boto3", "botocore", "urllib3") if name in sys.modules))
"""


def loaded_modules(job, settings, client, environment):
    """What of the SDK a new process holds once a job is built and has asked a DynamoDB that is not there."""
    is_of_messages = job in {"writer", "reader"}
    program = PROGRAM.format(
        place=f"{'hotpartition_messages' if is_of_messages else 'hotpartition.runtime'}.settings",
        module=f"hotpartition_messages.adaptive_{job}" if is_of_messages else "hotpartition.runtime.building_control",
        open=f"open_{job}s" if is_of_messages else f"open_{job}",
        settings=settings,
        client=client,
        calls=", calls" if is_of_messages else "",
    )
    command = [sys.executable, "-c", program]
    variables = {
        "PYTHONPATH": ":".join(map(str, LAYERS)),
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1",
        **ENVIRONMENTS[environment],
    }
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.replace("'", '"'))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "settings", "environment", "loaded"),
    [
        ("writer", "WriteSettings", "variables", []),
        ("writer", "WriteSettings", "snapshot", ["botocore", "urllib3"]),
        ("reader", "ReadSettings", "variables", []),
        ("consumer", "ConsumerSettings", "variables", []),
        ("operations", "OperateSettings", "variables", []),
    ],
)
def test_curl_never_loads_the_sdk(job, settings, environment, loaded):
    """From the settings to a request that found nobody, but for what finds credentials where none are given."""
    assert loaded_modules(job, settings, "curl", environment) == loaded


@pytest.mark.slow
def test_the_sdk_is_loaded_where_it_is_chosen():
    """So that the test above can fail."""
    assert loaded_modules("writer", "WriteSettings", "boto3", "variables") == ["boto3", "botocore", "urllib3"]
