"""What the layers of packages leave out, and that no function misses it."""

import gzip
import json
import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from hotpartition_cdk.bundle import CLIENT_PACKAGES
from hotpartition_cdk.pruning import DROPPED, KEPT_SERVICES, NOT_COMPILED, prune, source_only_pattern
from support.events import page_event, post_event
from support.handlers import find_function
from tools.bench.cold import build_layers, install_plain

LARGEST_SHARE = 0.65
"""Of the same packages as pip installs them; with bytecode on both sides, and on both libcurl's 17 MB, of which nothing
can be left out."""

RUN = """
import json, sys
import handler

class Context:
    function_name, memory_limit_in_mb, aws_request_id = "pruned", 1769, "1"
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:pruned"
    get_remaining_time_in_millis = staticmethod(lambda: 4_000)

try:
    response = handler.handler(json.loads(sys.argv[1]), Context())
    outcome = response.get("statusCode") or sorted(response)
except Exception as error:
    outcome = type(error).__name__
root = sys.argv[2]
files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
print(json.dumps({
    "outcome": outcome,
    "has_boto3": "boto3" in sys.modules,
    "sources": sorted(file[len(root) + 1:] for file in files if file.startswith(root) and file.endswith(".py")),
}))
"""
EVENTS = {
    "write_message": (post_event("room-1", {"sender": "ann", "body": "hello"}), 503),
    "read_messages": (page_event("room-1"), 503),
    "consume_reports": ({"time": "2026-11-21T00:00:00Z"}, None),
    "operate": ({"command": "route", "conversation_id": "room-1"}, ["error"]),
}
"""Each function's event, and what comes of it without DynamoDB and Redis; None: a run's summary."""


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

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "eu-central-1",
}


def start(code, *arguments, **environ):
    """Run code isolated from this machine's packages: what is not in the layers is not there."""
    interpreter = getattr(sys, "_base_executable", sys.executable)
    command = [interpreter, "-B", "-S", "-c", code, *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture
def packages(tmp_path):
    """Packages with something of everything that is left out, and neighbours that stay."""
    for name in (
        *(f"{name}/file.txt" if "." not in name.rpartition("/")[2] else name for name in DROPPED),
        "botocore/data/dynamodb/2012-08-10/service-2.json.gz",
        "botocore/data/dynamodb/2012-08-10/examples-1.json",
        "botocore/data/ec2/2016-11-15/service-2.json.gz",
        "botocore/data/partitions.json",
        "boto3/session.py",
        "pydantic/main.py",
        "pydantic/main.pyi",
        "boto3-1.0.dist-info/LICENSE",
        "boto3-1.0.dist-info/NOTICE",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "botocore/data/endpoints.json").write_text('{"partitions": []}')
    return tmp_path


def test_only_what_is_used_stays(packages):
    """Other services' descriptions, resources, examples and stubs go; code, the kept services and licences stay."""
    prune(packages)
    left = sorted(str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file())
    assert left == [
        "boto3-1.0.dist-info/LICENSE",
        "boto3-1.0.dist-info/NOTICE",
        "boto3/session.py",
        "botocore/data/dynamodb/2012-08-10/service-2.json.gz",
        "botocore/data/endpoints.json.gz",
        "botocore/data/partitions.json",
        "pydantic/main.py",
    ]
    assert gzip.decompress((packages / "botocore/data/endpoints.json.gz").read_bytes()) == b'{"partitions": []}'


@pytest.mark.parametrize(
    ("path", "is_compiled"),
    [
        ("redis/http", False),
        ("redis/http/http_client.py", False),
        ("dateutil/rrule.py", False),
        ("redis/http_helper.py", True),
        ("dateutil/rrule_helper.py", True),
        ("other/redis/http/x.py", True),
    ],
)
def test_the_pattern_names_whole_files_and_folders(path, is_compiled):
    """Nothing whose name only begins alike, or that lies elsewhere."""
    assert (re.search(source_only_pattern(), f"/draft/python/{path}") is None) is is_compiled


@pytest.fixture(scope="module")
def layers():
    return build_layers()


def run(function, layers, root, **settings):
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(str(folder) for folder in (find_function(function), *layers)),
        **CREDENTIALS,
        "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9",
        "HOTPARTITION_TABLE_NAME": "t",
        "HOTPARTITION_REGISTRY_HOST": "127.0.0.1",
        "HOTPARTITION_REGISTRY_PORT": "9",
        "HOTPARTITION_REGISTRY_TLS": "false",
        "POWERTOOLS_SERVICE_NAME": function,
        "POWERTOOLS_METRICS_NAMESPACE": "pruned",
        **settings,
    }
    return json.loads(start(RUN, json.dumps(EVENTS[function][0]), str(layers[-1]), **environ))


@pytest.mark.slow
@pytest.mark.parametrize(("client", "function"), [*(("curl", name) for name in EVENTS), ("boto3", "read_messages")])
def test_every_function_serves_from_what_is_left(function, client, layers, root):
    """With either client, it does what it does without DynamoDB and Redis; all it imports is compiled."""
    folders = tuple(layer / "python" for layer in layers)
    served = run(function, folders, root, HOTPARTITION_DYNAMODB_CLIENT=client)
    outcome = EVENTS[function][1]
    assert served["outcome"] == outcome if outcome else isinstance(served["outcome"], list)
    assert served["has_boto3"] is (client == "boto3")
    tag = sys.implementation.cache_tag
    assert len(served["sources"]) > 100
    compiled = [f"{(folders[-1] / name).parent}/__pycache__/{Path(name).stem}.{tag}.pyc" for name in served["sources"]]
    assert [file for file in compiled if not Path(file).is_file()] == []


@pytest.mark.slow
def test_botocore_finds_its_compressed_list_of_endpoints(layers):
    """And the services that are kept, and no other."""
    code = (
        "import botocore.session\n"
        "session = botocore.session.get_session()\n"
        "print(sorted(session.get_available_services()), len(session.get_data('endpoints')['partitions']) > 3)"
    )
    assert start(code, PYTHONPATH=str(layers[-1] / "python")) == f"{sorted(KEPT_SERVICES)} True"


def size_bytes(folder):
    """Sum up the files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.slow
def test_the_layers_are_small(layers):
    """Together they take at most two thirds of what their packages take when pip installs them, with bytecode."""
    assert sum(map(size_bytes, layers)) <= LARGEST_SHARE * size_bytes(install_plain())


@pytest.mark.slow
def test_the_lists_name_what_is_there():
    """An entry that a new release made useless is taken off the list."""
    plain = install_plain()
    assert [name for name in (*DROPPED, *NOT_COMPILED) if not (plain / name).exists()] == []


def test_an_adaptive_table_needs_nothing_but_its_own_layer(tmp_path, root):
    """With boto3: up to a put that finds neither Redis nor DynamoDB, with authentication by IAM."""
    for name in CLIENT_PACKAGES | BOTO3:
        for file in distribution(name).files:
            if ".." not in file.parts and not (tmp_path / file.parts[0]).exists():
                (tmp_path / file.parts[0]).symlink_to(distribution(name).locate_file(file.parts[0]))
    path = f"{root / 'layers/routing/python'}:{tmp_path}"
    said = start(USE, PYTHONPATH=path, **CREDENTIALS, AWS_REGION="eu-central-1", AWS_MAX_ATTEMPTS="1")
    assert said == "no response in DynamoDB's place"
