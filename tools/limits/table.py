"""A table, and requests that touch several partitions at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.limits.buckets import Bucket
from tools.limits.config import TableConfig
from tools.limits.resource import Resource
from tools.limits.throttles import Kind, Throttle


@dataclass(frozen=True, slots=True)
class Demand:
    """Units that one request asks of one partition key of a table or index."""

    resource: Resource
    kind: Kind
    key: str
    units: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which of several demands was refused, and why."""

    demand: Demand
    throttle: Throttle


def admit(demands: Sequence[Demand], now: float) -> Refusal | None:
    """Take all that is demanded, or nothing, and then say what refused.

    Several demands on one partition are one demand of their sum. `now` is in seconds.
    """
    wanted: dict[Bucket, tuple[float, Demand]] = {}
    for demand in demands:
        for bucket in demand.resource.buckets(demand.kind, demand.key, now):
            units, first = wanted.get(bucket, (0.0, demand))
            wanted[bucket] = (units + demand.units, first)
    for bucket, (units, demand) in wanted.items():
        if bucket.lacks(units, now):
            return Refusal(demand, demand.resource.note_refusal(bucket))
    for bucket, (units, _) in wanted.items():
        bucket.take(units, now)
    return None


class Table(Resource):
    """A table: throughput of its own. See the package for what it models."""

    def __init__(self, config: TableConfig) -> None:
        super().__init__(config.arn, config.throughput, config.partitions)
        self.config = config
