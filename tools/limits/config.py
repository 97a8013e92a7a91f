"""What a table or index is made with. Every default is DynamoDB's, or says that it is an assumption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

PARTITION_WCU: Final = 1000.0
PARTITION_RCU: Final = 3000.0
"""One partition's limits a second, in both capacity modes (Developer Guide, "Best practices for designing and using
partition keys")."""

FRESH_PARTITIONS: Final = 4
"""A new table on demand takes 4,000 WCU and 12,000 RCU a second (Developer Guide, "DynamoDB on-demand capacity mode",
initial throughput): four partitions' worth of either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The physical partitions of a table or index, and what one takes a second.

    They are `count` hash ranges of equal width. None: each partition key is a partition of its own, which shows a key's
    own limit and hides what sharing a partition costs.
    """

    write_limit_wcu: float = PARTITION_WCU
    read_limit_rcu: float = PARTITION_RCU
    count: int | None = FRESH_PARTITIONS

    def __post_init__(self) -> None:
        for name in ("write_limit_wcu", "read_limit_rcu", "count"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} should be a number greater than 0, not {value!r}")


FRESH: Final = Partitions()
"""Those of a new table."""
EXAMPLE: Final = "arn:aws:dynamodb:eu-central-1:123456789012:table/table"
