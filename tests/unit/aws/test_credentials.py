"""Where credentials come from, and when they are replaced."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import boto3
import pytest

from hotpartition.aws.credentials import (
    REFRESH_EARLY_SECONDS,
    REFRESH_REST_SECONDS,
    EndpointCredentials,
    FixedCredentials,
    SdkCredentials,
    find_credentials,
)
from hotpartition.aws.signing import Credentials
from hotpartition.errors import CredentialsError, StoreUnavailableError

NOW = 1_795_255_200.0
KEYS = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}
ADDRESS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"


def find(**environ):
    return find_credentials(environ, lambda: NOW)


def answer(name, ends_at):
    end = datetime.fromtimestamp(ends_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": end}).encode()


class Endpoint:
    """A source whose answers are set, and a clock."""

    def __init__(self):
        self.now = NOW
        self.asked = 0
        self.reply = answer("first", NOW + 3600)
        self.source = EndpointCredentials(self.fetch, lambda: self.now)

    def fetch(self):
        self.asked += 1
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def name(self):
        return self.source.get().access_key


@pytest.fixture
def endpoint():
    return Endpoint()


def test_a_functions_variables_are_used_as_they_are():
    """With or without a session token; they come before everything else."""
    assert find(**KEYS).get() == Credentials("A", "S", "")
    everything = {**KEYS, "AWS_SESSION_TOKEN": "T", ADDRESS: "http://x"}
    assert find(**everything).get() == Credentials("A", "S", "T")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"AWS_ACCESS_KEY_ID": "A"},
        {"AWS_PROFILE": "p", ADDRESS: "http://127.0.0.1/"},
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "f", ADDRESS: "http://127.0.0.1/"},
        {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x"},
    ],
)
def test_everything_else_is_boto3s_business(environ):
    """A person's profile works as with any tool of AWS; nothing is asked before it is needed."""
    assert isinstance(find(**environ), SdkCredentials)


def test_boto3s_credentials_are_taken_as_they_are(monkeypatch):
    """And asked for each time: boto3 refreshes them."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session("A", "S", "T"))
    assert SdkCredentials().get() == Credentials("A", "S", "T")


@pytest.mark.parametrize(
    "address", ["http://169.254.170.23/v1", "http://localhost:1/", "http://[::1]:1/", "https://vault.example/"]
)
def test_the_token_may_be_told_to_these(address):
    """This host, AWS's own addresses, and whoever proves who it is."""
    assert isinstance(find(**{ADDRESS: address}), EndpointCredentials)


@pytest.mark.parametrize("address", ["http://vault.example/", "http://10.0.0.1/", "ftp://localhost/", "nonsense"])
def test_the_token_is_not_told_to_others(address):
    """The same limits as in every SDK."""
    with pytest.raises(CredentialsError, match=ADDRESS):
        find(**{ADDRESS: address})


def test_line_breaks_cannot_become_headers():
    """In no part of credentials."""
    with pytest.raises(CredentialsError, match="line breaks"):
        find(**KEYS, AWS_SESSION_TOKEN="T\r\nhost: other")  # noqa: S106 - nobody's


def test_credentials_are_kept_until_shortly_before_their_end(endpoint):
    """One request serves an hour; a quarter of an hour before its end the next one follows."""
    assert [endpoint.name(), endpoint.name()] == ["first", "first"]
    endpoint.now = NOW + 3600 - REFRESH_EARLY_SECONDS - 1
    assert (endpoint.name(), endpoint.asked) == ("first", 1)
    endpoint.now += 2
    endpoint.reply = answer("second", NOW + 7200)
    assert (endpoint.name(), endpoint.asked) == ("second", 2)


@pytest.mark.parametrize("failure", [OSError("refused"), b"<html>", b"{}", b"\xff"])
def test_a_failed_replacement_leaves_the_old_ones_in_use(endpoint, caplog, failure):
    """While they last, with some rest between attempts; afterwards the request may be repeated."""
    endpoint.name()
    endpoint.now, endpoint.reply = NOW + 3600 - 60, failure
    assert [endpoint.name() for _ in range(3)] == ["first"] * 3
    assert endpoint.asked == 2
    assert [record.message for record in caplog.records] == ["credentials could not be replaced"]
    endpoint.now += REFRESH_REST_SECONDS + 1
    assert (endpoint.name(), endpoint.asked) == ("first", 3)
    endpoint.now = NOW + 3600
    with pytest.raises(StoreUnavailableError, match="credentials have ended"):
        endpoint.name()
    endpoint.reply = answer("second", NOW + 7200)
    assert endpoint.name() == "second"


def test_an_environment_that_was_frozen_asks_anew(endpoint):
    """However long it was away."""
    endpoint.name()
    endpoint.now, endpoint.reply = NOW + 90_000, answer("second", NOW + 93_600)
    assert endpoint.name() == "second"


def test_what_dynamodb_calls_ended_is_forgotten(endpoint):
    """Whatever the clock here says."""
    endpoint.name()
    endpoint.source.forget()
    endpoint.reply = answer("second", NOW + 7200)
    assert endpoint.name() == "second"


def test_fixed_credentials_cannot_be_forgotten():
    """There are no others."""
    source = FixedCredentials(Credentials("A", "S"))
    source.forget()
    assert source.get() == Credentials("A", "S")


@pytest.fixture
def server():
    """An endpoint on this host; it notes what it is asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Authorization")))
            body = answer("served", NOW + 3600)
            self.send_response(200 if self.headers.get("Authorization") == "secret" else 403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing."""

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/v1/credentials?id=1", asked
    http.shutdown()
    http.server_close()
    thread.join()


def test_the_endpoint_of_a_snapshot_start_is_asked_with_its_token(server, tmp_path):
    """From a variable, or from a file that is read each time."""
    address, asked = server
    token = {"AWS_CONTAINER_AUTHORIZATION_TOKEN": "secret"}
    assert find(**{ADDRESS: address}, **token).get() == Credentials("served", "s", "t")
    (tmp_path / "token").write_text("secret")
    file = {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token")}
    assert find(**{ADDRESS: address}, **file).get() == Credentials("served", "s", "t")
    assert asked == [("/v1/credentials?id=1", "secret")] * 2


def test_an_endpoint_that_refuses_or_is_away_can_be_asked_again(server):
    """Nothing is made up meanwhile."""
    address, _ = server
    with pytest.raises(StoreUnavailableError) as raised:
        find(**{ADDRESS: address}).get()
    assert "403" in str(raised.value.__cause__)
    with pytest.raises(StoreUnavailableError, match="cannot be had"):
        find(**{ADDRESS: "http://127.0.0.1:1/"}).get()
