"""Where credentials come from, and when they are replaced."""

import json
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from botocore.utils import ContainerMetadataFetcher

from hotpartition.core.access import Credentials
from hotpartition.core.errors import CredentialsError, StoreUnavailableError
from hotpartition.runtime.credentials import FixedCredentials, SdkCredentials, find_credentials

KEYS = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}
ADDRESS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"


class Endpoint:
    """The endpoint beside a function that was started from a snapshot; what it answers is set."""

    def __init__(self):
        self.asked = []
        self.name = "first"
        self.status = 200


@pytest.fixture
def endpoint(monkeypatch):
    """One that the variables name, as Lambda does; nothing else holds credentials."""
    state = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append((self.path, self.headers.get("Authorization")))
            end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
            response = {"AccessKeyId": state.name, "SecretAccessKey": "s", "Token": "t", "Expiration": end}
            body = json.dumps(response).encode()
            self.send_response(state.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing."""

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name in (*KEYS, "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setattr(ContainerMetadataFetcher, "SLEEP_TIME", 0)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv(ADDRESS, f"http://127.0.0.1:{http.server_port}/v1/credentials?id=1")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret")
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


def test_a_functions_variables_are_used_as_they_are():
    """With or without a session token; they come before everything else."""
    assert find_credentials(KEYS).get() == Credentials("A", "S", "")
    everything = {**KEYS, "AWS_SESSION_TOKEN": "T", ADDRESS: "http://x"}
    assert find_credentials(everything).get() == Credentials("A", "S", "T")


@pytest.mark.parametrize("environ", [{}, {"AWS_ACCESS_KEY_ID": "A"}, {"AWS_PROFILE": "p"}, {ADDRESS: "http://x"}])
def test_everything_else_is_botocores_business(environ):
    """A person's profile works as with any tool of AWS; nothing is asked before it is needed."""
    assert isinstance(find_credentials(environ), SdkCredentials)


def test_line_breaks_cannot_become_headers():
    with pytest.raises(CredentialsError, match="line breaks"):
        find_credentials({**KEYS, "AWS_SESSION_TOKEN": "T\r\nhost: other"})


def test_fixed_credentials_cannot_be_forgotten():
    """There are no others."""
    source = FixedCredentials(Credentials("A", "S"))
    source.forget()
    assert source.get() == Credentials("A", "S")


def test_the_endpoint_of_a_snapshot_start_is_asked_once(endpoint):
    source = find_credentials({})
    assert [source.get(), source.get()] == [Credentials("first", "s", "t")] * 2
    assert endpoint.asked == [("/v1/credentials?id=1", "secret")]


def test_what_dynamodb_calls_ended_is_forgotten(endpoint):
    """Whatever the clock here says."""
    source = find_credentials({})
    source.get()
    source.forget()
    endpoint.name = "second"
    assert source.get().access_key == "second"


def test_an_endpoint_that_refuses_can_be_asked_again(endpoint):
    endpoint.status = 404
    source = find_credentials({})
    with pytest.raises(StoreUnavailableError, match="cannot be had"):
        source.get()
    endpoint.status = 200
    assert source.get().access_key == "first"


def test_where_there_are_none_it_is_told(endpoint, monkeypatch):
    """Waiting for better credentials is no retry."""
    monkeypatch.delenv(ADDRESS)
    with pytest.raises(CredentialsError, match="there are no credentials"):
        find_credentials({}).get()
