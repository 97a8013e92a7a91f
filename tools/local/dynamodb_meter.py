"""Applies the partition model to requests and keeps what the demo and the tests look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.local.partitions import Demand, PartitionKey, PartitionModel, Throttle, Timeline
from tools.partition_model import Kind

_SERVICE = "com.amazonaws.dynamodb.v20120810"
_THROTTLING_TYPE = "com.amazon.coral.availability#ThrottlingException"
_THROTTLING_MESSAGE = (
    "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or "
    "index so please try again shortly. If exceptions persist, check if you have a hot key: "
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"
)
"""Of tables on demand; provisioned ones send ProvisionedThroughputExceededException (public error logs)."""


class ServiceError(Exception):
    """A response of DynamoDB that is not a success: `body` goes to the client as it is."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(body.get("message", ""))
        self.status = status
        self.body = body

    @property
    def code(self) -> str:
        """The exception's short name."""
        return str(self.body.get("__type", "")).rpartition("#")[2]


def service_error(code: str, message: str, *, status: int = 400, **members: object) -> ServiceError:
    """Build an error of DynamoDB's own, with further members if it has any."""
    return ServiceError(status, {"__type": f"{_SERVICE}#{code}", "message": message, **members})


def throttling_error(throttles: Iterable[Throttle]) -> ServiceError:
    """Build the error of a request that was refused; without throttles it names no reason (BatchWriteItem)."""
    return throttling_error_for((throttle.reason, throttle.key.resource) for throttle in throttles)


def throttling_error_for(refusals: Iterable[tuple[str, str]]) -> ServiceError:
    """Build the same error from pairs of a reason and the ARN of the table or index."""
    body: dict[str, Any] = {"__type": _THROTTLING_TYPE, "message": _THROTTLING_MESSAGE}
    reasons = [{"reason": reason, "resource": resource} for reason, resource in refusals]
    unique = [reason for position, reason in enumerate(reasons) if reason not in reasons[:position]]
    if unique:
        body["throttlingReasons"] = unique
    return ServiceError(400, body)


def transaction_throttle() -> dict[str, str]:
    """Build the reason of a transaction that was cancelled for its throughput."""
    return {"Code": "ThrottlingError", "Message": _THROTTLING_MESSAGE}


@dataclass(slots=True)
class Meter:
    """Admits, charges and records. `clock` returns seconds that never go back, `wall_ms` Unix time for the timeline."""

    model: PartitionModel
    timeline: Timeline
    clock: Callable[[], float]
    wall_ms: Callable[[], int]
    requests: Counter[str] = field(default_factory=Counter)

    def admit_write(self, demands: Sequence[Demand]) -> Throttle | None:
        """Take the units of a write, or record and return the refusal."""
        throttle = self.model.admit(demands, self.clock())
        if throttle is not None:
            self._each_table_key(demands, self.timeline.throttled_write)
        return throttle

    def settle_write(self, admitted: Sequence[Demand], actual: Sequence[Demand]) -> None:
        """Charge what a write really cost beyond what was taken when it was admitted, and record it."""
        now = self.clock()
        for demand in actual:
            self.model.charge(demand, now)
        for demand in admitted:
            self.model.charge(Demand(demand.key, demand.kind, -demand.units), now)
        self._each_table_key(actual, self.timeline.write)

    def refuse_read(self, key: PartitionKey) -> Throttle | None:
        """Say whether a read of the key is refused, and record it if so."""
        throttle = self.model.refuses(key, Kind.READ, self.clock())
        if throttle is not None and not key.is_index:
            self.timeline.throttled_read(key, self.wall_ms())
        return throttle

    def charge_read(self, key: PartitionKey, units: float) -> None:
        """Charge and record a read."""
        self.model.charge(Demand(key, Kind.READ, units), self.clock())
        if not key.is_index:
            self.timeline.read(key, units, self.wall_ms())

    def _each_table_key(self, demands: Iterable[Demand], record: Callable[[PartitionKey, float, int], None]) -> None:
        now_ms = self.wall_ms()
        for demand in demands:
            if not demand.key.is_index:
                record(demand.key, demand.units, now_ms)
