"""The client that the DynamoDB adapters need: it sends requests in DynamoDB's JSON form, and raises `errors.py`'s.

Two clients implement it, chosen by the setting `dynamodb_client`: `curl.py` (libcurl), and `boto3_client.py` on threads
(the SDK). Both build their errors here, so they distinguish the same cases. Sources: DynamoDB Developer Guide,
"Low-level API" and "Error handling"; the service model that botocore ships.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hotpartition.core.errors import (
    ConditionFailedError,
    HotPartitionError,
    RetryLaterError,
    StoreRefusedError,
    StoreUnavailableError,
    ThrottledError,
)
from hotpartition.core.times import read_date

CONNECT_TIMEOUT_SECONDS = 0.5
READ_TIMEOUT_SECONDS = 2.0

Response = dict[str, Any]
"""A response of DynamoDB's, as boto3 shows it too: attribute values keep their types (`{"S": "text"}`)."""

Outcome = Response | RetryLaterError
"""The outcome of one call of a round."""


class Call(NamedTuple):
    """One request: DynamoDB's name of the operation (`PutItem`), and its members."""

    operation: str
    request: Mapping[str, Any]


class Round(NamedTuple):
    """The outcomes of calls that ran at the same time, in their order, and how many were sent a second time."""

    outcomes: list[Outcome]
    hedged: int = 0


class DynamoDBCalls(Protocol):
    """Sends requests to DynamoDB, one attempt each. For several threads at the same time.

    Both methods raise `StoreRefusedError` for errors that need a person (`ConditionFailedError` among them), and
    `CredentialsError`.
    """

    def call(self, operation: str, request: Mapping[str, Any]) -> Response:
        """Send one request.

        Raises:
            ThrottledError: DynamoDB refused for a limit.
            StoreUnavailableError: no response came in time, or one that says that something failed.
        """

    def call_many(self, calls: Sequence[Call], *, is_hedged: bool) -> Round:
        """Send several *reads* at the same time.

        An error that `call` would raise to be repeated later is returned in its place.

        Where `is_hedged`, a slow call may be sent a second time.
        """

    def close(self) -> None:
        """Close its connections. A function never does: its process ends with them."""


def date_of(response: Response) -> int | None:
    """Return the `Date` of a response, a whole second of DynamoDB's clock as Unix ms; None where it has none."""
    return read_date(response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date"))


class StaleSignatureError(StoreUnavailableError):
    """The credentials have ended, or the clock is off."""


_logger = logging.getLogger(__name__)

_THROTTLES = frozenset({"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"})
_CONFLICTS = frozenset({"TransactionConflictException", "TransactionInProgressException"})
"""Another transaction is at work on the same item: nothing was written."""
_CANCELLED = "TransactionCanceledException"
_CONDITION_FAILED_REASON = "ConditionalCheckFailed"
_PASSING_REASONS = frozenset(
    {"ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded", "TransactionConflict"}
)
_STALE = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired", "RequestTimeTooSkewed"})
_SKEWED = ("Signature expired", "Signature not yet current")
_SERVER_ERROR_STATUS = 500
_TRANSIENT_STATUS = frozenset({408, 429})
"""Statuses of an overloaded proxy on the way to DynamoDB, which itself uses neither."""


def build_error(code: str, *, status: int, explanation: str = "", facts: Mapping[str, Any]) -> HotPartitionError:
    """Build the error that says what the caller can do about an error of DynamoDB's.

    `code` is the exception's name without a namespace, `explanation` DynamoDB's own words, `facts` the other members.
    """
    if code in _THROTTLES:
        # Two spellings, by exception (the service model of DynamoDB).
        reasons = facts.get("ThrottlingReasons") or facts.get("throttlingReasons") or ()
        return ThrottledError([reason["reason"] for reason in reasons if "reason" in reason])
    if code in _CONFLICTS:
        return ThrottledError([code])
    if code == _CANCELLED:
        return _build_cancellation(explanation, facts.get("CancellationReasons") or ())
    if _is_stale(code, explanation):
        # New credentials are on their way, or the clock is about to be set: repeating helps, if not at once. Logged
        # here: the response to a client only says that a job gave up.
        facts = {"code": code, "explanation": explanation}
        _logger.warning("DynamoDB takes the signature for outdated: %s: %s", code, explanation, extra=facts)
        return StaleSignatureError(f"DynamoDB takes the signature for outdated ({code}: {explanation})")
    if status >= _SERVER_ERROR_STATUS or status in _TRANSIENT_STATUS:
        return StoreUnavailableError(f"DynamoDB responded with {code}")
    if code == "ConditionalCheckFailedException":
        return ConditionFailedError(facts.get("Item"), explanation)
    return StoreRefusedError(code, explanation)


def _build_cancellation(explanation: str, reasons: Sequence[Mapping[str, Any]]) -> HotPartitionError:
    """Build the error of a transaction that was cancelled, which wrote nothing."""
    codes = [str(reason.get("Code", "None")) for reason in reasons]
    if _CONDITION_FAILED_REASON in codes:
        return ConditionFailedError(None, explanation)
    if passing := sorted(_PASSING_REASONS.intersection(codes)):
        return ThrottledError(passing)
    return StoreRefusedError(_CANCELLED, explanation)


def _is_stale(code: str, explanation: str) -> bool:
    """Say whether the credentials have ended, or the clock is off: the signature was right once, or will be."""
    is_skewed = code == "InvalidSignatureException" and explanation.startswith(_SKEWED)
    return code in _STALE or is_skewed
