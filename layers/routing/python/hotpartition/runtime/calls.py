"""Opens the client of DynamoDB that the settings name."""

from __future__ import annotations

from hotpartition.core.hedging import HedgePolicy
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.clients import open_boto3, open_curl
from hotpartition.runtime.settings import Settings


def open_calls(settings: Settings, *, sends_rounds: bool = False) -> DynamoDBCalls:
    """Open the client of DynamoDB, which connects with its first request.

    `sends_rounds`: whether queries are sent several at a time.
    """
    parallel, quantile = (settings.fan_out_threads, settings.hedge_quantile) if sends_rounds else (1, 0.0)
    policy = HedgePolicy(quantile=quantile) if quantile else None
    if settings.dynamodb_client == "curl":
        return open_curl(endpoint=settings.dynamodb_endpoint, parallel=parallel, policy=policy)
    return open_boto3(parallel=parallel, policy=policy)
