"""Counters on moto, in this process, with what moto does not know: tokens, refusals and lost responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws

from tools.request_tokens import RequestTokenError, RequestTokens

SCHEMA: dict[str, Any] = {
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
    "BillingMode": "PAY_PER_REQUEST",
}
OPTIONS: dict[str, Any] = {
    "region_name": "eu-central-1",
    "aws_access_key_id": "testing",
    "aws_secret_access_key": "testing",
    "config": Config(retries={"total_max_attempts": 1}),
}


@dataclass
class Aws:
    """A table, a resource and a client of it, and what happens to their requests."""

    raw: Any
    resource: Any
    client: Any
    tokens: RequestTokens
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Operation and partition key of each write, in order."""
    refuses: Callable[[str], str | None] = lambda _: None
    """Says by partition key whether a write is refused, and why."""
    loses: Callable[[str], bool] = lambda _: False

    @property
    def items(self) -> list[dict[str, Any]]:
        return self.raw.scan(TableName="counters")["Items"]

    def watch(self, client: Any) -> None:
        client.meta.events.register("before-call.dynamodb", self._on_call)

    def _on_call(self, model: Any, params: Any, **_: Any) -> Any:
        operation, request = model.name, json.loads(params["body"])
        if operation not in {"UpdateItem", "TransactWriteItems"}:
            return None
        action = request if operation == "UpdateItem" else request["TransactItems"][0]["Update"]
        place = action["Key"]["PK"]["S"]
        self.sent.append((operation, place))
        response = self._happen(operation, request, place)
        if self.loses(place):
            raise ReadTimeoutError(endpoint_url="test")
        return response

    def _happen(self, operation: str, request: Any, place: str) -> Any:
        try:
            is_new = self.tokens.begin(request)
        except RequestTokenError as error:
            return _refusal(error.code)
        if not is_new:
            return _success({})
        reason = self.refuses(place)
        self.tokens.end(request, is_done=reason is None)
        if reason is not None and operation == "UpdateItem":
            return _refusal("ThrottlingException", throttlingReasons=[{"reason": reason, "resource": "arn"}])
        if reason is not None:
            return _refusal("TransactionCanceledException", CancellationReasons=[{"Code": "ThrottlingError"}])
        try:
            return _success(self.raw._make_api_call(operation, request))
        except ClientError as error:
            return SimpleNamespace(status_code=400), dict(error.response)


def _success(response: Any) -> Any:
    return SimpleNamespace(status_code=200), response


def _refusal(code: str, **facts: Any) -> Any:
    error = {"Error": {"Code": code, "Message": "test"}, "ResponseMetadata": {"HTTPStatusCode": 400}, **facts}
    return SimpleNamespace(status_code=400), error


@pytest.fixture
def aws() -> Iterator[Aws]:
    """A table named `counters`."""
    with mock_aws():
        raw, client = (boto3.client("dynamodb", **OPTIONS) for _ in range(2))
        resource = boto3.resource("dynamodb", **OPTIONS)
        raw.create_table(TableName="counters", **SCHEMA)
        made = Aws(raw, resource, client, RequestTokens(lambda: 0.0))
        made.watch(resource.meta.client)
        made.watch(client)
        yield made
