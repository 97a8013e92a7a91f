"""DynamoDB through boto3: the client `boto3`.

It is imported only where it is chosen: it takes as long to import as all the rest of a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as NoConnectionError

from hotpartition.core.access import Certificates
from hotpartition.core.errors import CredentialsError, StoreUnavailableError
from hotpartition.dynamodb.calls import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, Response, build_error

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NO_RESPONSE = (HTTPClientError, NoConnectionError, IncompleteReadError, CredentialRetrievalError)
"""Timeouts are in the first (responses) and the second (connections); refused connections only in the second."""
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError)


def create_client(
    *,
    connections: int,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
    certificates: Certificates | None = None,
) -> DynamoDBClient:
    """Create boto3's client as the request path needs it: one attempt, short timeouts, a connection for each thread.

    Retries are ours (`backoff.py`): the SDK's own wait for about a second after a throttle.
    """
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=connect_timeout_seconds,
        read_timeout=read_timeout_seconds,
        max_pool_connections=connections,
        tcp_keepalive=True,
    )
    verify = (certificates.file or certificates.folder) if certificates else None
    return boto3.client("dynamodb", config=config, verify=verify)


class Boto3Call:
    """Sends one request through boto3's client, for `ThreadedCalls`."""

    def __init__(self, client: DynamoDBClient) -> None:
        self._client = client

    def __call__(self, operation: str, request: Mapping[str, Any]) -> Response:
        """Implement `DynamoDBCalls.call`. The SDK's own errors about a request are bugs, and are raised unchanged."""
        send = getattr(self._client, xform_name(operation))
        try:
            response: Response = send(**request)
        except ClientError as error:
            refusal: Any = error.response
            facts = refusal["Error"]
            status = refusal["ResponseMetadata"]["HTTPStatusCode"]
            raise build_error(
                facts["Code"], status=status, explanation=facts.get("Message", ""), facts=refusal
            ) from error
        except NO_RESPONSE as error:
            raise StoreUnavailableError(f"DynamoDB did not respond ({type(error).__name__})") from error
        except _NO_CREDENTIALS as error:
            raise CredentialsError(str(error)) from error
        return response
