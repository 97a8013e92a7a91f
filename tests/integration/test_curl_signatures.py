"""libcurl's signatures, held to botocore's for the same headers and date."""

from __future__ import annotations

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SdkCredentials

from hotpartition.core.access import Certificates, Credentials
from hotpartition.dynamodb.curl import CurlCalls, Target
from hotpartition.runtime.credentials import FixedCredentials
from support.faulty_server import PATIENCE_SECONDS, Peer

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # noqa: S105 - AWS's example
ALWAYS_SIGNED = {"content-type", "host", "x-amz-date", "x-amz-target"}


class Recorder:
    """A server's address, and what was asked: path, headers by their names in lower case, and body."""

    def __init__(self, serve) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.address = f"http://127.0.0.1:{serve(self._note).port}"

    def _note(self, peer: Peer) -> None:
        while peer.receive():
            headers = {name.lower(): value for name, value in peer.headers.items()}
            self.requests.append((peer.path, headers, peer.body))
            peer.reply({})


@pytest.fixture
def recorder(serve) -> Recorder:
    """A server that notes requests as they arrive."""
    return Recorder(serve)


def send(recorder: Recorder, credentials: Credentials, request: dict, *, region="eu-central-1", path="") -> None:
    target = Target(recorder.address + path, region, Certificates(), PATIENCE_SECONDS, PATIENCE_SECONDS)
    calls = CurlCalls(target, FixedCredentials(credentials), timer=lambda: 0.0, now_seconds=lambda: 0.0)
    calls.call("PutItem", request)
    calls.close()


def sdk_authorization(recorder: Recorder, credentials: Credentials, region: str) -> str:
    """What botocore's signer says of the last request with the headers that libcurl signed."""
    path, headers, body = recorder.requests[-1]
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request = AWSRequest("POST", recorder.address + path, headers={n: headers[n] for n in names}, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(SdkCredentials(*credentials), "dynamodb", region)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    scope = f"{credentials.access_key}/{headers['x-amz-date'][:8]}/{region}/dynamodb/aws4_request"
    return f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={';'.join(names)}, Signature={signature}"


@pytest.mark.parametrize("token", ["", "FwoGZXIvYXdzE+/=" * 60])
@pytest.mark.parametrize("secret", [SECRET, "with:colon/and+more="])
@pytest.mark.parametrize("region", ["eu-central-1", "cn-north-1"])
@pytest.mark.parametrize("text", ["", "x" * 100_000, "é\x00\n"])
def test_signatures_are_those_of_the_sdk(recorder, token, secret, region, text):
    """With and without a session token, whatever the body."""
    credentials = Credentials("AKIDEXAMPLE", secret, token)
    send(recorder, credentials, {"text": text}, region=region)
    _, headers, _ = recorder.requests[-1]
    assert headers["authorization"] == sdk_authorization(recorder, credentials, region)
    assert headers.get("x-amz-security-token", "") == token


@pytest.mark.parametrize("path", ["/", "/unwatched", "/a%20b/~c"])
def test_an_endpoint_may_have_a_path(recorder, path):
    """It is signed as it is sent."""
    credentials = Credentials("A", SECRET)
    send(recorder, credentials, {}, path=path)
    sent, headers, _ = recorder.requests[-1]
    assert sent == path
    assert headers["authorization"] == sdk_authorization(recorder, credentials, "eu-central-1")


@pytest.mark.parametrize("token", ["", "T"])
def test_what_is_signed_is_what_the_rules_ask_for(recorder, token):
    """The host, and every header that begins with x-amz-; none is sent that the protocol has no use for."""
    send(recorder, Credentials("A", SECRET, token), {})
    _, headers, body = recorder.requests[-1]
    signed = ALWAYS_SIGNED | ({"x-amz-security-token"} if token else set())
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert names == sorted(signed)
    assert set(headers) == signed | {"authorization", "content-length", "user-agent"}
    assert headers["x-amz-target"] == "DynamoDB_20120810.PutItem"
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert body == b"{}"
