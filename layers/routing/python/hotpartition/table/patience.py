"""Tries again what DynamoDB refused for a moment, and gives boto3's own error when that does not help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from botocore.exceptions import ClientError

from hotpartition.core.backoff import Budget, Clock, try_for
from hotpartition.dynamodb.calls import build_error
from hotpartition.errors import ThrottledError

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one call may try again, and by which clock."""

    clock: Clock
    budget_ms: float

    def begin(self) -> Budget:
        """Begin to wait between attempts."""
        return Budget(self.clock, self.budget_ms)

    def send(self, send: Callable[[], ResultT]) -> ResultT:
        """Send, and send again within the budget while DynamoDB throttles.

        Raises:
            ThrottledError: that of the last attempt.
        """

        def attempt() -> ResultT:
            with naming_throttles():
                return send()

        return try_for(self.clock, self.budget_ms, attempt)


@contextmanager
def naming_throttles() -> Iterator[None]:
    """Raise boto3's throttling errors as `ThrottledError`, which tells their reasons; all others as they are."""
    try:
        yield
    except ClientError as error:
        facts = error.response
        status = facts.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        named = build_error(facts["Error"]["Code"], status=status, facts=facts)
        if isinstance(named, ThrottledError):
            raise named from error
        raise


@contextmanager
def as_boto3_raises() -> Iterator[None]:
    """Raise boto3's own error again where a `ThrottledError` named it."""
    try:
        yield
    except ThrottledError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
