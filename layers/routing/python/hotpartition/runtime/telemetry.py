"""Metrics as CloudWatch's embedded metric format and log lines as JSON, through Powertools.

Metric names are listed in `docs/operations.md`; a name is used in one sense everywhere.
"""

from __future__ import annotations

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit


class PowertoolsTelemetry:
    """`Telemetry` on Powertools."""

    def __init__(self, logger: Logger, metrics: Metrics) -> None:
        self._logger = logger
        self._metrics = metrics

    def count(self, metric: str, value: float = 1.0) -> None:
        """Implement `Telemetry.count`."""
        self._metrics.add_metric(name=metric, unit=MetricUnit.Count, value=value)

    def event(self, message: str, **facts: object) -> None:
        """Implement `Telemetry.event`."""
        self._logger.info(message, extra=facts)

    def flush(self) -> None:
        """Implement `Telemetry.flush`."""
        if self._metrics.metric_set:
            self._metrics.flush_metrics()
