"""Errors of the command line, and their exit statuses.

ToolError
├── UsageError       2: the command is wrong
├── FoundError       1: there is something to repair
└── FailedError      3: there was no response, or it could not be done; try again or repair the deployment
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses: a contract with scripts."""

    FINE = 0
    FINDING = 1
    USAGE = 2
    FAILED = 3
    INTERRUPTED = 130


class ToolError(Exception):
    """One sentence for a person, and `kind`, a word for a program."""

    status = Status.FAILED

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class UsageError(ToolError):
    """The command is wrong; repeating it will not help."""

    status = Status.USAGE

    def __init__(self, message: str, *, kind: str = "usage") -> None:
        super().__init__(message, kind=kind)


class FoundError(ToolError):
    """The command came upon something that a person has to repair."""

    status = Status.FINDING


class FailedError(ToolError):
    """The command could not be carried out."""
