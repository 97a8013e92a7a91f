"""hotpartition: finds hot partition keys of a DynamoDB table and spreads their writes over shards.

The names below are the package's public face: the pure core, without any I/O. Jobs (`writer`, `reader`, `consumer`),
ports and adapters are imported from their own modules.
"""

from hotpartition.counter import Crossing, WriteCounter
from hotpartition.detector import Decision, Reason, ReportWindow, Thresholds, decide
from hotpartition.errors import HotPartitionError
from hotpartition.items import Message
from hotpartition.merge import KeyQuery, Page, PageMerge, PageRange
from hotpartition.reports import Report
from hotpartition.route import (
    EMPTY_ROUTE,
    Generation,
    Placement,
    Route,
    candidate_keys,
    choose_placement,
    needed_keys,
    stable_hash,
)

__all__ = [
    "EMPTY_ROUTE",
    "Crossing",
    "Decision",
    "Generation",
    "HotPartitionError",
    "KeyQuery",
    "Message",
    "Page",
    "PageMerge",
    "PageRange",
    "Placement",
    "Reason",
    "Report",
    "ReportWindow",
    "Route",
    "Thresholds",
    "WriteCounter",
    "candidate_keys",
    "choose_placement",
    "decide",
    "needed_keys",
    "stable_hash",
]
