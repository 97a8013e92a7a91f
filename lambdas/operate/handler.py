"""The operations function: one JSON command in, one JSON response out. Invoked directly, by `hotpartition` or by hand.

`hotpartition/control/commands.py` describes commands and responses.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from hotpartition.control.commands import respond
from hotpartition.control.operations import Operations
from hotpartition.core.metrics import MetricName
from hotpartition.runtime.build_control import open_operations
from hotpartition.runtime.telemetry import PowertoolsTelemetry

logger = Logger()
metrics = Metrics()


@cache
def _operations() -> Operations:
    return open_operations(os.environ, PowertoolsTelemetry(logger, metrics))


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: object, context: Any) -> dict[str, Any]:
    """Carry one command out."""
    metrics.add_metric(name=MetricName.COMMANDS, unit=MetricUnit.Count, value=1)
    given = respond(event, _operations(), remaining_ms=context.get_remaining_time_in_millis())
    error = given.get("error")
    if error:
        logger.info("command refused", extra={"error": error})
    return given
