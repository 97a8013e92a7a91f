"""Faults of DynamoDB, injected on demand: rules by operation, each with a probability.

Pure: the random source comes in as an argument, and `choose` only says what should happen; the proxy does it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from tools.local.dynamodb_backend import ServiceError, service_error, throttling_error_for
from tools.partition_model import REASONS, Kind

_WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_READS = frozenset({"GetItem", "Query", "Scan"})
_BATCHES = frozenset({"BatchGetItem", "BatchWriteItem", "TransactWriteItems"})
"""Not to be throttled by a rule: DynamoDB refuses them in parts, and names no reason."""

OPERATIONS: Final = _WRITES | _READS | _BATCHES
MAX_DELAY_MS: Final = 60_000


WRITE_REASONS: Final = frozenset(reason for reason in REASONS if Kind.WRITE in reason)
READ_REASONS: Final = REASONS - WRITE_REASONS


class FaultRuleError(ValueError):
    """A rule that cannot be followed. The message is one sentence."""


class Fault(StrEnum):
    """What can go wrong."""

    DELAY = "delay"
    """The request waits for `delay_ms` before anything else."""
    LATE_ANSWER = "late_answer"
    """The request is carried out at once, and its success is told `delay_ms` later."""
    ERROR = "error"
    """InternalServerError; the data never sees the request."""
    LOSE_ANSWER = "lose_answer"
    """The request is carried out, and the connection is closed without a response."""
    THROTTLE = "throttle"
    """Refused for `reason`; the data never sees the request."""
    DENY = "deny"
    """Refused as IAM refuses whom no policy allows the operation; the data never sees the request."""


_REFUSALS = frozenset({Fault.ERROR, Fault.THROTTLE, Fault.DENY})


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One fault of one operation. `probability` is that of each request, whatever the other rules do."""

    operation: str
    fault: Fault
    probability: float = 1.0
    delay_ms: int = 0
    reason: str = ""


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
        if refusal is not None:  # what is not carried out has no success to be told late, or not at all
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
    return tuple(_parse_rule(position, rule) for position, rule in enumerate(value))


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
        return throttling_error_for([(rule.reason, resource)])
    return service_error(type_, message, ThrottlingReasons=[{"reason": rule.reason, "resource": resource}])


def _parse_rule(position: int, value: object) -> FaultRule:
    where = f"rule {position}"
    if not isinstance(value, Mapping):
        raise FaultRuleError(f"{where} should be an object")
    try:
        fault = Fault(str(value.get("fault")))
    except ValueError:
        raise FaultRuleError(f"{where}: fault should be one of {', '.join(Fault)}") from None
    is_delay = fault in {Fault.DELAY, Fault.LATE_ANSWER}
    needed = {"delay_ms"} if is_delay else {"reason"} if fault is Fault.THROTTLE else set()
    unknown = sorted(value.keys() - {"operation", "fault", "probability"} - needed)
    if unknown:
        raise FaultRuleError(f"{where}: a rule of {fault} has no {unknown[0]}")
    operation = _one_of(f"{where}: operation", value.get("operation"), OPERATIONS)
    probability = _number(f"{where}: probability", value.get("probability", 1.0), 1)
    if is_delay:
        delay_ms = _number(f"{where}: delay_ms", value.get("delay_ms"), MAX_DELAY_MS)
        return FaultRule(operation, fault, probability, delay_ms=int(delay_ms))
    if fault is Fault.THROTTLE:
        return FaultRule(operation, fault, probability, reason=_parse_reason(where, operation, value.get("reason")))
    return FaultRule(operation, fault, probability)


def _parse_reason(where: str, operation: str, value: object) -> str:
    if operation in _BATCHES:
        raise FaultRuleError(f"{where}: {operation} cannot be throttled with a reason")
    return _one_of(f"{where}: reason", value, WRITE_REASONS if operation in _WRITES else READ_REASONS)


def _one_of(what: str, value: object, known: frozenset[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise FaultRuleError(f"{what} should be one of {', '.join(sorted(known))}")
    return value


def _number(what: str, value: object, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
        raise FaultRuleError(f"{what} should be a number from 0 to {high:g}")
    return value
