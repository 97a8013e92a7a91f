"""Region, endpoint, certificates and credentials from AWS's own variables, read as the SDKs read them.

botocore finds what they lack: a person's profiles, roles and single sign-on. It is imported only then.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from hotpartition.core.access import Certificates, Credentials, CredentialSource
from hotpartition.core.errors import CredentialsError, SettingsError, StoreUnavailableError


def find_region(environ: Mapping[str, str]) -> str:
    """Find the region that requests are signed for: `AWS_DEFAULT_REGION`, `AWS_REGION`, or a profile's.

    Raises:
        SettingsError: nothing names one.
    """
    region = environ.get("AWS_DEFAULT_REGION") or environ.get("AWS_REGION")
    if not region:
        import botocore.session  # noqa: PLC0415 - only a person's machine has no variable, and pays for it

        region = botocore.session.Session().get_config_variable("region")
    if not region:
        raise SettingsError(["AWS_REGION is missing (the region of the DynamoDB table)"])
    return region


def find_dynamodb_endpoint(environ: Mapping[str, str], configured: str, region: str) -> str:
    """Find where DynamoDB is: `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL`, the configured address, or the region's.

    The stack configures the address for its partition; without it the region is taken for one of the partition `aws`.

    Raises:
        SettingsError: an address is malformed.
    """
    if environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"):
            if address := environ.get(name):
                return _check_address(name, address)
    return _check_address("dynamodb_endpoint", configured or f"https://dynamodb.{region}.amazonaws.com")


def find_certificates(environ: Mapping[str, str]) -> Certificates:
    """Find the trusted authorities: `AWS_CA_BUNDLE`, else the machine's, else those that botocore ships.

    libcurl looks where the machine that built it had them, and some small images have no authorities.
    """
    if file := environ.get("AWS_CA_BUNDLE"):
        return Certificates(file=file)
    import ssl  # noqa: PLC0415 - takes 10 ms that an endpoint without TLS need not spend

    machine = ssl.get_default_verify_paths()
    if machine.cafile:
        return Certificates(file=machine.cafile)
    if machine.capath and any(Path(machine.capath).glob("*.0")):
        return Certificates(folder=machine.capath)
    botocore = find_spec("botocore")  # found without importing it
    if botocore is None or botocore.origin is None:
        return Certificates()
    return Certificates(file=str(Path(botocore.origin).with_name("cacert.pem")))


def _check_address(name: str, address: str) -> str:
    try:
        url = urlsplit(address)
        is_address = url.scheme in {"http", "https"} and url.hostname and url.port != 0
    except ValueError as error:
        raise SettingsError([f"{name} should be an address, not {address!r} ({error})"]) from error
    if not is_address or url.query or url.fragment or not address.isascii():
        raise SettingsError([f"{name} should be an address like https://host:8000, not {address!r}"])
    return address


class FixedCredentials:
    """Credentials that never change."""

    def __init__(self, credentials: Credentials) -> None:
        if any(set(part) & {"\r", "\n"} for part in credentials):
            raise CredentialsError("credentials should not contain line breaks")
        self._credentials = credentials

    def get(self) -> Credentials:
        """Implement `CredentialSource.get`."""
        return self._credentials

    def forget(self) -> None:
        """Do nothing: these never change."""


class SdkCredentials:
    """Credentials that botocore finds, and refreshes before they end."""

    def __init__(self) -> None:
        """Ask nothing yet."""
        import botocore.session  # noqa: PLC0415 - only a person's machine has no variables, and pays for it

        self._new_session = botocore.session.Session
        self._lock = Lock()
        self._found: Any = None

    def get(self) -> Credentials:
        """Implement `CredentialSource.get`."""
        from botocore.exceptions import BotoCoreError, CredentialRetrievalError, HTTPClientError  # noqa: PLC0415

        try:
            frozen = self._find().get_frozen_credentials()
        except (CredentialRetrievalError, HTTPClientError, RuntimeError) as error:
            # The last one is what botocore says of credentials that had ended when they were handed out.
            raise StoreUnavailableError("the credentials have ended, and new ones cannot be had") from error
        except (BotoCoreError, ValueError) as error:
            raise CredentialsError(f"botocore finds no credentials: {error}") from error
        return FixedCredentials(Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")).get()

    def forget(self) -> None:
        """Implement `CredentialSource.forget`: the next request looks for new ones, whatever the clock here says."""
        self._found = None

    def _find(self) -> Any:
        with self._lock:
            if self._found is None:
                self._found = self._new_session().get_credentials()
            if self._found is None:
                raise CredentialsError("there are no credentials, neither in the environment nor where botocore looks")
            return self._found


def find_credentials(environ: Mapping[str, str]) -> CredentialSource:
    """Choose where credentials come from; nothing is asked yet."""
    access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return FixedCredentials(Credentials(access_key, secret_key, environ.get("AWS_SESSION_TOKEN", "")))
    return SdkCredentials()
