"""The layers: what is in them, the same bytes each time, and that functions serve from them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from importlib.metadata import distribution
from pathlib import Path

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
    """The layer holds packages and their metadata, readable for everyone; scripts and bytecode are dropped."""
    folder = bundle.build(FakeUv())
    assert content(folder) == ["content.sha256", "python/pkg-1.0.dist-info/METADATA", "python/pkg/__init__.py"]
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*")) if path.is_dir()} == {0o755}


def test_asks_for_the_targets_wheels(bundle):
    """Uv installs checked wheels of the functions' platform, whatever this machine is, or the host's for the host."""
    uv = FakeUv()
    bundle.build(uv)
    (arguments,) = uv.calls
    assert {"--require-hashes", "--only-binary", "--no-deps"} <= set(arguments)
    asked = {name: arguments[arguments.index(name) + 1] for name in ("--python-platform", "--python-version")}
    assert asked == {"--python-platform": "aarch64-manylinux_2_28", "--python-version": "3.13"}
    here = replace(bundle, target=TARGET.model_copy(update={"platform": ""})).uv_arguments(Path("x"), LOCK)
    assert "--python-platform" not in here


@pytest.mark.parametrize("harm", [lambda file: file.write_text("other"), lambda file: file.unlink()])
def test_what_was_damaged_is_built_again(bundle, harm):
    """A finished build is used again, without uv, unless a file of it was changed or lost."""
    folder = bundle.build(FakeUv())
    whole = read_digest(folder)
    harm(folder / "python" / "pkg" / "__init__.py")
    uv = FakeUv()
    assert read_digest(bundle.build(uv)) == whole
    assert len(uv.calls) == 1
    assert bundle.build(uv) == folder
    assert len(uv.calls) == 1


def test_the_command_builds_the_environment_that_it_names():
    """Or says that there is no such one."""
    assert "nowhere" in main(["--environment", "nowhere"])


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


def test_lock_has_no_condition_that_only_the_target_meets():
    """Conditions in the lock are judged by the Python that runs uv; that is safe while none asks for the target's.

    Such a package would be missing in a layer that is built on another Python.
    """
    lock = LOCK.read_text()
    conditions = re.findall(r"^\S+==\S+ ; (.+?) \\$", lock, flags=re.MULTILINE)
    version = DEV.target.python_version
    needed = [
        c for c in conditions if Marker(c).evaluate({"python_version": version, "python_full_version": f"{version}.0"})
    ]
    assert needed == []


@pytest.fixture
def sources(tmp_path):
    """A layer with two modules."""
    folder = tmp_path / "layer"
    package = folder / "python" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('NAMES = {"a", "b", "c"}\n\n\ndef fail():\n    raise ValueError("no")\n')
    (package / "broken.py").write_text("def (\n")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "old.cpython-39.pyc").write_bytes(b"old")
    return folder


@pytest.fixture
def build(sources, tmp_path):
    here = find_interpreter(HERE)

    def run(name, interpreter=here):
        return SourceBundle(package=sources / "python" / "pkg", cache=tmp_path / name, interpreter=interpreter)

    return run


def test_a_python_that_is_not_there_is_none():
    """It is neither fetched nor replaced by another one."""
    found = find_interpreter(HERE)
    assert Path(found.path).is_file()
    assert find_interpreter("3.99") is None


def test_modules_are_compiled_and_the_same_each_time(build):
    """Two builds have the same bytes; sources stay, old bytecode and what cannot be compiled do not hinder."""
    folders = [build(name).build() for name in ("first", "second")]
    files = [{str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders]
    tag = sys.implementation.cache_tag
    assert files[0] == files[1]
    assert set(files[0]) == {
        "content.sha256",
        "python/pkg/__init__.py",
        "python/pkg/broken.py",
        f"python/pkg/__pycache__/__init__.{tag}.pyc",
    }


def test_bytecode_is_taken_without_a_look_at_the_source(build):
    """Unchecked and by hash: a time stamp that the upload changes does not matter, and tracebacks name /opt."""
    folder = build("cache").build()
    (compiled,) = folder.rglob("*.pyc")
    flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
    assert flags == 0b01
    assert b"/opt/python/pkg/__init__.py" in compiled.read_bytes()
    (folder / "python/pkg/__init__.py").write_text("NAMES = 'changed'")
    command = [sys.executable, "-B", "-c", "import pkg; print(sorted(pkg.NAMES))"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(folder / "python")}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['a', 'b', 'c']\n"


def test_the_layer_s_name_follows_what_goes_in(build, sources):
    """Sources and the form of the bytecode name the layer; the machine's folders do not."""
    before = build("first").key
    assert build("second").key == before
    assert build("first", None).key != before
    (sources / "python/pkg/__init__.py").write_text("NAMES = {}\n")
    assert build("first").key != before


def test_the_suite_is_tried_on_the_functions_python():
    """The Makefile names the version that is deployed by default."""
    makefile = (ROOT / "Makefile").read_text()
    assert f"FUNCTIONS_PYTHON := {TESTED_PYTHON}\n" in makefile
    assert {DEV.target.python_version, PROD.target.python_version} == {TESTED_PYTHON}


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
plain = boto3.resource("dynamodb", endpoint_url="http://127.0.0.1:9").Table("readings")
keys = {"readings": {"PK": "HASH", "SK": "RANGE"}, "routes": {"pk": "HASH"}}
plain.meta.client.describe_table = lambda TableName: {"Table": {
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in keys[TableName]],
    "KeySchema": [{"AttributeName": name, "KeyType": role} for name, role in keys[TableName].items()],
}}
table = ShardedTable(plain, shards=shards, append_only=True, budget_ms=1)
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
        "POWERTOOLS_METRICS_NAMESPACE": "layered",
        **settings,
    }
    return json.loads(start(RUN, json.dumps(EVENTS[function][0]), str(layers[-1]), **environ))


@pytest.mark.slow
@pytest.mark.parametrize(("client", "function"), [*(("curl", name) for name in EVENTS), ("boto3", "read_messages")])
def test_every_function_serves_from_the_layers(function, client, layers, root):
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


def test_an_adaptive_table_needs_nothing_but_its_own_layer(tmp_path, root):
    """With boto3: up to a put that finds neither Redis nor DynamoDB, with authentication by IAM."""
    for name in CLIENT_PACKAGES | BOTO3:
        for file in distribution(name).files:
            if ".." not in file.parts and not (tmp_path / file.parts[0]).exists():
                (tmp_path / file.parts[0]).symlink_to(distribution(name).locate_file(file.parts[0]))
    path = f"{root / 'layers/routing/python'}:{tmp_path}"
    said = start(USE, PYTHONPATH=path, **CREDENTIALS, AWS_REGION="eu-central-1", AWS_MAX_ATTEMPTS="1")
    assert said == "no response in DynamoDB's place"
