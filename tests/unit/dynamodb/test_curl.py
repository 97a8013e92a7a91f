"""What a response of DynamoDB's means, and that the client `curl` never needs the SDK."""

import json
import zlib

import pytest

from hotpartition.core.errors import StoreRefusedError, StoreUnavailableError
from hotpartition.dynamodb.curl import HttpResponse, read_response


def http(status, content, checksum=None):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return HttpResponse(status, {} if checksum is None else {"x-amz-crc32": checksum}, body)


def error_of(status, content):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the tests look at the type
        read_response(http(status, content))
    return caught.value


def test_the_checksum_decides():
    """A damaged response is none, be it a success or an error; without a checksum nothing is checked."""
    body = b'{"Items":[]}'
    checksum = str(zlib.crc32(body))
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
    error = error_of(400, {"__type": f"{prefix}ResourceNotFoundException{suffix}", spelling: "no table"})
    assert isinstance(error, StoreRefusedError)
    assert (error.code, error.explanation) == ("ResourceNotFoundException", "no table")


@pytest.mark.parametrize(("status", "body"), [(301, b""), (400, b"[]")])
def test_an_error_without_a_name_is_named_by_its_status(status, body):
    """The address is something else's."""
    error = error_of(status, body)
    assert isinstance(error, StoreRefusedError)
    assert error.code == str(status)
