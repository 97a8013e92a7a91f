"""`page-after-rush`: what the newest page costs after a rush of 4,000 WCU/s, against the shards of the older rule."""

from __future__ import annotations

from hotpartition.core.detector import size_route
from hotpartition_cli.plan import default_thresholds
from hotpartition_messages.page_costs import Load, read_pages
from tools.benchmarks.measuring import Bar, Measured, Samples
from tools.benchmarks.setup import Setup

RUSH = Load(messages_per_second=4_000, item_bytes=1_024, page=50)
OLDER_SHARD_COUNT = 54
"""What the rule of decision 19 gave this rush: a message had one place, so shards were made small enough for any."""
MOST = 0.45


def measure(_: Setup) -> Measured:
    """Count queries and read units of both, as the read function's merge asks. Nothing is timed."""
    shard_count = size_route(RUSH.messages_per_second, default_thresholds())
    ours, older = read_pages(shard_count, RUSH), read_pages(OLDER_SHARD_COUNT, RUSH)
    return Measured(
        unit="RCU a page",
        rival=f"N = {OLDER_SHARD_COUNT}, the older rule's",
        samples=Samples((ours.rcu_eventual,), (older.rcu_eventual,)),
        details={
            "shard_count": shard_count,
            "queries": ours.queries,
            "rival_queries": older.queries,
            "queries_ratio": ours.queries / older.queries,
        },
        bars=(Bar("ratio", at_most=MOST), Bar("queries_ratio", at_most=MOST)),
        conditions="eventually consistent; newest 50 messages of 1 KiB, all on shards; mean of 10 pages",
    )
