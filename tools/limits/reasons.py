"""Why a request was refused, in DynamoDB's words.

Source: DynamoDB API Reference, "ThrottlingReason", and Developer Guide, "DynamoDB throttling resolution guide": sixteen
reasons, each made of what is throttled, the operation's kind and the limit. They name the table or index by its ARN,
and never the partition key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """The two kinds of throughput, which are limited independently."""

    READ = "Read"
    WRITE = "Write"


class Limit(StrEnum):
    """What can be exceeded."""

    PROVISIONED = "ProvisionedThroughputExceeded"
    """The units that a table or index in provisioned mode was given, its saved-up burst capacity included."""
    ACCOUNT = "AccountLimitExceeded"
    """The account's quota for one table or index on demand."""
    KEY_RANGE = "KeyRangeThroughputExceeded"
    """What one physical partition takes. Only this one is cured by more or other partition keys."""
    MAX_ON_DEMAND = "MaxOnDemandThroughputExceeded"
    """The maximum that the owner set for a table or index on demand."""


REASONS: Final = frozenset(
    f"{target}{kind}{limit}" for target in ("Table", "Index") for kind in Kind for limit in Limit
)
"""All sixteen."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """A refusal: DynamoDB's reason, and the ARN of the table or index that it names."""

    reason: str
    resource: str
