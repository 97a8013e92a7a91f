"""What a table is made with. Every default is DynamoDB's, or says that it is an assumption."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Final

PARTITION_WCU: Final = 1000.0
PARTITION_RCU: Final = 3000.0
"""One partition's limits a second, in both capacity modes (Developer Guide, "Best practices for designing and using
partition keys")."""

FRESH_WCU: Final = 4000.0
FRESH_RCU: Final = 12_000.0
"""What a new table on demand takes a second (Developer Guide, "DynamoDB on-demand capacity mode", initial throughput):
four partitions' worth of either."""

TABLE_QUOTA_UNITS: Final = 40_000.0
"""The account's quota for one table or index on demand, reads and writes each (Developer Guide, "Quotas")."""

DEFAULT_ARN: Final = "arn:aws:dynamodb:eu-central-1:123456789012:table/table"


def _require_positive(values: object, *names: str) -> None:
    for name in names:
        value = getattr(values, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} should be a number greater than 0, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDemand:
    """On-demand mode, in units a second.

    A table on demand takes what its partitions take, up to the account's quota for one table (`quota_*`, None: raised
    out of sight). `warm_*` is the warm throughput it is created with (Developer Guide, "Understanding DynamoDB warm
    throughput"); it decides the number of partitions.
    """

    warm_wcu: float = FRESH_WCU
    warm_rcu: float = FRESH_RCU
    quota_wcu: float | None = TABLE_QUOTA_UNITS
    quota_rcu: float | None = TABLE_QUOTA_UNITS

    def __post_init__(self) -> None:
        _require_positive(self, *(each.name for each in fields(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The physical partitions of a table or index, and what one takes a second.

    They are hash ranges of equal width, `count` of them, or as many as the throughput asks for. With `is_key_apart`
    there are no ranges: each partition key is a partition of its own, which shows a key's own limit and hides what
    sharing a partition costs.
    """

    write_limit_wcu: float = PARTITION_WCU
    read_limit_rcu: float = PARTITION_RCU
    count: int | None = None
    is_key_apart: bool = False

    def __post_init__(self) -> None:
        _require_positive(self, "write_limit_wcu", "read_limit_rcu", "count")

    def count_for(self, wcu: float, rcu: float) -> int:
        """Return how many partitions carry this throughput, evenly spread."""
        return self.count or max(math.ceil(wcu / self.write_limit_wcu), math.ceil(rcu / self.read_limit_rcu))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """A table."""

    arn: str = DEFAULT_ARN
    throughput: OnDemand = field(default_factory=OnDemand)
    partitions: Partitions = field(default_factory=Partitions)
