"""Counters on moto, in this process, with what moto does not know: tokens and lost responses."""

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
    loses: Callable[[str], bool] = lambda _: False
    """Says by partition key whether the response of a write is lost."""

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
        response = self._happen(operation, request)
        if self.loses(place):
            raise ReadTimeoutError(endpoint_url="test")
        return response

    def _happen(self, operation: str, request: Any) -> Any:
        try:
            is_new = self.tokens.begin(request)
        except RequestTokenError as error:
            refusal = {"Code": error.code, "Message": "test"}
            return SimpleNamespace(status_code=400), {
                "Error": refusal,
                "ResponseMetadata": {"HTTPStatusCode": 400},
            }
        if not is_new:
            return SimpleNamespace(status_code=200), {}
        self.tokens.end(request, is_done=True)
        try:
            return SimpleNamespace(status_code=200), self.raw._make_api_call(operation, request)
        except ClientError as error:
            return SimpleNamespace(status_code=400), dict(error.response)


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
