"""The layers: what is in them, the same bytes each time, and that functions serve from them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path

import boto3
import pytest
from packaging.markers import Marker

from hotpartition_cdk.bundle import (
    CLIENT_PACKAGES,
    LOCK,
    DependencyBundle,
    Interpreter,
    SourceBundle,
    UvError,
    find_interpreter,
    read_digest,
)
from hotpartition_cdk.configuration import TESTED_PYTHON, LayerTarget
from hotpartition_cdk.errors import ConfigurationError
from infra.bundle import ROOT, main
from infra.environments import DEV, PROD
from support.events import find_function, page_event, post_event
from support.servers import DynamoDBServer, running
from support.tables import define_table
from tools.bench.cold import build_layers

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"

TARGET = LayerTarget(python_version="3.13", architecture="arm64", platform="aarch64-manylinux_2_28")
INSTALLED = (
    "bin/jp.py",
    "pkg/__init__.py",
    "pkg/__pycache__/__init__.cpython-311.pyc",
    ".lock",
    "pkg-1.0.dist-info/METADATA",
    "pkg-1.0.dist-info/RECORD",
    "pkg-1.0.dist-info/INSTALLER",
)


@dataclass
class FakeUv:
    """Installs one package, or fails after half of it."""

    text: str = "text"
    fails: bool = False
    calls: list[list[str]] = field(default_factory=list)

    def __call__(self, arguments):
        self.calls.append(list(arguments))
        target = Path(arguments[arguments.index("--target") + 1])
        for name in INSTALLED[: 2 if self.fails else None]:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.text)
            file.chmod(0o600)
        if self.fails:
            raise UvError("no connection")


@pytest.fixture
def bundle(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text("pkg==1.0 --hash=sha256:00\n")
    return DependencyBundle(lock=lock, target=TARGET, cache=tmp_path / "build")


def content(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_keeps_what_functions_need(bundle):
    """Packages and their metadata, readable for everyone, of checked wheels for the functions' platform.

    Where that is the host itself, uv gets no platform.
    """
    uv = FakeUv()
    folder = bundle.build(uv)
    assert content(folder) == ["content.sha256", "python/pkg-1.0.dist-info/METADATA", "python/pkg/__init__.py"]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in (folder, *folder.rglob("*"))}
    assert modes == {(False, 0o644), (True, 0o755)}
    (arguments,) = uv.calls
    assert {"--require-hashes", "--only-binary", "--no-deps"} <= set(arguments)
    asked = {name: arguments[arguments.index(name) + 1] for name in ("--python-platform", "--python-version")}
    assert asked == {"--python-platform": "aarch64-manylinux_2_28", "--python-version": "3.13"}
    here = replace(bundle, target=TARGET.model_copy(update={"platform": ""})).uv_arguments(Path("x"), LOCK)
    assert "--python-platform" not in here


def test_what_was_damaged_is_built_again(bundle):
    """A finished build is used again, without uv, unless a file of it was changed or lost."""
    folder, uv = bundle.build(FakeUv()), FakeUv()
    whole, module = read_digest(folder), folder / "python" / "pkg" / "__init__.py"
    for harm in (lambda: module.write_text("other"), module.unlink):
        harm()
        uv.calls.clear()
        assert [read_digest(bundle.build(uv)), bundle.build(uv)] == [whole, folder]
        assert len(uv.calls) == 1


def test_failure_leaves_nothing(bundle):
    """A failed download leaves no half layer."""
    with pytest.raises(ConfigurationError, match=r"could not be built from requirements.txt: no connection"):
        bundle.build(FakeUv(fails=True))
    assert list(bundle.cache.iterdir()) == []
    assert content(bundle.build(FakeUv())) != []


def test_two_at_once_agree(bundle):
    """The second build finds the layer of the first, and leaves no draft."""

    def slow_uv(arguments):
        bundle.build(FakeUv())
        FakeUv()(arguments)

    assert bundle.build(slow_uv) == bundle.folder
    assert [path.name for path in bundle.cache.iterdir()] == [bundle.folder.name]
    # The CDK would take the part after a dot for the asset's file type.
    assert "." not in bundle.folder.name


def test_key_follows_what_the_layer_is_built_from(bundle, tmp_path):
    """The Python, the processor, the platform, the form of bytecode, and the lock, wherever it lies.

    The digest follows the content: the same lock that fills a layer otherwise is another asset.
    """
    changes = ({"python_version": "3.14"}, {"architecture": "x86_64"}, {"platform": "aarch64-manylinux2014"})
    before = bundle.key
    others = [replace(bundle, target=TARGET.model_copy(update=change)) for change in changes]
    others += [replace(bundle, interpreter=Interpreter("python", magic)) for magic in ("00", "01")]
    same, other = tmp_path / "same.txt", tmp_path / "other.txt"
    same.write_bytes(bundle.lock.read_bytes())
    other.write_text("pkg==1.1 --hash=sha256:11\n")
    elsewhere = replace(bundle, lock=same, cache=tmp_path / "elsewhere")
    assert elsewhere.key == before
    assert read_digest(elsewhere.build(FakeUv("other"))) != read_digest(bundle.build(FakeUv()))
    assert len({before, *(each.key for each in [*others, replace(bundle, lock=other)])}) == 7


def test_the_lock_has_no_condition_that_only_the_target_meets():
    """The Python that runs uv judges it, and the package would be missing in a layer that is built on another one."""
    conditions = re.findall(r"^\S+==\S+ ; (.+?) \\$", LOCK.read_text(), flags=re.MULTILINE)
    facts = {"python_version": TESTED_PYTHON, "python_full_version": f"{TESTED_PYTHON}.0"}
    assert [condition for condition in conditions if Marker(condition).evaluate(facts)] == []


def test_the_command_builds_the_environment_that_it_names():
    """Or says that there is no such one. All are for the Python on which the Makefile tries the functions."""
    assert "nowhere" in main(["--environment", "nowhere"])
    assert {DEV.target.python_version, PROD.target.python_version} == {TESTED_PYTHON}
    assert f"FUNCTIONS_PYTHON := {TESTED_PYTHON}\n" in (ROOT / "Makefile").read_text()


@pytest.fixture
def build(tmp_path):
    """Describes builds of a package of two modules, one of which cannot be compiled."""
    package = tmp_path / "pkg"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text('NAMES = {"a", "b", "c"}\n\n\ndef fail():\n    raise ValueError("no")\n')
    (package / "broken.py").write_text("def (\n")
    (package / "__pycache__" / "old.cpython-39.pyc").write_bytes(b"old")
    here = find_interpreter(HERE)

    def describe(name, interpreter=here):
        return SourceBundle(package=package, cache=tmp_path / name, interpreter=interpreter)

    return describe


def test_modules_are_compiled_and_the_same_each_time(build):
    """Two builds have the same bytes; sources stay, old bytecode and what cannot be compiled do not hinder.

    Bytecode is taken unchecked: a time stamp that the upload changes does not matter. Tracebacks name /opt.
    """
    folders = [build(name).build() for name in ("first", "second")]
    files = [{str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders]
    compiled = f"python/pkg/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    assert files[0] == files[1]
    assert set(files[0]) == {"content.sha256", "python/pkg/__init__.py", "python/pkg/broken.py", compiled}
    assert int.from_bytes(files[0][compiled][4:8], "little") == 0b01
    assert b"/opt/python/pkg/__init__.py" in files[0][compiled]
    (folders[0] / "python/pkg/__init__.py").write_text("NAMES = 'changed'")
    said = start("import pkg; print(sorted(pkg.NAMES))", PYTHONPATH=str(folders[0] / "python"))
    assert said == "['a', 'b', 'c']"


def test_the_layer_s_name_follows_what_goes_in(build):
    """Sources and the form of the bytecode name the layer; the machine's folders do not.

    A Python that is not there is neither fetched nor replaced by another one.
    """
    before = build("first").key
    assert build("second").key == before
    assert build("first", find_interpreter("3.99")).key == build("first", None).key != before
    (build("first").package / "__init__.py").write_text("NAMES = {}\n")
    assert build("first").key != before


RUN = """
import json, sys
import handler

