"""DynamoDB's errors, as its protocol says them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

CORAL = "com.amazon.coral.service"
VALIDATE = "com.amazon.coral.validate"
_SERVICE = "com.amazonaws.dynamodb.v20120810"
_THROTTLING_TYPE = "com.amazon.coral.availability#ThrottlingException"
_THROTTLING_MESSAGE = (
    "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or "
    "index so please try again shortly. If exceptions persist, check if you have a hot key: "
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"
)
"""Of tables on demand; provisioned ones send ProvisionedThroughputExceededException (public error logs)."""
_TOKEN_MESSAGES = {
    "IdempotentParameterMismatchException": "The request used the same client token as a previous, but "
    "non-identical request.",
    "TransactionInProgressException": "The transaction with the given request token is already in progress.",
}


class ServiceError(Exception):
    """A response of DynamoDB that is not a success: `body` goes to the client unchanged."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(body.get("message", ""))
        self.status = status
        self.body = body

    @property
    def code(self) -> str:
        """The exception's short name."""
        return str(self.body.get("__type", "")).rpartition("#")[2]


def service_error(
    code: str, message: str, *, status: int = 400, package: str = _SERVICE, **members: object
) -> ServiceError:
    """Build an error of DynamoDB's own or of another package of AWS's, with further members if it has any."""
    return ServiceError(status, {"__type": f"{package}#{code}", "message": message, **members})


def throttling_error(refusals: Iterable[tuple[str, str]]) -> ServiceError:
    """Build the error of pairs of a reason and the ARN of what refused; BatchWriteItem names none."""
    body: dict[str, Any] = {"__type": _THROTTLING_TYPE, "message": _THROTTLING_MESSAGE}
    if reasons := [{"reason": reason, "resource": resource} for reason, resource in dict.fromkeys(refusals)]:
        body["throttlingReasons"] = reasons
    return ServiceError(400, body)


def cancelled(refused: Sequence[bool]) -> ServiceError:
    """Build the error of a transaction of which some actions met a partition that refused them."""
    throttled = {"Code": "ThrottlingError", "Message": _THROTTLING_MESSAGE}
    reasons = [throttled if is_refused else {"Code": "None"} for is_refused in refused]
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return service_error("TransactionCanceledException", message, CancellationReasons=reasons)


def token_error(code: str) -> ServiceError:
    """Build the error of a token that does not let a transaction happen."""
    return service_error(code, _TOKEN_MESSAGES[code])
