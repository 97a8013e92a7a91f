"""hotpartition: finds hot partition keys of a DynamoDB table and spreads their writes over shards.

The names below are the package's public face: the pure core, without any I/O. Jobs (`writer`, `reader`, `consumer`),
ports and adapters are imported from their own modules.
"""

from hotpartition.core.detector import Decision, Reason, ReportWindow, Thresholds, decide
from hotpartition.core.merge import KeyQuery, Page, PageMerge, PageRange
from hotpartition.core.reports import WriteReport
from hotpartition.core.route import (
    EMPTY_ROUTE,
    Generation,
    Placement,
    Route,
    candidate_keys,
    choose_placement,
    needed_keys,
    stable_hash,
)
from hotpartition.core.sampler import Crossing, LoadSampler
from hotpartition.errors import HotPartitionError

__version__ = "0.1.0"
"""The one version number: of the package, of the API's description and of the changes."""

__all__ = [
    "EMPTY_ROUTE",
    "Crossing",
    "Decision",
    "Generation",
    "HotPartitionError",
    "KeyQuery",
    "LoadSampler",
    "Page",
    "PageMerge",
    "PageRange",
    "Placement",
    "Reason",
    "ReportWindow",
    "Route",
    "Thresholds",
    "WriteReport",
    "candidate_keys",
    "choose_placement",
    "decide",
    "needed_keys",
    "stable_hash",
]
