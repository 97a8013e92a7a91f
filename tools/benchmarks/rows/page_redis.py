"""`page-redis`: the CPU of a newest page from Redis, decoded, against the same page from DynamoDB."""

from __future__ import annotations

from hotpartition.core.metrics import MetricName
from tools.benchmarks.cached_pages import compare_pages
from tools.benchmarks.measuring import Measured
from tools.benchmarks.setup import Setup


def measure(setup: Setup) -> Measured:
    """Read every conversation in turn; one page only is kept, so that each is another one."""
    return compare_pages(setup, MetricName.PAGES_FROM_REDIS, at_most=0.35, page_l1_entries=1)
