"""The table of readings on moto, in this process: no network."""

import json

import boto3
import pytest
import table
from moto import mock_aws

TABLE = {
    "TableName": "readings",
    "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in ("Site", "TakenAt", "SiteHour")],
    "KeySchema": [{"AttributeName": "Site", "KeyType": "HASH"}, {"AttributeName": "TakenAt", "KeyType": "RANGE"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "by-hour",
            "KeySchema": [
                {"AttributeName": "SiteHour", "KeyType": "HASH"},
                {"AttributeName": "TakenAt", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
    "BillingMode": "PAY_PER_REQUEST",
}
SOMEWHERE = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "TABLE_NAME": "readings",
    # Nobody serves there: an adaptive table works on without Redis.
    "HOTPARTITION_REGISTRY_HOST": "127.0.0.1",
    "HOTPARTITION_REGISTRY_PORT": "9",
    "HOTPARTITION_REGISTRY_TLS": "false",
}


@pytest.fixture
def pattern():
    """How the table is spread, where a test does not say it."""
    return "calculated"


@pytest.fixture
def stored(pattern, monkeypatch):
    """The plain table, while the functions use it."""
    for name, value in {**SOMEWHERE, "PATTERN": pattern}.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        yield boto3.resource("dynamodb").create_table(**TABLE)
        table.open_table.cache_clear()


@pytest.fixture
def call(stored):
    """Calls a function as API Gateway does; returns the status and the response's JSON."""
    import ingest  # noqa: PLC0415 - needs nothing of the above, and reads best beside its use
    import reads  # noqa: PLC0415

    def call(route, *, query=None, body=None, **path):
        event = {"routeKey": route, "pathParameters": path, "queryStringParameters": query}
        if body is not None:
            event["body"] = json.dumps(body)
        response = (reads if route.startswith("GET") else ingest).handler(event, None)
        return response["statusCode"], json.loads(response["body"])

    return call
