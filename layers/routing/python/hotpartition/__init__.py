"""hotpartition: finds hot partition keys of a DynamoDB table and spreads their writes over shards.

    table = ShardedTable(boto3.resource("dynamodb").Table("readings"), shards=fixed(16))

The names below are what users of a table of their own need. Each is imported when it is first asked for: tables and
counters need boto3, and the Lambda functions of the stack start without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotpartition.core.errors import HotPartitionError
    from hotpartition.table import (
        CoalescingCounter,
        ReadCache,
        ShardedCounter,
        ShardedIndex,
        ShardedTable,
        TimeBuckets,
        adaptive,
        at_random,
        by_attribute,
        by_sort_key,
        curl,
        fixed,
        guard,
        in_band,
    )
    from hotpartition.table.throttles import log_throttles

__version__ = "0.1.0"
"""The one version number: of the package, of the API's description and of the changes."""

__all__ = [
    "CoalescingCounter",
    "HotPartitionError",
    "ReadCache",
    "ShardedCounter",
    "ShardedIndex",
    "ShardedTable",
    "TimeBuckets",
    "adaptive",
    "at_random",
    "by_attribute",
    "by_sort_key",
    "curl",
    "fixed",
    "guard",
    "in_band",
    "log_throttles",
]

_HOMES = dict.fromkeys(__all__, "hotpartition.table") | {
    "HotPartitionError": "hotpartition.core.errors",
    "log_throttles": "hotpartition.table.throttles",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
