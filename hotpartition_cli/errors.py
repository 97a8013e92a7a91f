"""Errors of the command line, and their exit statuses.

ToolError
├── UsageError       the command is wrong
└── FailedError      there was no response, or it could not be done; try again or repair what it names
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Status(IntEnum):
    """Exit statuses: a contract with scripts."""

    FINE = 0
    FINDING = 1
    USAGE = 2
    FAILED = 3
    INTERRUPTED = 130


_STATUSES: Mapping[str, Status] = {
    "usage": Status.USAGE,
    "invalid-request": Status.USAGE,
    "malformed-route": Status.FINDING,
}


class ToolError(Exception):
    """One sentence for a person, and `kind`, a word for a program."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = _STATUSES.get(kind, Status.FAILED)


class UsageError(ToolError):
    """The command is wrong; repeating it will not help."""

    def __init__(self, message: str, *, kind: str = "usage") -> None:
        super().__init__(message, kind=kind)


class FailedError(ToolError):
    """The command could not be carried out."""
