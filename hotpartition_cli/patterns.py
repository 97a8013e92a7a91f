"""Names the pattern of write sharding for a workload, as `make simulate-patterns` measured them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hotpartition.core.route import MAX_CHOICES

KEY_LIMIT_WCU = 1_000
"""Units that one partition key takes in a second (DynamoDB Developer Guide, "Designing partition keys")."""
TRUSTED_WCU = 800.0
"""Lasting load that one key is planned for: the threshold of the stack's own detection."""


class Reads(StrEnum):
    """The reads that matter most."""

    NEWEST = "newest"
    RANGE = "range"
    TARGETED = "targeted"
    RARE = "rare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How a load is spread and read.

    `busiest_share` is the part of the load that the busiest value of the attribute has which targeted reads name;
    `is_peak_known`, whether every partition key has this load, so that N can stand in the code; `is_sorted_by_time`,
    whether the table's sort key begins with the time.
    """

    reads: Reads
    busiest_share: float = 0.0
    is_peak_known: bool = False
    is_sorted_by_time: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """A pattern: its name, the arguments of `ShardedTable` that make it, and why."""

    name: str
    arguments: str
    reasons: tuple[str, ...]


def choose_pattern(usage: Usage, wcu_per_second: float, shard_count: int) -> Choice:
    """Name the pattern for a partition key with this load at its peak and this planned shard count."""
    if not shard_count:
        return Choice("one key", "", ("one partition key serves this load: nothing needs sharding",))
    shards, why_shards = _choose_shards(usage, shard_count)
    hashed, why_hashed = _choose_hashed(usage, wcu_per_second)
    arguments = [f"shards={shards}", f"hashed={hashed}"]
    names = ["adaptive" if shards == "adaptive()" else "fixed", hashed.partition("(")[0].replace("_", " ")]
    reasons = [why_shards, why_hashed]
    if usage.reads is Reads.RANGE and not usage.is_sorted_by_time:
        arguments.append('time_buckets=TimeBuckets("hour", index=…)')
        names.append("time buckets with index shards")
        reasons.append(
            "ranges of time need an index, at twice the write units; its key has as many shards as the table's, since "
            "one key for each hour would refuse this load"
        )
    return Choice(", ".join(names), ", ".join(arguments), tuple(reasons))


def _choose_shards(usage: Usage, shard_count: int) -> tuple[str, str]:
    if usage.is_peak_known:
        why = f"every key has this load: N = {shard_count} in the code needs nothing deployed"
        return f"fixed({shard_count})", why
    return (
        "adaptive()",
        "not every key has this load, or the next peak is unknown: only hot keys are spread",
    )


def _choose_hashed(usage: Usage, wcu_per_second: float) -> tuple[str, str]:
    busiest_wcu = usage.busiest_share * wcu_per_second
    trusted_wcu = TRUSTED_WCU * (1 if usage.is_peak_known else MAX_CHOICES)
    if usage.reads is not Reads.TARGETED:
        return "by_sort_key()", "a read of one item asks one shard, and every other read merges all of them"
    if busiest_wcu <= trusted_wcu:
        places = "one shard" if usage.is_peak_known else f"up to {MAX_CHOICES} shards"
        return 'by_attribute("…")', f"a read that names the attribute asks the base key and {places}"
    why = (
        f"the attribute's busiest value has {busiest_wcu:,.0f} WCU/s, more than the {trusted_wcu:,.0f} that its shards"
    )
    return "by_sort_key()", f"{why} can be trusted with: it would be the hot key itself"
