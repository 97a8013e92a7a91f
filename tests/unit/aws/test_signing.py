"""Signatures, held to botocore's own."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from email.parser import BytesParser
from threading import Thread

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SdkCredentials
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.aws.signing import Credentials, JsonRequestSigner, derive_key, presign

NOW = 1_795_255_200
KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
HOST = "dynamodb.eu-central-1.amazonaws.com"

secrets = st.text(string.ascii_letters + string.digits + "+/=", min_size=1, max_size=60)
regions = st.sampled_from(["eu-central-1", "us-gov-west-1", "cn-north-1"])
instants = st.integers(0, 4_000_000_000)
some_credentials = st.builds(Credentials, secrets, secrets, st.just("") | secrets)


def signer(region="eu-central-1", **options):
    return JsonRequestSigner(host=HOST, region=region, service="dynamodb", target="DynamoDB_20120810.", **options)


def parse(request):
    head, _, body = request.partition(b"\r\n\r\n")
    line, _, lines = head.partition(b"\r\n")
    return line, dict(BytesParser().parsebytes(lines).items()), body


def sdk_signature(headers, body, credentials, region, path="/"):
    """What botocore's signer says of a request with these headers."""
    request = AWSRequest("POST", f"https://{HOST}{path}", headers=headers, data=body)
    auth = SigV4Auth(SdkCredentials(*credentials), "dynamodb", region)
    request.context["timestamp"] = headers["x-amz-date"]
    canonical = auth.canonical_request(request)
    return auth.signature(auth.string_to_sign(request, canonical), request)


def signed_names(headers):
    return headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")


@given(
    st.lists(
        st.tuples(st.sampled_from(["PutItem", "Query"]), st.binary(max_size=300), some_credentials, instants, regions),
        min_size=1,
        max_size=5,
    )
)
def test_signatures_are_those_of_the_sdk(requests):
    """Any bodies, credentials and times in any order, so that nothing is kept from one to the next that should not."""
    signers = {}
    for operation, body, credentials, now, region in requests:
        subject = signers.setdefault(region, signer(region))
        line, headers, sent = parse(subject.build(operation, body, credentials, now))
        assert (line, sent) == (b"POST / HTTP/1.1", body)
        assert headers["x-amz-date"] == datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        assert headers["x-amz-target"] == f"DynamoDB_20120810.{operation}"
        assert int(headers["Content-Length"]) == len(body)
        assert headers.get("x-amz-security-token", "") == credentials.token
        signed = {name: headers[name] for name in signed_names(headers)}
        assert headers["authorization"] == (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{headers['x-amz-date'][:8]}/{region}/dynamodb/"
            f"aws4_request, SignedHeaders={';'.join(signed)}, "
            f"Signature={sdk_signature(signed, body, credentials, region)}"
        )


@pytest.mark.parametrize("path", ["/", "/unwatched", "/a b/~c", "/é"])
def test_an_endpoint_may_have_a_path(path):
    """It is signed as it is sent."""
    line, headers, body = parse(signer(path=path).build("Query", b"{}", KEYS, NOW))
    signed = {name: headers[name] for name in signed_names(headers)}
    assert headers["authorization"].endswith(sdk_signature(signed, body, KEYS, "eu-central-1", path))
    assert line.isascii()
    assert line.count(b" ") == 2


def test_what_is_signed_is_what_the_rules_ask_for():
    """The host, and every header that begins with x-amz-."""
    for token in ("", "token"):
        _, headers, _ = parse(signer().build("Query", b"{}", KEYS._replace(token=token), NOW))
        wanted = {name for name in headers if name.startswith("x-amz-")} | {"host", "content-type"}
        assert signed_names(headers) == sorted(wanted)


def test_the_key_is_that_of_awss_example():
    """From "Create a signed AWS API request", IAM User Guide, as older editions print it."""
    key = derive_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830", "us-east-1", "iam")
    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


def test_threads_share_a_signer():
    """Seconds and credentials change under them, and no request mixes two of either."""
    subject, wrong = signer(), []
    wanted = {
        (key, second): signer().build("Query", b"{}", KEYS._replace(access_key=key), NOW + second)
        for key in ("A", "B")
        for second in range(3)
    }

    def work(key):
        for turn in range(600):
            built = subject.build("Query", b"{}", KEYS._replace(access_key=key), NOW + turn % 3)
            if built != wanted[key, turn % 3]:
                wrong.append((key, turn))

    threads = [Thread(target=work, args=(key,)) for key in ("A", "B", "A", "B")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@given(some_credentials, instants, regions, st.text(string.ascii_letters + string.digits + "-_ /é", max_size=20))
def test_presigned_addresses_are_those_of_the_sdk(credentials, now, region, user):
    """As ElastiCache takes them for passwords."""
    address = presign(
        host="cache",
        parameters={"Action": "connect", "User": user},
        service="elasticache",
        region=region,
        credentials=credentials,
        now_seconds=now,
        life_seconds=900,
    )
    unsigned, _, signature = address.partition("&X-Amz-Signature=")
    request = AWSRequest("GET", f"http://{unsigned}")
    request.context["timestamp"] = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    auth = SigV4QueryAuth(SdkCredentials(*credentials), "elasticache", region, expires=900)
    canonical = "\n".join(["GET", "/", unsigned.partition("?")[2], "host:cache\n", "host", auth.payload(request)])
    assert signature == auth.signature(auth.string_to_sign(request, canonical), request)
