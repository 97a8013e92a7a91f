"""Counters on moto, in this process, with what moto does not know: tokens and lost responses."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from tools.request_tokens import RequestTokenError, RequestTokens


@dataclass
class Aws:
    """A table, a resource and a client of it, what happens to their writes, and a client whose writes just happen."""

    raw: Any
    resource: Any
    client: Any
    tokens: RequestTokens
    sent: int = 0
    """How many writes were sent."""
    loses: Callable[[], bool] = lambda: False
    """Says whether the response of a write is lost."""

    @property
    def items(self) -> list[dict[str, Any]]:
        return self.raw.scan(TableName="counters")["Items"]

    def on_call(self, model: Any, params: Any, **_: Any) -> Any:
        """Carry out a write in place of the client that sends it."""
        if model.name not in {"UpdateItem", "TransactWriteItems"}:
            return None
        self.sent += 1
        response = self._happen(model.name, json.loads(params["body"]))
        if self.loses():
            raise ReadTimeoutError(endpoint_url="test")
        return SimpleNamespace(status_code=200), response

    def _happen(self, operation: str, request: Any) -> Any:
        try:
            is_new = self.tokens.begin(request)
        except RequestTokenError as error:
            refusal = {"Code": error.code, "Message": "test"}
            facts: Any = {"Error": refusal, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(facts, operation) from error
        if not is_new:
            return {}
        self.tokens.end(request, is_done=True)
        return self.raw._make_api_call(operation, request)


@pytest.fixture(scope="module")
def clients(dynamodb: Any) -> list[Any]:
    """Two clients: to make them takes longer than a test."""
    return [boto3.client("dynamodb", config=dynamodb.meta.client.meta.config) for _ in range(2)]


@pytest.fixture
def aws(dynamodb: Any, clients: list[Any], create: Callable[..., Any]) -> Iterator[Aws]:
    """A table named `counters`, empty."""
    raw, client = clients
    made = Aws(raw, dynamodb, client, RequestTokens(lambda: 0.0))
    create("counters", "PK", "SK")
    events = [each.meta.events for each in (dynamodb.meta.client, client)]
    for each in events:
        each.register("before-call.dynamodb", made.on_call)
    yield made
    for each in events:
        each.unregister("before-call.dynamodb", made.on_call)
