"""Adaptive write sharding beside any DynamoDB table, as CDK constructs.

from hotpartition_cdk import HotPartition

HotPartition(self, "Hot", table=readings, functions=[ingest], readers=[show], is_joining=True)
HotPartition(self, "Hot", table=readings, functions=[ingest], detection=IN_BAND)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hotpartition_cdk.configuration import CONSUMER, IN_BAND, PRODUCTION, SMALL, Host, HotPartitionOptions, run_on
from hotpartition_cdk.errors import ConfigurationError

if TYPE_CHECKING:
    from hotpartition_cdk.hot_partition import HotPartition
    from hotpartition_cdk.journal import Journal, JournalTable
    from hotpartition_cdk.network import Network
    from hotpartition_cdk.registry import Registry

_CONSTRUCTS = {
    "HotPartition": "hot_partition",
    "Journal": "journal",
    "JournalTable": "journal",
    "Network": "network",
    "Registry": "registry",
}

__all__ = [
    "CONSUMER",
    "IN_BAND",
    "PRODUCTION",
    "SMALL",
    "ConfigurationError",
    "Host",
    "HotPartition",
    "HotPartitionOptions",
    "Journal",
    "JournalTable",
    "Network",
    "Registry",
    "run_on",
]


def __getattr__(name: str) -> object:
    """Import a construct when it is asked for: `aws_cdk` starts Node.js, which building a layer does without."""
    if name not in _CONSTRUCTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_CONSTRUCTS[name]}"), name)
