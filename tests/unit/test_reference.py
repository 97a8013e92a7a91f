"""The reference: every public name of the library has an example in its docstring, and it runs."""

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
