"""What a connection to Redis says of itself: what a token signs and how long it is used; what a password file gives."""

import random
from urllib.parse import parse_qsl, urlsplit

import pytest
from redis.exceptions import AuthenticationError

from hotpartition.core.access import Credentials
from hotpartition.core.errors import CredentialsError, StoreUnavailableError
from hotpartition.redis.logins import (
    TOKEN_MARGIN_SECONDS,
    TOKEN_SECONDS,
    IamCredentials,
    PasswordFile,
)
from hotpartition.redis.presigning import presign

SESSION = Credentials("ASIAEXAMPLE", "the secret", "tok/en+with=signs")
REGION = "eu-west-1"


class World:
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
def world():
    return World()


@pytest.fixture
def provider(world):
    return IamCredentials(
        cache_name="Hot-Registry",
        user="hot-functions",
        region=REGION,
        find_credentials=world.find,
        now_seconds=lambda: world.now,
    )


def parse(token):
    parts = urlsplit(f"//{token}")
    return parts.netloc, parts.path, dict(parse_qsl(parts.query, strict_parsing=True))


def test_a_token_is_the_presigned_address_of_the_cache(provider):
    """Without a scheme, for the name in small letters, this user, and a quarter of an hour."""
    token = presign(
        host="hot-registry",
        parameters={"Action": "connect", "User": "hot-functions"},
        service="elasticache",
        region=REGION,
        credentials=SESSION,
        now_seconds=1_800_000_000,
        expires_in_seconds=900,
    )
    assert provider.get_credentials() == ("hot-functions", token)


@pytest.mark.parametrize(
    ("elapsed", "signings"),
    [(0, 1), (TOKEN_SECONDS - TOKEN_MARGIN_SECONDS - 1, 1), (TOKEN_SECONDS - TOKEN_MARGIN_SECONDS, 2)],
)
def test_a_token_is_renewed_before_it_ends(provider, world, signed, elapsed, signings):
    """Two minutes before, so that no connection arrives with one that has just ended."""
    provider.get_credentials()
    world.now += elapsed
    provider.get_credentials()
    assert len(signed) == signings


def test_a_clock_that_was_set_back_renews_too(provider, world, signed):
    """What was signed in the future is not taken."""
    provider.get_credentials()
    world.now -= 3600
    provider.get_credentials()
    assert len(signed) == 2


def test_a_token_does_not_outlive_the_credentials_that_signed_it(provider, world, signed):
    """Refreshed session credentials are signed with at once, however young the token is."""
    provider.get_credentials()
    world.credentials = Credentials("ASIAEXAMPLE", "the next secret", "the next token")
    _, token = provider.get_credentials()
    assert signed == [SESSION, world.credentials]
    assert parse(token)[2]["X-Amz-Security-Token"] == "the next token"


@pytest.fixture
def signed(provider):
    """Which credentials signed, in order."""
    signings = []
    sign = provider._sign

    def note(credentials, now_seconds):
        signings.append(credentials)
        return sign(credentials, now_seconds)

    provider._sign = note
    return signings


@pytest.mark.parametrize("error", [CredentialsError("gone"), StoreUnavailableError("gone")])
def test_credentials_that_cannot_be_had_refuse_the_connection(provider, world, error):
    """As redis-py's own error, which every caller takes for a registry that does not let us in."""
    world.error = error
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


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
def test_a_password_that_cannot_be_read_refuses_the_connection(tmp_path, content):
    """Missing, empty or no text: the error names the file, and never what is in it."""
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AuthenticationError, match="the password cannot be read"):
        PasswordFile(user="u", path=path).get_credentials()
