"""HTTP: from API Gateway's events to responses."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from botocore.exceptions import ClientError, HTTPClientError
from readings import BadRequestError

Event = Mapping[str, Any]
Serve = Callable[[Event], tuple[int, dict[str, Any]]]

LATER = frozenset(
    {
        *("ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"),
        *("InternalServerError", "ServiceUnavailable"),
    }
)
"""DynamoDB's errors that pass."""


def respond(routes: Mapping[str, Serve], event: Event) -> dict[str, Any]:
    """Serve a request by its route."""
    headers = {"content-type": "application/json"}
    try:
        status, document = routes[event["routeKey"]](event)
    except BadRequestError as error:
        status, document = 400, {"message": str(error)}
    except (ClientError, HTTPClientError) as error:
        if isinstance(error, ClientError) and error.response["Error"]["Code"] not in LATER:
            raise
        # The same reading sent again is the same item, so repeating is safe.
        status, document = 503, {"message": "the table is busy: send the same request again"}
        headers["retry-after"] = "1"
    return {"statusCode": status, "headers": headers, "body": json.dumps(document)}


def read_body(event: Event) -> Any:
    """Read a request's JSON; numbers keep their digits."""
    body = event.get("body") or ""
    try:
        text = base64.b64decode(body).decode() if event.get("isBase64Encoded") else body
        return json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise BadRequestError(f"the body should be JSON: {error}") from error
