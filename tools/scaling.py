"""The product's thresholds, made smaller by one factor so that one machine can reach them.

DynamoDB's partition takes 1,000 write units a second; a machine that runs the whole stack in processes of its own
carries a tenth of that. So partition limit, thresholds and sampling distance shrink together and all else stays.
"""

from __future__ import annotations

from hotpartition.runtime.settings import ConsumerSettings, WriterSettings

SMALLEST_SAMPLING_DISTANCE_WCU = 1.25
"""At 1 WCU or less every write would be reported, and nothing would be sampled."""


def scale_thresholds(factor: float) -> dict[str, float]:
    """Scale the defaults of what is hot, and of what is reported; by field name."""
    consumer, writer = ConsumerSettings.model_fields, WriterSettings.model_fields
    thresholds = ("hot_at_once_wcu", "hot_sustained_wcu", "target_shard_wcu")
    distance = writer["sampling_distance_wcu"].default * factor
    return {
        **{name: round(consumer[name].default * factor, 3) for name in thresholds},
        "sampling_distance_wcu": max(round(distance, 3), SMALLEST_SAMPLING_DISTANCE_WCU),
    }
