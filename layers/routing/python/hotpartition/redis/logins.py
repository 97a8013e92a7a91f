"""How a connection authenticates to Redis: with a token of IAM, or a password from a file.

redis-py asks a `CredentialProvider` each time it opens a connection, and only then. That is all the renewal that
ElastiCache needs: a token is looked at once, when the connection authenticates. ElastiCache closes a connection of IAM
12 hours later; the next command opens another, with a token of that time. So no open connection is ever
authenticated again, and a changed password is taken up by the next connection.

Sources: "Authenticating with IAM", ElastiCache User Guide; Signature Version 4, "Authenticating requests: query".
Neither was run against ElastiCache itself.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from urllib.parse import quote, urlencode

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from hotpartition.core.access import Credentials
from hotpartition.core.errors import CredentialsError, StoreUnavailableError

TOKEN_SECONDS = 900
"""How long a token may be used: the longest that ElastiCache takes."""
TOKEN_MARGIN_SECONDS = 120
"""How long before its end a token is replaced: more than clocks and a slow connection should differ by."""

_SERVICE = "elasticache"
_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()


class IamCredentials(CredentialProvider):
    """Signs a short-lived token for one cache and one user, and keeps it until it is about to end.

    For several threads.
    """

    def __init__(
        self,
        *,
        cache_name: str,
        user: str,
        region: str,
        find_credentials: Callable[[], Credentials],
        now_seconds: Callable[[], float],
    ) -> None:
        """Remember what to sign; nothing is signed before the first connection.

        `cache_name` is the replication group id, in any case; `user` the ElastiCache user's name, which is its id as
        well. `now_seconds` is the wall clock: a monotonic one stands still in a frozen environment.
        """
        self._host = cache_name.lower()
        self._user = user
        self._region = region
        self._find_credentials = find_credentials
        self._now_seconds = now_seconds
        self._lock = Lock()
        self._token = ""
        self._signed_at = float("-inf")
        self._signed_with: Credentials | None = None

    def get_credentials(self) -> tuple[str, str]:
        """Return the user and a token, a new one when the last one is about to end or its credentials were replaced.

        Raises:
            AuthenticationError: there is nothing to sign with.
        """
        with self._lock:
            try:
                credentials = self._find_credentials()
            except (CredentialsError, StoreUnavailableError) as error:
                raise AuthenticationError(f"no token can be signed: {error}") from error
            now = self._now_seconds()
            is_young = 0 <= now - self._signed_at < TOKEN_SECONDS - TOKEN_MARGIN_SECONDS
            # A token dies with the credentials that signed it, which are replaced before they end.
            if not is_young or credentials != self._signed_with:
                self._token = self._sign(credentials, now)
                self._signed_at, self._signed_with = now, credentials
            return self._user, self._token

    def _sign(self, credentials: Credentials, now_seconds: float) -> str:
        return presign(
            host=self._host,
            parameters={"Action": "connect", "User": self._user},
            service=_SERVICE,
            region=self._region,
            credentials=credentials,
            now_seconds=now_seconds,
            expires_in_seconds=TOKEN_SECONDS,
        )


class PasswordFile(CredentialProvider):
    """Reads the password at each new connection, so that a rotated one needs no new environment."""

    def __init__(self, *, user: str, path: Path) -> None:
        self._user = user
        self._path = path

    def get_credentials(self) -> tuple[str, str]:
        """Return the user and the file's content without the line's end.

        Raises:
            AuthenticationError: the file cannot be read, or holds nothing.
        """
        try:
            password = self._path.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise AuthenticationError(f"the password cannot be read: {error}") from error
        if not password:
            raise AuthenticationError(f"the password cannot be read: {self._path} is empty")
        return self._user, password


def presign(
    *,
    host: str,
    parameters: dict[str, str],
    service: str,
    region: str,
    credentials: Credentials,
    now_seconds: float,
    expires_in_seconds: int,
) -> str:
    """Sign a GET of `/` in its query string (Signature Version 4); return the address, without a scheme.

    It serves any holder for `expires_in_seconds`. Tests hold it to botocore's signer, which takes 90 ms to import: more
    than all else that a function needs to reach Redis.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_seconds))
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    signed = {
        **parameters,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(expires_in_seconds),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        signed["X-Amz-Security-Token"] = credentials.token
    query = urlencode(sorted(signed.items()), quote_via=quote, safe="-_.~")
    canonical = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{_NO_BODY}"
    to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"{host}/?{query}&X-Amz-Signature={hmac.digest(key, to_sign.encode(), 'sha256').hex()}"
