"""The product's thresholds, made smaller by one factor so that one machine can reach them.

DynamoDB's partition takes 1,000 write units a second; a machine that runs the whole stack in processes of its own
carries a tenth of that. So partition limit, thresholds and sampling distance shrink together and all else stays.
"""

from __future__ import annotations

from hotpartition.runtime.settings import Settings

SMALLEST_SAMPLING_DISTANCE_WCU = 1.25
"""At 1 WCU or less every write would be reported, and nothing would be sampled."""


def scale_thresholds(factor: float) -> dict[str, float]:
    """Scale the defaults of what is hot, and of what is reported; by field name."""
    consumer, distance_wcu = Settings.defaults("consumer"), Settings.defaults("write").sampling_distance_wcu
    return {
        "hot_at_once_wcu": round(consumer.hot_at_once_wcu * factor, 3),
        "hot_sustained_wcu": round(consumer.hot_sustained_wcu * factor, 3),
        "target_shard_wcu": round(consumer.target_shard_wcu * factor, 3),
        "sampling_distance_wcu": max(round(distance_wcu * factor, 3), SMALLEST_SAMPLING_DISTANCE_WCU),
    }


def scale_reads(factor: float) -> dict[str, float]:
    """Scale the defaults of what is read-hot, and of what is reported of reads; by field name."""
    consumer, reader = Settings.defaults("consumer"), Settings.defaults("read")
    return {
        "hot_at_once_rcu": round(consumer.hot_at_once_rcu * factor, 3),
        "read_sampling_distance_rcu": round(reader.read_sampling_distance_rcu * factor, 3),
    }
