"""Who a function says it is, and to whom: credentials, tokens of Redis, addresses and certificates."""

import random
import ssl
import string
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import botocore
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from botocore.utils import ContainerMetadataFetcher
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import AuthenticationError

from hotpartition.core.access import Certificates, Credentials
from hotpartition.core.errors import CredentialsError, SettingsError, StoreUnavailableError
from hotpartition.redis.logins import TOKEN_MARGIN_SECONDS, TOKEN_SECONDS, IamCredentials, PasswordFile, presign
from hotpartition.runtime import environment as aws
from support.servers import Server

KEYS = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}
ADDRESS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
CONFIGURED = "https://dynamodb.cn-north-1.amazonaws.com.cn"


@pytest.fixture
def endpoint(monkeypatch):
    """The endpoint beside a function that was started from a snapshot, which the variables name, as Lambda does.

    What it answers is set; nothing else holds credentials.
    """
    state = SimpleNamespace(asked=[], name="first", status=200)

    def serve(peer):
        peer.receive()
        state.asked.append((peer.path, peer.headers.get("Authorization")))
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        held = {"AccessKeyId": state.name, "SecretAccessKey": "s", "Token": "t", "Expiration": end}
        peer.reply(held, status=state.status)

    for name in (*KEYS, "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setattr(ContainerMetadataFetcher, "SLEEP_TIME", 0)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret")
    with Server(serve) as server:
        monkeypatch.setenv(ADDRESS, f"http://127.0.0.1:{server.port}/v1/credentials?id=1")
        yield state


def test_a_functions_variables_are_used_as_they_are():
    """With or without a session token, before everything else; there are no others that could be asked for."""
    assert aws.find_credentials(KEYS).get() == Credentials("A", "S", "")
    everything = {**KEYS, "AWS_SESSION_TOKEN": "T", ADDRESS: "http://x"}
    source = aws.find_credentials(everything)
    source.forget()
    assert source.get() == Credentials("A", "S", "T")
    # A line break would become a header.
    with pytest.raises(CredentialsError, match="line breaks"):
        aws.find_credentials({**KEYS, "AWS_SESSION_TOKEN": "T\r\nhost: other"})


@pytest.mark.parametrize("environ", [{}, {"AWS_ACCESS_KEY_ID": "A"}, {"AWS_PROFILE": "p"}, {ADDRESS: "http://x"}])
def test_everything_else_is_botocores_business(environ):
    """A person's profile works as with any tool of AWS; nothing is asked before it is needed."""
    assert isinstance(aws.find_credentials(environ), aws.SdkCredentials)


def test_the_endpoint_of_a_snapshot_start_is_asked_once(endpoint):
    """Until DynamoDB calls ended what it gave, whatever the clock here says."""
    source = aws.find_credentials({})
    assert [source.get(), source.get()] == [Credentials("first", "s", "t")] * 2
    assert endpoint.asked == [("/v1/credentials?id=1", "secret")]
    source.forget()
    endpoint.name = "second"
    assert source.get().access_key == "second"


def test_credentials_that_cannot_be_had(endpoint, monkeypatch):
    """An endpoint that refuses can be asked again; where there is none, waiting for better ones is no retry."""
    endpoint.status = 404
    source = aws.find_credentials({})
    with pytest.raises(StoreUnavailableError, match="cannot be had"):
        source.get()
    endpoint.status = 200
    assert source.get().access_key == "first"
    monkeypatch.delenv(ADDRESS)
    with pytest.raises(CredentialsError, match="there are no credentials"):
        aws.find_credentials({}).get()


SESSION = Credentials("ASIAEXAMPLE", "the secret", "tok/en+with=signs")
CONNECT = {"host": "hot-registry", "service": "elasticache", "expires_in_seconds": 900}


class Clock:
    """The clock, and the credentials that the function has now."""

    def __init__(self):
        self.now = 1_800_000_000.0
        self.credentials = SESSION
        self.error = None

    def find(self):
        if self.error:
            raise self.error
        return self.credentials


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def provider(clock):
    names = {"cache_name": "Hot-Registry", "user": "hot-functions", "region": "eu-west-1"}
    return IamCredentials(**names, find_credentials=clock.find, now_seconds=lambda: clock.now)


def sign(credentials, now):
    """The presigned address of the cache: for its name in small letters, this user, and a quarter of an hour."""
    parameters = {"Action": "connect", "User": "hot-functions"}
    return presign(**CONNECT, parameters=parameters, region="eu-west-1", credentials=credentials, now_seconds=now)


NEXT = Credentials("ASIAEXAMPLE", "the next secret", "the next token")


@pytest.mark.parametrize(
    ("elapsed", "credentials", "is_renewed"),
    [
        (TOKEN_SECONDS - TOKEN_MARGIN_SECONDS - 1, SESSION, False),
        # Two minutes before it ends, so that no connection arrives with one that has just ended.
        (TOKEN_SECONDS - TOKEN_MARGIN_SECONDS, SESSION, True),
        # What was signed in the future is not taken, and no token outlives the credentials that signed it.
        (-3600, SESSION, True),
        (0, NEXT, True),
    ],
)
def test_a_token_is_used_again_until_it_is_old(provider, clock, elapsed, credentials, is_renewed):
    """It is a presigned address without a scheme."""
    first = sign(SESSION, clock.now)
    assert provider.get_credentials() == ("hot-functions", first)
    clock.now += elapsed
    clock.credentials = credentials
    assert provider.get_credentials()[1] == (sign(credentials, clock.now) if is_renewed else first)


