"""Takes boto3's requests before they leave: they go to a function in place of the network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from hotpartition.dynamodb.curl_table import decode_binary
from tools.world.dynamodb import DynamoDBError

Send = Callable[[str, dict[str, Any]], Mapping[str, Any]]
"""Sends an operation with its request in DynamoDB's JSON, and returns the response."""
_MESSAGES: Mapping[str, str] = {
    "ConditionalCheckFailedException": "message",
    "ProvisionedThroughputExceededException": "message",
    "ResourceNotFoundException": "message",
    "TransactionCanceledException": "Message",
}
"""The member of an error in botocore's model that holds its message, too."""


def take_calls(client: Any, send: Send) -> Callable[[], None]:
    """Have a client's requests go to `send`; return what undoes that."""

    def on_call(model: Any, params: Mapping[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        try:
            response = send(model.name, json.loads(params["body"]))
        except DynamoDBError as error:
            return SimpleNamespace(status_code=error.status), error_response(error)
        metadata = {"HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}
        return SimpleNamespace(status_code=200), {"ResponseMetadata": metadata, **decode_binary(response)}

    client.meta.events.register("before-call.dynamodb", on_call)
    return lambda: client.meta.events.unregister("before-call.dynamodb", on_call)


def error_response(error: DynamoDBError) -> dict[str, Any]:
    """Build what botocore makes of a refused request."""
    stated = {"Code": error.code, "Message": error.message}
    modelled = _MESSAGES.get(error.code)
    metadata = {"HTTPStatusCode": error.status, "HTTPHeaders": {}, "RetryAttempts": 0}
    message = {modelled: error.message} if modelled else {}
    return {"Error": stated, "ResponseMetadata": metadata, **message, **decode_binary(error.facts)}
