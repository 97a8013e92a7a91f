"""What an adapter needs to reach a store of AWS: credentials, and the authorities that it trusts."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Credentials(NamedTuple):
    """Keys to sign requests with; `token` is empty for those that do not end."""

    access_key: str
    secret_key: str
    token: str = ""


class CredentialSource(Protocol):
    """Where credentials come from. For several threads."""

    def get(self) -> Credentials:
        """Return credentials to sign with now.

        Raises:
            CredentialsError: no credentials were found.
            StoreUnavailableError: they have ended, and no new ones can be had just now.
        """

    def forget(self) -> None:
        """Take note that what `get` returned has ended."""


class Certificates(NamedTuple):
    """Authorities that a server's certificate must descend from: a file (PEM), or a folder as OpenSSL hashes it."""

    file: str = ""
    folder: str = ""
