"""Opens the clients of DynamoDB that the setting `dynamodb_client` names.

libcurl is imported with this module, so that it is there before the first request, and in a snapshot; boto3 only when
it is chosen.
"""

from __future__ import annotations

import os
import time

from hotpartition.aws.credentials import find_credentials
from hotpartition.aws.environment import Certificates, find_certificates, find_dynamodb_endpoint, find_region
from hotpartition.core.hedging import HEDGE_CONNECTIONS, HedgePolicy
from hotpartition.dynamodb.calls import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, DynamoDBCalls
from hotpartition.dynamodb.curl import CurlCalls, Target


def open_curl(
    *,
    endpoint: str = "",
    parallel: int = 1,
    policy: HedgePolicy | None = None,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> DynamoDBCalls:
    """Open libcurl, as the environment's variables say where and with which credentials."""
    region = find_region(os.environ)
    address = find_dynamodb_endpoint(os.environ, endpoint, region)
    target = Target(
        endpoint=address,
        region=region,
        certificates=find_certificates(os.environ) if address.startswith("https") else Certificates(),
        connect_timeout_seconds=connect_timeout_seconds,
        timeout_seconds=read_timeout_seconds,
    )
    credentials = find_credentials(os.environ)
    return CurlCalls(target, credentials, timer=time.monotonic, now_seconds=time.time, parallel=parallel, policy=policy)


def open_boto3(
    *,
    parallel: int = 1,
    policy: HedgePolicy | None = None,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> DynamoDBCalls:
    """Open boto3's client, with threads for calls at the same time."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - see this module's docstring

    from hotpartition.dynamodb.boto3_client import Boto3Call, create_client  # noqa: PLC0415
    from hotpartition.dynamodb.threads import ThreadedCalls  # noqa: PLC0415

    connections = parallel + HEDGE_CONNECTIONS
    # Threads start when there is work for them: a client that only writes has none.
    threads = ThreadPoolExecutor(connections, thread_name_prefix="query")
    client = create_client(
        connections=connections,
        connect_timeout_seconds=connect_timeout_seconds,
        read_timeout_seconds=read_timeout_seconds,
        certificates=find_certificates(os.environ),
    )

    def close() -> None:
        threads.shutdown()
        client.close()

    return ThreadedCalls(Boto3Call(client), threads, parallel=parallel, policy=policy, close=close)
