"""DynamoDB's errors, as its protocol says them, and its faults on demand: rules by operation, each with a probability.

Pure: the random source comes in as an argument, and `choose` only says what should happen; `dynamodb.py` does it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, Self, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tools.limits import REASONS, Kind

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


MAX_DELAY_MS: Final = 60_000
WRITE_REASONS: Final = frozenset(reason for reason in REASONS if Kind.WRITE in reason)
READ_REASONS: Final = REASONS - WRITE_REASONS

Write = Literal["PutItem", "UpdateItem", "DeleteItem"]
Read = Literal["GetItem", "Query", "Scan"]
Batch = Literal["BatchGetItem", "BatchWriteItem", "TransactWriteItems"]
"""Not to be throttled by a rule: DynamoDB refuses them in parts, and names no reason."""
_REASONS = dict.fromkeys(get_args(Write), WRITE_REASONS) | dict.fromkeys(get_args(Read), READ_REASONS)


class FaultRuleError(ValueError):
    """A rule that cannot be followed. The message is one sentence."""


class Fault(StrEnum):
    """What can go wrong."""

    DELAY = "delay"
    """The request waits for `delay_ms` before anything else."""
    LATE_ANSWER = "late_answer"
    """The request is carried out at once, and its response comes `delay_ms` later."""
    ERROR = "error"
    """InternalServerError; the data never sees the request."""
    LOSE_ANSWER = "lose_answer"
    """The request is carried out, and the connection is closed without a response."""
    THROTTLE = "throttle"
    """Refused for `reason`; the data never sees the request."""
    DENY = "deny"
    """Refused as IAM refuses whom no policy allows the operation; the data never sees the request."""


_DELAYS = frozenset({Fault.DELAY, Fault.LATE_ANSWER})
_REFUSALS = frozenset({Fault.ERROR, Fault.THROTTLE, Fault.DENY})


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class FaultRule:
    """One fault of one operation. `probability` is that of each request, whatever the other rules do."""

    operation: Literal[Write, Read, Batch]
    fault: Fault
    probability: float = Field(default=1.0, ge=0, le=1)
    delay_ms: int = Field(default=0, ge=0, le=MAX_DELAY_MS)
    reason: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse a rule that would do nothing: a trial would count it as survived."""
        if (self.delay_ms > 0) != (self.fault in _DELAYS):
            raise ValueError("delay and late_answer, and no other fault, have a delay_ms")
        reasons = _REASONS.get(self.operation, frozenset()) if self.fault is Fault.THROTTLE else {""}
        if self.reason not in reasons:
            known = ", ".join(sorted(reasons)) or "none"
            raise ValueError(f"the reason of {self.operation} and {self.fault} should be {known}")
        return self


_RULES = TypeAdapter(tuple[FaultRule, ...])


@dataclass(frozen=True, slots=True)
class Injection:
    """What should happen to one request."""

    delay_ms: int = 0
    response_delay_ms: int = 0
    refusal: FaultRule | None = None
    is_response_lost: bool = False


@dataclass(slots=True)
class FaultPolicy:
    """Decides the fate of each request, and counts the faults that it chose."""

    rng: random.Random
    rules: tuple[FaultRule, ...] = ()
    injected: Counter[str] = field(default_factory=Counter)

    def choose(self, operation: str) -> Injection:
        """Draw once for each rule of the operation; delays add up, and the first refusal decides."""
        drawn = [r for r in self.rules if r.operation == operation and self.rng.random() < r.probability]
        refusal = next((r for r in drawn if r.fault in _REFUSALS), None)
        if refusal is not None:  # what is not carried out has no response that could be late or lost
            drawn = [r for r in drawn if r.fault is Fault.DELAY or r is refusal]
        self.injected.update(r.fault.value for r in drawn)
        return Injection(
            delay_ms=sum(r.delay_ms for r in drawn if r.fault is Fault.DELAY),
            response_delay_ms=sum(r.delay_ms for r in drawn if r.fault is Fault.LATE_ANSWER),
            refusal=refusal,
            is_response_lost=any(r.fault is Fault.LOSE_ANSWER for r in drawn),
        )

    def describe(self) -> dict[str, Any]:
        """Return the rules and how often each fault was chosen since the start."""
        return {"rules": [asdict(rule) for rule in self.rules], "injected": dict(self.injected)}


def parse_rules(value: object) -> tuple[FaultRule, ...]:
    """Read rules from JSON values, or raise `FaultRuleError` saying what is wrong with the first wrong one."""
    if not isinstance(value, list):
        raise FaultRuleError("the body should be a list of rules")
    try:
        return _RULES.validate_python(tuple(value))
    except ValidationError as error:
        mistake = error.errors()[0]
        position, *names = mistake["loc"]
        raise FaultRuleError(": ".join(map(str, (f"rule {position}", *names, mistake["msg"])))) from None


def build_refusal(rule: FaultRule, resource: str) -> ServiceError:
    """Build a refusal's response; `resource` is the ARN of the table or index that the reason names.

    The exception follows the reason, as on a table on demand; the member's spelling follows the exception.
    """
    if rule.fault is Fault.ERROR:
        return service_error("InternalServerError", "Internal server error", status=500)
    if rule.fault is Fault.DENY:
        message = f"User is not authorized to perform: dynamodb:{rule.operation} on resource: {resource}"
        return ServiceError(400, {"__type": "com.amazon.coral.service#AccessDeniedException", "Message": message})
    if rule.reason.endswith("AccountLimitExceeded"):
        type_, message = "RequestLimitExceeded", "Throughput exceeds the current throughput limit for your account."
    elif rule.reason.endswith("ProvisionedThroughputExceeded"):
        type_, message = (
            "ProvisionedThroughputExceededException",
            "The level of configured provisioned throughput for the table was exceeded.",
        )
    else:
        return throttling_error([(rule.reason, resource)])
    return service_error(type_, message, ThrottlingReasons=[{"reason": rule.reason, "resource": resource}])
