"""Examples run: of every public name of the library in its docstring, and the smallest one on moto."""

import json
import runpy
from pathlib import Path

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from moto import mock_aws

import hotpartition
from support.documents import run_examples
from support.tables import define_table
from tools.site import list_public


@pytest.fixture
def names(aws_environment):
    """What examples may use: tables on moto, and all public names."""
    keys = define_table("PK", "SK", indexes={"by-time": ("Hour", "SK")})
    with mock_aws():
        tables = [boto3.resource("dynamodb").create_table(TableName=name, **keys) for name in ("readings", "counters")]
        public = {name: getattr(hotpartition, name) for name in hotpartition.__all__}
        record = {"dynamodb": {"NewImage": {"PK": {"S": "room-1#3"}, "SK": {"S": "0001"}}}}  # of a stream
        yield {"record": record, "boto3": boto3, "Key": Key, "Attr": Attr, "table": tables[0], **public}
        for table in tables:  # moto forgets nothing while other tests of this process use it
            table.delete()


@pytest.mark.parametrize("name", hotpartition.__all__)
def test_every_public_name_has_an_example_that_runs(name, names):
    """Of the name itself; those of its methods run after it."""
    assert run_examples("hotpartition", name, names) > 0


def test_the_reference_lists_the_public_names():
    """It reads them without importing the package; whoever imports it finds them."""
    assert sorted(list_public("hotpartition")) == sorted(hotpartition.__all__)
    assert set(hotpartition.__all__) <= set(dir(hotpartition))


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
