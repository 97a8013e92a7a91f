"""DynamoDB's errors, as its protocol says them, and its faults on demand: rules by operation, each with a probability.

Pure: the random source comes in as an argument, and `strike` only says what should happen; `dynamodb.py` does it.
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

from tools.limits import REASONS, Kind, Throttle

AVAILABILITY = "com.amazon.coral.availability"
CORAL = "com.amazon.coral.service"
VALIDATE = "com.amazon.coral.validate"
_SERVICE = "com.amazonaws.dynamodb.v20120810"
_TOO_MUCH = "Throughput exceeds the current capacity of your table or index."
_NOT_ON_DEMAND = {
    "AccountLimitExceeded": "RequestLimitExceeded",
    "ProvisionedThroughputExceeded": "ProvisionedThroughputExceededException",
}
"""Limits whose exception is not ThrottlingException, as of a table on demand for all others (public error logs)."""


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


def throttling_error(throttles: Iterable[Throttle] = ()) -> ServiceError:
    """Build the error of what refused, each named once; BatchWriteItem names none."""
    reasons = [asdict(throttle) for throttle in dict.fromkeys(throttles)]
    members: dict[str, Any] = {"throttlingReasons": reasons} if reasons else {}
    return service_error("ThrottlingException", _TOO_MUCH, package=AVAILABILITY, **members)


def cancelled(refused: Sequence[bool]) -> ServiceError:
    """Build the error of a transaction of which some actions met a partition that refused them."""
    throttled = {"Code": "ThrottlingError", "Message": _TOO_MUCH}
    reasons = [throttled if is_refused else {"Code": "None"} for is_refused in refused]
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    return service_error("TransactionCanceledException", message, CancellationReasons=reasons)


MAX_DELAY_MS: Final = 60_000
WRITE_REASONS: Final = frozenset(reason for reason in REASONS if Kind.WRITE in reason)
READ_REASONS: Final = REASONS - WRITE_REASONS

Write = Literal["PutItem", "UpdateItem", "DeleteItem"]
Read = Literal["GetItem", "Query", "Scan"]
Batch = Literal["BatchGetItem", "BatchWriteItem", "TransactWriteItems"]
"""Not to be throttled by a rule: DynamoDB refuses them in parts, and names no reason."""
_REASONS = dict.fromkeys(get_args(Write), WRITE_REASONS) | dict.fromkeys(get_args(Read), READ_REASONS)


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
REFUSALS = frozenset({Fault.ERROR, Fault.THROTTLE, Fault.DENY})


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


@dataclass(slots=True)
class FaultPolicy:
    """Decides the fate of each request, and counts the faults that it chose."""

    rng: random.Random
    rules: tuple[FaultRule, ...] = ()
    injected: Counter[str] = field(default_factory=Counter)

    def strike(self, operation: str) -> list[FaultRule]:
        """Draw once for each rule of the operation, and return those that strike, with one refusal at most.

        The first refusal decides: what is not carried out has no response that could be late or lost.
        """
        drawn = [r for r in self.rules if r.operation == operation and self.rng.random() < r.probability]
        refusal = next((r for r in drawn if r.fault in REFUSALS), None)
        if refusal is not None:
            drawn = [r for r in drawn if r.fault is Fault.DELAY or r is refusal]
        self.injected.update(r.fault.value for r in drawn)
        return drawn

    def describe(self) -> dict[str, Any]:
        """Return the rules and how often each fault was chosen since the start."""
        return {"rules": [asdict(rule) for rule in self.rules], "injected": dict(self.injected)}


def delay_seconds(struck: Iterable[FaultRule], fault: Fault) -> float:
    """Return how long a request waits by all rules of one fault together."""
    return sum(rule.delay_ms for rule in struck if rule.fault is fault) / 1000


def parse_rules(text: str | bytes) -> tuple[FaultRule, ...]:
    """Read rules from JSON, or raise `ValueError` saying what is wrong with the first wrong one."""
    try:
        return _RULES.validate_json(text)
    except ValidationError as error:
        mistake = error.errors()[0]
        if not mistake["loc"]:
            raise ValueError("the body should be a list of rules") from None
        raise ValueError("rule " + ": ".join(map(str, (*mistake["loc"], mistake["msg"])))) from None


def build_refusal(rule: FaultRule, resource: str) -> ServiceError:
    """Build a refusal's response; `resource` is the ARN of the table or index that a throttle's reason names.

    The exception follows the reason, as on a table on demand; the member's spelling follows the exception.
    """
    if rule.fault is Fault.ERROR:
        return service_error("InternalServerError", "Internal server error", status=500)
    if rule.fault is Fault.DENY:
        message = f"User is not authorized to perform: dynamodb:{rule.operation} on resource: {resource}"
        return ServiceError(400, {"__type": f"{CORAL}#AccessDeniedException", "Message": message})
    throttle = Throttle(rule.reason, resource)
    for limit, code in _NOT_ON_DEMAND.items():
        if rule.reason.endswith(limit):
            return service_error(code, _TOO_MUCH, ThrottlingReasons=[asdict(throttle)])
    return throttling_error([throttle])
