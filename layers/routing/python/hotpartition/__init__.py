"""hotpartition: finds hot partition keys of a DynamoDB table and spreads their writes over shards.

The names below are the package's public face: the pure core, without any I/O. Jobs (`writer`, `reader`, `consumer`),
ports and adapters are imported from their own modules.

A name's module is imported when the name is first used: a function that reads needs no detector at its cold start.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotpartition.core.counter import Crossing, WriteCounter
    from hotpartition.core.detector import Decision, Reason, ReportWindow, Thresholds, decide
    from hotpartition.core.merge import KeyQuery, Page, PageMerge, PageRange
    from hotpartition.core.reports import Report
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

_HOMES = {
    "core.counter": ("Crossing", "WriteCounter"),
    "core.detector": ("Decision", "Reason", "ReportWindow", "Thresholds", "decide"),
    "errors": ("HotPartitionError",),
    "core.merge": ("KeyQuery", "Page", "PageMerge", "PageRange"),
    "core.reports": ("Report",),
    "core.route": (
        "EMPTY_ROUTE",
        "Generation",
        "Placement",
        "Route",
        "candidate_keys",
        "choose_placement",
        "needed_keys",
        "stable_hash",
    ),
}
"""Where each public name lives; for people and type checkers the imports above say the same."""


if not TYPE_CHECKING:  # so that a checker refuses a name that is not listed

    def __getattr__(name: str) -> object:
        for module, names in _HOMES.items():
            if name in names:
                value = getattr(import_module(f"{__name__}.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
