"""The stream consumer function, started by the schedule each minute; it works until its successor does."""

from __future__ import annotations

import gc
import os
from dataclasses import asdict
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from hotpartition.control.consumer import GC_THRESHOLDS, Consumer
from hotpartition.core.metrics import MetricName
from hotpartition.runtime.build_control import open_consumer
from hotpartition.runtime.settings import Settings
from hotpartition.runtime.telemetry import PowertoolsTelemetry

STOP_MARGIN_MS = 10_000
"""How long before its timeout the function stops by itself: a pass of refused raises may take 8 s."""

logger = Logger()
metrics = Metrics()


@cache
def _settings() -> Settings:
    return Settings.from_env(os.environ, "consumer")


@cache
def _consumer() -> Consumer:
    gc.set_threshold(*GC_THRESHOLDS)
    return open_consumer(_settings(), PowertoolsTelemetry(logger, metrics))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Run until a successor has announced itself; with `{"probe": true}`, only get ready, so that a person sees it can.

    A probe reads and announces nothing: a consumer that is at work goes on.
    """
    if event.get("probe") is True:
        _consumer()
        return {"ready": True}
    summary: dict[str, Any] = run(event, context)
    return summary


@metrics.log_metrics(capture_cold_start_metric=True)
def run(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Run until a successor has announced itself, or shortly before the timeout."""
    metrics.add_metric(name=MetricName.CONSUMER_STARTED, unit=MetricUnit.Count, value=1)
    run_ms = min(_settings().run_seconds * 1000, context.get_remaining_time_in_millis() - STOP_MARGIN_MS)
    summary = asdict(_consumer().run(run_ms))
    logger.info("consumer ended", extra={"run": summary, "scheduled_at": event.get("time")})
    return summary
