"""`page-l1`: the CPU of a newest page from the environment's memory, against the same page uncached."""

from __future__ import annotations

from hotpartition.core.metrics import MetricName
from tools.benchmarks.cached_pages import compare_pages
from tools.benchmarks.measuring import Measured
from tools.benchmarks.setup import Setup


def measure(setup: Setup) -> Measured:
    """Read every conversation in turn; all pages are kept."""
    return compare_pages(setup, MetricName.PAGES_FROM_L1, at_most=0.15)
