"""Opens the client of DynamoDB that the settings name."""

from __future__ import annotations

from hotpartition.core.hedging import HedgePolicy
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.clients import open_boto3, open_curl
from hotpartition.runtime.settings import QuerySettings, StoreSettings


def open_calls(store: StoreSettings, queries: QuerySettings | None = None) -> DynamoDBCalls:
    """Open the client of DynamoDB, which connects with its first request; rounds of queries need `queries`."""
    parallel, quantile = (queries.fan_out_threads, queries.hedge_quantile) if queries else (1, 0.0)
    policy = HedgePolicy(quantile=quantile) if quantile else None
    if store.dynamodb_client == "curl":
        return open_curl(endpoint=store.dynamodb_endpoint, parallel=parallel, policy=policy)
    return open_boto3(parallel=parallel, policy=policy)
