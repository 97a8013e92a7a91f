"""DynamoDB in this process: no network."""

import boto3
import pytest
from moto import mock_aws

from support.own_tables import create


@pytest.fixture
def client(monkeypatch):
    """DynamoDB with a table of each kind."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "HOTPARTITION_JOURNAL_TABLE_NAME"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        client = boto3.client("dynamodb")
        create(client, "readings", PK="S", SK="S")
        create(client, "counted", PK="S", at="N")
        create(client, "routes", collection="S")
        create(client, "single", PK="S")
        yield client
        # Where another test's moto runs in this process, tables stay.
        for name in client.list_tables()["TableNames"]:
            client.delete_table(TableName=name)
