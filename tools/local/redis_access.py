"""What a guarded registry needs: certificates, users with few rights, and passwords in files of their own."""

from __future__ import annotations

import hashlib
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme

from hotpartition.redis.cluster import ACCESS
from tools.local.redis_server import Access

FUNCTIONS_USER = "hotpartition"
ADMIN_USER = "admin"

_PASSWORD_BYTES = 32


@dataclass(frozen=True, slots=True)
class Guard:
    """Where everything lies. Only the owner can read the passwords and the key."""

    ca_file: Path
    password_file: Path
    admin_password_file: Path
    users: Path
    tls: ssl.SSLContext

    @property
    def access(self) -> Access:
        """The local run's own user."""
        return Access(self.users, ADMIN_USER, self.admin_password_file.read_text())


def make_guard(folder: Path) -> Guard:
    """Make new certificates, passwords and users in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(tls)
    guard = Guard(
        ca_file=folder / "ca.pem",
        password_file=folder / "password",
        admin_password_file=folder / "admin-password",
        users=folder / "users.acl",
        tls=tls,
    )
    for path in (guard.password_file, guard.admin_password_file):
        write_secret(path, secrets.token_urlsafe(_PASSWORD_BYTES))
    users = {FUNCTIONS_USER: (guard.password_file, ACCESS), ADMIN_USER: (guard.admin_password_file, "~* &* +@all")}
    lines = [f"user {name} on #{_digest(path)} {rights}" for name, (path, rights) in users.items()]
    write_secret(guard.users, "\n".join(["user default off", *lines, ""]))
    return guard


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, at no time anybody else."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
