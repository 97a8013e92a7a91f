"""Credentials for AWS, without the SDK where Lambda hands them over; anywhere else, boto3 is asked for them.

| where | what names them | kept for |
|---|---|---|
| a function | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | the process, which ends first |
| a function started from a snapshot | `AWS_CONTAINER_CREDENTIALS_FULL_URI` | until shortly before their end |
| a person's machine | whatever boto3 knows: profiles, roles, single sign-on | as boto3 says |

Sources: "Container credential provider", AWS SDKs and Tools Reference Guide; "SnapStart: best practices", Lambda guide;
botocore's `credentials.py`, whose order and limits these are.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from hotpartition.aws.signing import Credentials
from hotpartition.errors import CredentialsError, StoreUnavailableError

REFRESH_EARLY_SECONDS = 900
"""Credentials that end within this time are replaced, if that can be done."""
REFRESH_REST_SECONDS = 10
"""After a replacement failed, the old ones are used for so long before the next attempt."""
FETCH_TIMEOUT_SECONDS = 2.0
FETCH_BYTES = 65_536

_logger = logging.getLogger(__name__)

_HOSTS_WITHOUT_TLS = frozenset({"localhost", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"})
_OK = 200


class CredentialSource(Protocol):
    """Where credentials come from. For several threads."""

    def get(self) -> Credentials:
        """Return credentials to sign with now.

        Raises:
            CredentialsError: there are none.
            StoreUnavailableError: they have ended, and no new ones can be had just now.
        """
        ...

    def forget(self) -> None:
        """Take note that what `get` returned has ended."""
        ...


class FixedCredentials:
    """Credentials that stay as they are."""

    def __init__(self, credentials: Credentials) -> None:
        if any(set(part) & {"\r", "\n"} for part in credentials):
            raise CredentialsError("credentials should not contain line breaks")
        self._credentials = credentials

    def get(self) -> Credentials:
        """See `CredentialSource.get`."""
        return self._credentials

    def forget(self) -> None:
        """Do nothing: there are no others."""


class EndpointCredentials:
    """Credentials that an HTTP endpoint beside the function hands out, kept until shortly before their end."""

    def __init__(self, fetch: Callable[[], bytes], now_seconds: Callable[[], float]) -> None:
        """Ask nothing yet.

        Args:
            fetch: reads the endpoint's answer; raises OSError.
            now_seconds: wall clock. A monotonic one stands still in a frozen environment.
        """
        self._fetch = fetch
        self._now_seconds = now_seconds
        self._lock = Lock()
        self._kept: Credentials | None = None
        self._ends_at = 0.0
        self._next_attempt_at = 0.0

    def get(self) -> Credentials:
        """See `CredentialSource.get`."""
        now = self._now_seconds()
        kept = self._kept
        if kept is not None and now < self._ends_at - REFRESH_EARLY_SECONDS:
            return kept
        # Whoever comes while another thread asks goes on with what is there, as long as that is good.
        if not self._lock.acquire(blocking=not self._is_good(now)):
            return self._last()
        try:
            if self._is_good(now) and not self._is_due(now):
                return self._last()
            return self._replace(now)
        finally:
            self._lock.release()

    def forget(self) -> None:
        """See `CredentialSource.forget`."""
        self._ends_at = 0.0

    def _is_good(self, now: float) -> bool:
        return self._kept is not None and now < self._ends_at

    def _is_due(self, now: float) -> bool:
        # A clock that was set back must not keep the next attempt away.
        rests = 0 < self._next_attempt_at - now <= REFRESH_REST_SECONDS
        return now >= self._ends_at - REFRESH_EARLY_SECONDS and not rests

    def _last(self) -> Credentials:
        if self._kept is None:
            raise StoreUnavailableError("no credentials could be had")
        return self._kept

    def _replace(self, now: float) -> Credentials:
        try:
            self._kept, self._ends_at = _parse_credentials(self._fetch())
        except (OSError, ValueError) as error:
            self._next_attempt_at = now + REFRESH_REST_SECONDS
            _logger.warning("credentials could not be replaced", extra={"reason": repr(error)})
            if self._is_good(now):
                return self._last()
            raise StoreUnavailableError("the credentials have ended, and new ones cannot be had") from error
        return self._kept


class SdkCredentials:
    """Credentials that boto3 finds and refreshes, for where neither variables nor an endpoint name them."""

    def get(self) -> Credentials:
        """See `CredentialSource.get`."""
        import boto3  # noqa: PLC0415 - only a person's machine needs it, and pays for it
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415

        if boto3.DEFAULT_SESSION is None:
            boto3.setup_default_session()
        session: Any = boto3.DEFAULT_SESSION  # it keeps what it found
        try:
            found = session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except BotoCoreError as error:
            raise CredentialsError(f"boto3 finds no credentials: {error}") from error
        if frozen is None:
            raise CredentialsError("there are no credentials, neither in the environment nor where boto3 looks")
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")

    def forget(self) -> None:
        """Do nothing: boto3 refreshes by itself what it can."""


def find_credentials(environ: Mapping[str, str], now_seconds: Callable[[], float]) -> CredentialSource:
    """Choose where credentials come from, as boto3 would; nothing is asked yet."""
    access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return FixedCredentials(Credentials(access_key, secret_key, environ.get("AWS_SESSION_TOKEN", "")))
    address = environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    comes_first = ("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    if access_key or not address or any(environ.get(name) for name in comes_first):
        return SdkCredentials()
    url = _check_address(address)
    return EndpointCredentials(lambda: _fetch(url, environ), now_seconds)


def _check_address(address: str) -> SplitResult:
    """Refuse to tell the token to a host that neither is this one nor proves who it is, as every SDK does."""
    url = urlsplit(address)
    host = url.hostname or ""
    if url.scheme == "https" or (url.scheme == "http" and (host in _HOSTS_WITHOUT_TLS or _is_loopback(host))):
        return url
    raise CredentialsError(
        f"AWS_CONTAINER_CREDENTIALS_FULL_URI should be an https address, or one of this host, not {address!r}"
    )


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415 - only names of hosts other than this one come here

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _fetch(url: SplitResult, environ: Mapping[str, str]) -> bytes:
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415 - most functions never ask

    token_file = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = Path(token_file).read_text() if token_file else environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    if set(token) & {"\r", "\n"}:
        raise CredentialsError("the token for the credentials' endpoint should not contain line breaks")
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=FETCH_TIMEOUT_SECONDS)
    headers = {"Accept": "application/json", **({"Authorization": token} if token else {})}
    try:
        connection.request("GET", (url.path or "/") + (f"?{url.query}" if url.query else ""), headers=headers)
        response = connection.getresponse()
        body = response.read(FETCH_BYTES)
    except HTTPException as error:
        raise OSError(f"the credentials' endpoint answered with something else than HTTP ({error!r})") from error
    finally:
        connection.close()
    if response.status != _OK:
        raise OSError(f"the credentials' endpoint answered with status {response.status}")
    return body


def _parse_credentials(body: bytes) -> tuple[Credentials, float]:
    """Read an endpoint's answer; returns the credentials, and when they end (Unix time).

    Raises:
        ValueError: it holds none.
    """
    match json.loads(body):
        case {"AccessKeyId": str(access), "SecretAccessKey": str(secret), "Token": str(token), "Expiration": str(end)}:
            return FixedCredentials(Credentials(access, secret, token)).get(), datetime.fromisoformat(end).timestamp()
    raise ValueError("the credentials' endpoint answered without credentials")
