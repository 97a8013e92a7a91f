"""Credentials for AWS: the environment's variables, which Lambda hands to a function, or else what botocore finds.

botocore knows a person's profiles, roles and single sign-on. It refreshes what it found before that ends. It is
imported only where the variables are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

from hotpartition.core.access import Credentials, CredentialSource
from hotpartition.core.errors import CredentialsError, StoreUnavailableError


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
        import botocore.session  # noqa: PLC0415 - see this module's docstring

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
