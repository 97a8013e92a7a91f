"""Opens the client of DynamoDB that the settings name."""

from __future__ import annotations

from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.runtime.settings import QuerySettings, StoreSettings


def open_calls(store: StoreSettings, queries: QuerySettings | None = None) -> DynamoDBCalls:
    """Open the client of DynamoDB; a reader's rounds of queries need `queries`."""
    return open_dynamodb(
        store.dynamodb_client,
        endpoint=store.dynamodb_endpoint,
        parallel=queries.fan_out_threads if queries else 1,
        hedge_quantile=queries.hedge_quantile if queries else 0.0,
    )