secrets = st.text(string.ascii_letters + string.digits + "+/=", min_size=1, max_size=60)
regions = st.sampled_from(["eu-central-1", "us-gov-west-1", "cn-north-1"])
users = st.text(string.ascii_letters + string.digits + "-_ /é", max_size=20)


@given(st.builds(Credentials, secrets, secrets, st.just("") | secrets), st.integers(0, 4_000_000_000), regions, users)
def test_presigned_addresses_are_those_of_the_sdk(credentials, now, region, user):
    """As ElastiCache takes them for passwords."""
    parameters = {"Action": "connect", "User": user}
    address = presign(**CONNECT, parameters=parameters, region=region, credentials=credentials, now_seconds=now)
    unsigned, _, signature = address.partition("&X-Amz-Signature=")
    request = AWSRequest("GET", f"http://{unsigned}")
    request.context["timestamp"] = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    auth = SigV4QueryAuth(BotocoreCredentials(*credentials), "elasticache", region, expires=900)
    query = unsigned.partition("?")[2]
    canonical = "\n".join(["GET", "/", query, "host:hot-registry\n", "host", auth.payload(request)])
    assert signature == auth.signature(auth.string_to_sign(request, canonical), request)


@pytest.mark.parametrize("error", [CredentialsError("gone"), StoreUnavailableError("gone")])
def test_credentials_that_cannot_be_had_refuse_the_connection(provider, clock, error):
    """As redis-py's own error, which every caller takes for a registry that does not let us in."""
    clock.error = error
    with pytest.raises(AuthenticationError, match=r"no token can be signed.*gone"):
        provider.get_credentials()


def test_a_password_is_read_at_each_connection(tmp_path):
    """So a rotated file is taken up without a new environment; an editor's last line end is not part of it."""
    path = tmp_path / "password"
    provider = PasswordFile(user="u", path=path)
    for _ in range(2):
        password = f" {random.getrandbits(64):x} ü "
        path.write_text(password + "\n")
        assert provider.get_credentials() == ("u", password)
    for content in (b"", b"\n", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(AuthenticationError, match="the password cannot be read"):
            provider.get_credentials()
    path.unlink()
    with pytest.raises(AuthenticationError, match="the password cannot be read"):
        provider.get_credentials()


@pytest.mark.parametrize(
    ("variables", "configured", "found"),
    [
        *(
            ({"AWS_ENDPOINT_URL_DYNAMODB": address}, CONFIGURED, address)
            for address in ("http://localhost:80/", "https://vpce-1.ddb.example:443/x", "https://[::1]:8443")
        ),
        # The service's own comes first, then the one for all services, then the configured one.
        ({"AWS_ENDPOINT_URL": "http://all:1"}, CONFIGURED, "http://all:1"),
        ({"AWS_ENDPOINT_URL": "http://all:1", "AWS_ENDPOINT_URL_DYNAMODB": "http://own:1"}, "", "http://own:1"),
        ({"AWS_ENDPOINT_URL": "http://a:1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, CONFIGURED, CONFIGURED),
        # With TLS: nothing is sent in clear unless an address says so.
        ({}, "", "https://dynamodb.eu-west-1.amazonaws.com"),
    ],
)
def test_an_address_can_be_named(variables, configured, found):
    assert aws.find_dynamodb_endpoint(variables, configured, "eu-west-1") == found


@pytest.mark.parametrize("address", ["127.0.0.1:80", "ftp://x", "http://", "http://h:port", "http://h?x=1", "http://é"])
def test_what_is_no_address_is_named(address):
    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL_DYNAMODB should be an address"):
        aws.find_dynamodb_endpoint({"AWS_ENDPOINT_URL_DYNAMODB": address}, "", "eu-west-1")
    with pytest.raises(SettingsError, match="dynamodb_endpoint should be an address"):
        aws.find_dynamodb_endpoint({}, address, "eu-west-1")


def test_the_region_comes_from_the_variables(monkeypatch, tmp_path):
    """Those of Lambda, then a profile's, then nowhere."""
    assert aws.find_region({"AWS_REGION": "eu-west-1"}) == "eu-west-1"
    assert aws.find_region({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}) == "eu-west-2"
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert aws.find_region({}) == "eu-west-3"
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(SettingsError, match="AWS_REGION is missing"):
        aws.find_region({})


def test_who_may_vouch_for_a_server(monkeypatch, tmp_path):
    """A bundle that is named, the machine's own as a file or a folder, or those of the SDK."""
    bundle = tmp_path / "ca.pem"
    assert aws.find_certificates({"AWS_CA_BUNDLE": "/own.pem"}) == Certificates(file="/own.pem")
    bundle.touch()
    monkeypatch.setenv("SSL_CERT_DIR", "/nonexistent")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert aws.find_certificates({}) == Certificates(file=str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    of_the_sdk = Certificates(file=str(Path(botocore.__file__).with_name("cacert.pem")))
    assert ssl.create_default_context(cafile=of_the_sdk.file).cert_store_stats()["x509_ca"] > 50
    assert aws.find_certificates({}) == of_the_sdk
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert aws.find_certificates({}) == of_the_sdk
    (tmp_path / "0123abcd.0").touch()
    assert aws.find_certificates({}) == Certificates(folder=str(tmp_path))
