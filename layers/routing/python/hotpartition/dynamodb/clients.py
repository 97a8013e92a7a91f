"""Opens the client of DynamoDB that the setting `dynamodb_client` names.

The lean one is imported with this module, so that it is there before the first request, and in a snapshot; boto3 only
when it is chosen.
"""

from __future__ import annotations

import os
import time
from typing import Final

from hotpartition.aws.credentials import find_credentials
from hotpartition.aws.endpoints import find_dynamodb_endpoint, find_region
from hotpartition.aws.signing import JsonRequestSigner
from hotpartition.core.hedging import HEDGE_CONNECTIONS, HedgePolicy
from hotpartition.dynamodb.calls import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, DynamoDBCalls
from hotpartition.dynamodb.http import TARGET, HttpCalls
from hotpartition.dynamodb.http_connections import ConnectionPool, Timeouts
from hotpartition.runtime.settings import CommonSettings

LEAN: Final = "lean"


def open_dynamodb(settings: CommonSettings, *, parallel: int = 1, hedge_quantile: float = 0.0) -> DynamoDBCalls:
    """Open a client; it connects with its first request.

    Args:
        settings: say which one.
        parallel: how many calls of a round run at the same time.
        hedge_quantile: as `HedgePolicy` takes it; 0 for never.
    """
    policy = HedgePolicy(quantile=hedge_quantile) if hedge_quantile else None
    if settings.dynamodb_client == LEAN:
        return open_lean(parallel=parallel, policy=policy)
    return open_boto3(parallel=parallel, policy=policy)


def open_lean(
    *,
    parallel: int = 1,
    policy: HedgePolicy | None = None,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> DynamoDBCalls:
    """Open the client of this project, as the environment's variables say where and with which credentials."""
    region = find_region(os.environ)
    endpoint = find_dynamodb_endpoint(os.environ, region)
    pool = ConnectionPool(
        endpoint,
        size=parallel + HEDGE_CONNECTIONS,
        timeouts=Timeouts(connect=connect_timeout_seconds, answer=read_timeout_seconds),
        timer=time.monotonic,
        now_seconds=time.time,
        ca_file=os.environ.get("AWS_CA_BUNDLE", ""),
    )
    signer = JsonRequestSigner(
        host=endpoint.header, region=region, service="dynamodb", target=TARGET, path=endpoint.path
    )
    return HttpCalls(
        pool,
        signer,
        find_credentials(os.environ, time.time),
        timer=time.monotonic,
        now_seconds=time.time,
        parallel=parallel,
        policy=policy,
    )


def open_boto3(
    *,
    parallel: int = 1,
    policy: HedgePolicy | None = None,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> DynamoDBCalls:
    """Open boto3's client, with threads for what runs at the same time."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - see this module's docstring

    from hotpartition.core.hedging import Hedger  # noqa: PLC0415
    from hotpartition.dynamodb.boto3_client import Boto3Call, create_client  # noqa: PLC0415
    from hotpartition.dynamodb.threads import ThreadedCalls  # noqa: PLC0415

    # Threads start when there is work for them: a client that only writes has none.
    queries = ThreadPoolExecutor(parallel, thread_name_prefix="query")
    hedges = ThreadPoolExecutor(HEDGE_CONNECTIONS, thread_name_prefix="hedge")
    client = create_client(
        connections=parallel + HEDGE_CONNECTIONS,
        connect_timeout_seconds=connect_timeout_seconds,
        read_timeout_seconds=read_timeout_seconds,
    )

    def close() -> None:
        queries.shutdown()
        hedges.shutdown()
        client.close()

    hedger = None if policy is None else Hedger(policy, hedges, time.monotonic)
    return ThreadedCalls(Boto3Call(client), queries, hedger=hedger, close=close)
