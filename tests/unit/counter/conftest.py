"""Counters on moto, in this process, with what moto does not know: tokens, refusals and lost responses."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws

from support.tables import define_table
from tools.request_tokens import RequestTokenError, RequestTokens

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

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the requests of the resource and of the client."""
        events = [self.resource.meta.client.meta.events, self.client.meta.events]
        for each in events:
            each.register("before-call.dynamodb", self._on_call)
        yield
        for each in events:
            each.unregister("before-call.dynamodb", self._on_call)

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


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Any, Any, Any]]:
    """Moto, a client that nobody watches, a resource and a client: to make them takes longer than a test."""
    with mock_aws():
        raw, client = (boto3.client("dynamodb", **OPTIONS) for _ in range(2))
        yield raw, boto3.resource("dynamodb", **OPTIONS), client


@pytest.fixture
def aws(clients: tuple[Any, Any, Any]) -> Iterator[Aws]:
    """A table named `counters`, empty."""
    made = Aws(*clients, RequestTokens(lambda: 0.0))
    made.raw.create_table(TableName="counters", **define_table("PK", "SK"))
    with made.watching():
        yield made
    for table in made.raw.list_tables()["TableNames"]:
        made.raw.delete_table(TableName=table)
