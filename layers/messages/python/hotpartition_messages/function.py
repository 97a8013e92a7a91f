"""What both HTTP functions begin with: logs, metrics, and the handler that serves a request by their routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Telemetry
from hotpartition.runtime.telemetry import PowertoolsTelemetry
from hotpartition_messages.api import Event, Response, Serve, respond


def build_handler(open_routes: Callable[[Telemetry], Mapping[str, Serve]]) -> Serve:
    """Build a function's handler; the first request opens its routes: a snapshot must share no random numbers."""
    metrics = Metrics()
    telemetry = PowertoolsTelemetry(Logger(), metrics)
    routes = cache(lambda: open_routes(telemetry))

    @metrics.log_metrics(capture_cold_start_metric=True)
    def handler(event: Event, context: Any) -> Response:
        """Serve one request."""
        # Also refused ones: Powertools warns of an invocation that counts nothing.
        telemetry.count(MetricName.REQUESTS)
        return respond(routes(), event, context)

    serve: Serve = handler
    return serve
