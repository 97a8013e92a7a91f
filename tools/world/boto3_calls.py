"""Takes boto3's requests before they leave: they go to a function in place of the network."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

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
        return SimpleNamespace(status_code=200), {"ResponseMetadata": metadata, **_decoded(response)}

    client.meta.events.register("before-call.dynamodb", on_call)
    return lambda: client.meta.events.unregister("before-call.dynamodb", on_call)


def error_response(error: DynamoDBError) -> dict[str, Any]:
    """Build what botocore makes of a refused request."""
    stated = {"Code": error.code, "Message": error.message}
    modelled = _MESSAGES.get(error.code)
    metadata = {"HTTPStatusCode": error.status, "HTTPHeaders": {}, "RetryAttempts": 0}
    message = {modelled: error.message} if modelled else {}
    return {"Error": stated, "ResponseMetadata": metadata, **message, **_decoded(error.facts)}


def _decoded(value: Any) -> Any:
    """Turn binary values, which are base64 in JSON, into bytes."""
    match value:
        case {"B": str(text)} if len(value) == 1:
            return {"B": b64decode(text)}
        case {"BS": list(texts)} if len(value) == 1:
            return {"BS": [b64decode(text) for text in texts]}
        case dict():
            return {name: _decoded(each) for name, each in value.items()}
        case list():
            return [_decoded(each) for each in value]
    return value