class Context:
    function_name, memory_limit_in_mb, aws_request_id = "layered", 1769, "1"
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:layered"
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
    "sources": sorted(file for file in files if file.startswith(root) and file.endswith(".py")),
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
import sys
import boto3
from hotpartition.table import ShardedTable, adaptive

redis = {"registry_host": "127.0.0.1", "registry_port": 9, "registry_authentication": "iam", "registry_user": "u"}
shards = adaptive(environ={}, journal_table_name="routes", registry_cache_name="c", **redis)
table = ShardedTable(boto3.resource("dynamodb", endpoint_url=sys.argv[1]).Table("readings"), shards=shards)
table.put_item(Item={"PK": "a", "SK": "b"})
print(table.get_item(Key={"PK": "a", "SK": "b"})["Item"])
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


@pytest.mark.slow
@pytest.mark.parametrize(("client", "function"), [*(("curl", name) for name in EVENTS), ("boto3", "read_messages")])
def test_every_function_serves_from_the_layers(function, client):
    """With either client, it does what it does without DynamoDB and Redis; all it imports is compiled."""
    layers = [layer / "python" for layer in build_layers()]
    event, outcome = EVENTS[function]
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(str(folder) for folder in (find_function(function), *layers)),
        **CREDENTIALS,
        "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9",
        "HOTPARTITION_TABLE_NAME": "t",
        "HOTPARTITION_DYNAMODB_CLIENT": client,
        "HOTPARTITION_REGISTRY_HOST": "127.0.0.1",
        "HOTPARTITION_REGISTRY_PORT": "9",
        "HOTPARTITION_REGISTRY_TLS": "false",
        "POWERTOOLS_SERVICE_NAME": function,
        "POWERTOOLS_METRICS_NAMESPACE": "layered",
    }
    served = json.loads(start(RUN, json.dumps(event), str(layers[-1]), **environ))
    assert served["outcome"] == outcome if outcome else isinstance(served["outcome"], list)
    assert len(served["sources"]) > 100
    assert [file for file in served["sources"] if not Path(cache_from_source(file)).is_file()] == []


def test_an_adaptive_table_needs_nothing_but_its_own_layer(tmp_path, root, aws_environment):
    """And boto3, with authentication by IAM: an item is stored and found, although Redis is away."""
    for name in CLIENT_PACKAGES | BOTO3:
        for file in distribution(name).files:
            if ".." not in file.parts and not (tmp_path / file.parts[0]).exists():
                (tmp_path / file.parts[0]).symlink_to(distribution(name).locate_file(file.parts[0]))
    path = f"{root / 'layers/routing/python'}:{tmp_path}"
    with running(DynamoDBServer()) as address:
        client = boto3.client("dynamodb", endpoint_url=address)
        client.create_table(TableName="readings", **define_table("PK", "SK"))
        client.create_table(TableName="routes", **define_table("pk"))
        said = start(USE, address, PYTHONPATH=path, **CREDENTIALS, AWS_REGION="eu-central-1")
        client.close()
    assert said == "{'PK': 'a', 'SK': 'b'}"
