"""Signature Version 4: how a request to AWS says who sends it. Pure: time and credentials are arguments.

Source: "Create a signed AWS API request", AWS IAM User Guide. Tests hold it to botocore's signer.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any, NamedTuple
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    """What requests are signed with; `token` is empty for those that do not end."""

    access_key: str
    secret_key: str
    token: str = ""


def derive_key(secret_key: str, day: str, region: str, service: str) -> bytes:
    """Derive the key that signs one day's requests to one service in one region; `day` as in 20261121."""
    key = ("AWS4" + secret_key).encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


class _Operation(NamedTuple):
    """What all requests of one operation in one second share."""

    canonical: Any
    """A hash (`hashlib`) that has seen the canonical request up to the body's own hash; it is copied, not changed."""
    string_to_sign: str
    head: str


class _Second:
    """What all requests of one second share. Never changed but for `operations`, which every thread fills alike."""

    __slots__ = ("credentials", "day", "key", "operations", "scope", "second", "stamp")

    def __init__(self, second: int, credentials: Credentials, region: str, service: str, last: _Second | None) -> None:
        self.second = second
        self.credentials = credentials
        self.stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        self.day = self.stamp[:8]
        self.scope = f"{self.day}/{region}/{service}/aws4_request"
        self.operations: dict[str, _Operation] = {}
        is_known = last is not None and (last.day, last.credentials) == (self.day, credentials)
        self.key: bytes = (
            last.key if last and is_known else derive_key(credentials.secret_key, self.day, region, service)
        )


class JsonRequestSigner:
    """Builds signed requests of AWS's JSON protocol (`X-Amz-Target`), for several threads at the same time.

    All that does not depend on the body is made once a second for each operation: a request costs two hashes of a few
    hundred bytes, and one of its body.
    """

    def __init__(
        self, *, host: str, region: str, service: str, target: str, path: str = "/", version: str = "1.0"
    ) -> None:
        """Remember what never changes.

        Args:
            host: as in the header, with the port unless it is the scheme's own.
            region: what the signature is for, with the service.
            service: its name in signatures, for example `dynamodb`.
            target: what comes before the operation's name in `X-Amz-Target`, with the dot.
            path: of the endpoint.
            version: of the JSON protocol.
        """
        self._host = host
        self._region = region
        self._service = service
        self._target = target
        self._path = quote(path, safe="/~%")
        self._canonical_path = quote(path, safe="/~")
        self._content_type = f"application/x-amz-json-{version}"
        self._last: _Second | None = None

    def build(self, operation: str, body: bytes, credentials: Credentials, now_seconds: float) -> bytes:
        """Build a whole request, head and body; `now_seconds` is Unix time."""
        second = self._last
        if second is None or second.second != int(now_seconds) or second.credentials != credentials:
            second = self._last = _Second(int(now_seconds), credentials, self._region, self._service, second)
        common = second.operations.get(operation)
        if common is None:
            common = second.operations[operation] = self._prepare(operation, second)
        canonical = common.canonical.copy()
        canonical.update(hashlib.sha256(body).hexdigest().encode())
        signature = hmac.digest(second.key, (common.string_to_sign + canonical.hexdigest()).encode(), "sha256").hex()
        return f"{common.head}{signature}\r\nContent-Length: {len(body)}\r\n\r\n".encode("latin-1") + body

    def _prepare(self, operation: str, second: _Second) -> _Operation:
        signed = {"content-type": self._content_type, "host": self._host, "x-amz-date": second.stamp}
        if second.credentials.token:
            signed["x-amz-security-token"] = second.credentials.token
        signed["x-amz-target"] = self._target + operation  # the names are in alphabetical order
        names = ";".join(signed)
        canonical_headers = "".join(f"{name}:{value}\n" for name, value in signed.items())
        canonical = f"POST\n{self._canonical_path}\n\n{canonical_headers}\n{names}\n"
        credential = f"{second.credentials.access_key}/{second.scope}"
        head = (
            f"POST {self._path} HTTP/1.1\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in signed.items())
            + "accept-encoding: identity\r\nuser-agent: hotpartition\r\n"
            f"authorization: {ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature="
        )
        return _Operation(
            canonical=hashlib.sha256(canonical.encode()),
            string_to_sign=f"{ALGORITHM}\n{second.stamp}\n{second.scope}\n",
            head=head,
        )


def presign(
    *,
    host: str,
    parameters: dict[str, str],
    service: str,
    region: str,
    credentials: Credentials,
    now_seconds: float,
    life_seconds: int,
) -> str:
    """Sign a GET of `/` in its query string, for whoever holds the address within `life_seconds`.

    Returns:
        The address without a scheme.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_seconds))
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    signed = {
        **parameters,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(life_seconds),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        signed["X-Amz-Security-Token"] = credentials.token
    query = "&".join(
        sorted(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in signed.items())
    )
    canonical = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    to_sign = f"{ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = derive_key(credentials.secret_key, stamp[:8], region, service)
    return f"{host}/?{query}&X-Amz-Signature={hmac.digest(key, to_sign.encode(), 'sha256').hex()}"
