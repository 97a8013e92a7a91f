"""The layer of the user's functions: with what it holds, and boto3, an adaptive table works."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution

import pytest

from hotpartition_cdk.bundle import CLIENT_PACKAGES
from infra.bundle import ROOT

BOTO3 = {"boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3"}
"""What Lambda's own runtime has."""

USE = """
import boto3
from botocore.exceptions import EndpointConnectionError
from hotpartition.table import ShardedTable, adaptive

redis = {"registry_host": "127.0.0.1", "registry_port": 9, "registry_authentication": "iam", "registry_user": "u"}
shards = adaptive(environ={}, journal_table_name="routes", registry_cache_name="c", **redis)
client = boto3.client("dynamodb", endpoint_url="http://127.0.0.1:9")
client.describe_table = lambda TableName: {"Table": {
    "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in ("PK", "SK")],
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
}}
table = ShardedTable.of_client(client, "readings", shards=shards, append_only=True, budget_ms=1)
try:
    table.put_item(Item={"PK": "a", "SK": "b"})
except EndpointConnectionError:
    print("no response in DynamoDB's place")
"""


@pytest.fixture
def packages(tmp_path):
    """The layer's packages and boto3's, as they are installed here, and no others."""
    for name in CLIENT_PACKAGES | BOTO3:
        for file in distribution(name).files:
            if ".." not in file.parts and not (tmp_path / file.parts[0]).exists():
                (tmp_path / file.parts[0]).symlink_to(distribution(name).locate_file(file.parts[0]))
    return tmp_path


def test_an_adaptive_table_needs_nothing_else(packages):
    """Up to a put that finds neither Redis nor DynamoDB, with authentication by IAM."""
    environ = {
        "PYTHONPATH": f"{ROOT / 'layers/routing/python'}:{packages}",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_REGION": "eu-west-1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    # Without this machine's packages: what is not in the folder is not there.
    command = [getattr(sys, "_base_executable", sys.executable), "-S", "-c", USE]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "no response in DynamoDB's place\n"), done.stderr
