"""The smallest example: its function on moto, and how long it is."""

import json
import runpy
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from support.tables import define_table

APP = Path(__file__).resolve().parents[2] / "examples" / "events"


@pytest.fixture
def handler(aws_environment, monkeypatch):
    monkeypatch.setenv("TABLE_NAME", "events")
    with mock_aws():
        boto3.resource("dynamodb").create_table(TableName="events", **define_table("Tenant", "At"))
        yield runpy.run_path(str(APP / "function/index.py"))["handler"]


def test_what_is_stored_is_shown_newest_first(handler):
    """For the tenant that the path names."""

    def call(method, tenant, body=None):
        event = {"rawPath": f"/{tenant}", "requestContext": {"http": {"method": method}}, "body": json.dumps(body)}
        response = handler(event, None)
        return response["statusCode"], json.loads(response["body"])

    stored = [call("POST", "ann", {"what": f"step {number}"}) for number in range(3)]
    assert [status for status, _ in stored] == [201] * 3
    status, shown = call("GET", "ann")
    assert (status, sorted(item["What"] for item in shown["events"])) == (200, ["step 0", "step 1", "step 2"])
    assert [item["At"] for item in shown["events"]] == sorted((item["At"] for _, item in stored), reverse=True)
    assert call("GET", "bob") == (200, {"events": []})


def test_it_stays_small():
    """Who begins reads all of it."""
    assert sum(len(path.read_text().splitlines()) for path in APP.rglob("*.py")) <= 60
