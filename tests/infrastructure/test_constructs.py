"""`HotPartition` beside tables of anybody's: sharing, moving, and the reference's examples.

What one app of five lines gets is in `templates/five.txt`, and in band in `templates/in_band.txt`.

Much of it builds apps, one that shares everything and five of two tables: rights, layers and names show only in whole
templates.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

import pytest

import hotpartition_cdk
from infra.bundle import ROOT
from infrastructure.apps import App, constructs, ec2, ecr, imported_table, kms, lambda_, make_function, make_table
from infrastructure.template import Template, short_name
from support.documents import run_examples

READS = {f"dynamodb:{name}" for name in ("BatchGetItem", "DescribeTable", "GetItem", "Query", "Scan")}
WRITES = {f"dynamodb:{verb}Item" for verb in ("BatchWrite", "ConditionCheck", "Delete", "Put", "Update")}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Two tables on one registry, in a VPC of the user's, with functions of every kind."""
    app = App(tmp_path_factory.mktemp("shared"))
    stack = app.stack("Shared")
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    key = kms.Key.from_key_arn(stack, "Key", "arn:aws:kms:eu-west-1:123456789012:key/1234")
    events = make_table(stack, "Events", sort="N", inverted="by-hour")
    stream = "arn:aws:dynamodb:eu-west-1:123456789012:table/readings/stream/2026"
    arm = lambda_.Architecture.ARM_64
    first = constructs.HotPartition(
        stack,
        "Readings",
        table=imported_table(stack, encryption_key=key, table_stream_arn=stream),
        functions=[make_function(stack, "Ingest", vpc=vpc, runtime="PYTHON_3_12")],
        readers=[make_function(stack, "Show", vpc=vpc, architecture=arm, handler="show.handler")],
        indexes=["by-time"],
        vpc=vpc,
        options=constructs.PRODUCTION.changed({"alarms": {"is_silent": True}}),
        settings={"max_shard_count": 16, "has_positions": True},
    )
    image = make_function(
        stack,
        "Image",
        runtime="FROM_IMAGE",
        handler=lambda_.Handler.FROM_IMAGE,
        code=lambda_.Code.from_ecr_image(ecr.Repository.from_repository_name(stack, "Repository", "images")),
    )
    functions = [make_function(stack, "Collect", vpc=vpc), image]
    hot = {"functions": functions, "indexes": ["by-hour"], "registry": first.registry, "is_joining": True}
    constructs.HotPartition(stack, "Hot", table=events, **hot)
    return app.template()


def events_of(template):
    """The logical id of the table that is made here."""
    (id_,) = [id_ for id_ in template.of_type("AWS::DynamoDB::Table") if id_.startswith("Events")]
    return id_


def registry_user(function):
    return function.get("Environment", {}).get("Variables", {}).get("HOTPARTITION_REGISTRY_USER", "")


def test_one_registry_serves_two_tables(shared):
    """Each table has users of its own, who change one after another; the nodes are watched once."""
    assert len(shared.of_type("AWS::ElastiCache::ReplicationGroup")) == 1
    users = shared.of_type("AWS::ElastiCache::User")
    assert sum("DependsOn" in user for user in users.values()) == len(users) - 1 == 7
    assert len(shared.only("AWS::ElastiCache::UserGroup")["UserIds"]) == 8
    names = [alarm["AlarmName"] for alarm in shared.all("AWS::CloudWatch::Alarm")]
    assert len(names) == len(set(names))
    counts = [sum(name.endswith(kind) for name in names) for kind in ("RegistryMemory", "ConsumerMissing")]
    assert counts == [1, 2]
    keys = {short_name(user["Properties"]["AccessString"]).split()[1] for user in users.values()}
    assert keys == {"~hp:readings:*", f"~hp:${{{events_of(shared)}}}:*"}


def test_a_given_vpc_gets_nothing_but_groups(shared):
    """No endpoint and no flow log; each function keeps its own group, which the registry lets in."""
    made = [len(shared.of_type(f"AWS::EC2::{kind}")) for kind in ("VPC", "VPCEndpoint", "FlowLog")]
    assert made == [1, 0, 0]
    assert [rule["FromPort"] for rule in shared.all("AWS::EC2::SecurityGroupIngress")] == [6379] * 4


def test_layers_are_those_of_each_functions_python_and_processor(shared):
    """One pair for each; the construct's own have theirs, once for each table. A container image gets none."""
    layers = shared.all("AWS::Lambda::LayerVersion")
    kinds = [(layer["CompatibleRuntimes"][0], layer["CompatibleArchitectures"][0]) for layer in layers]
    pairs = [("python3.12", "x86_64"), ("python3.13", "x86_64"), *[("python3.13", "arm64")] * 3]
    assert sorted(kinds) == sorted(pairs * 2)
    (image,) = [each for each in shared.all("AWS::Lambda::Function") if each.get("PackageType") == "Image"]
    assert "Layers" not in image
    assert image["Environment"]["Variables"]["HOTPARTITION_REGISTRY_USER"].endswith("-table")


def test_a_reader_writes_nothing(shared):
    """In neither table, and in Redis as readers do; an index is granted by its name, a key through DynamoDB."""
    rights = shared.rights(shared.function("show"))
    assert {action for action, _, _ in rights if action.startswith("dynamodb:")} == READS
    of_index = {action for action, resource, _ in rights if resource.endswith("/index/by-time")}
    assert of_index == {"dynamodb:Query", "dynamodb:Scan"}
    (condition,) = {each for action, resource, each in rights if action == "kms:Decrypt" and "key/1234" in resource}
    assert "kms:ViaService" in condition
    assert any("reader" in resource for action, resource, _ in rights if action == "elasticache:Connect")


def test_each_table_has_its_settings_and_its_journal(shared):
    """The second has its own consumer, with defaults. A journal goes when its table does; an imported one stays."""
    consumers = [each for each in shared.all("AWS::Lambda::Function") if "consumer" in registry_user(each)]
    variables = [each["Environment"]["Variables"] for each in consumers]
    names = ("HOTPARTITION_HAS_POSITIONS", "HOTPARTITION_MAX_SHARD_COUNT")
    assert {tuple(each.get(name) for name in names) for each in variables} == {("true", "16"), ("false", None)}
    assert len(shared.of_type("AWS::Scheduler::Schedule")) == 2
    tables = shared.of_type("AWS::DynamoDB::Table").values()
    policies = {short_name(each["Properties"].get("TableName")): each["DeletionPolicy"] for each in tables}
    del policies["None"]
    assert policies == {"hp-routes-readings": "RetainExceptOnCreate", f"hp-routes-${{{events_of(shared)}}}": "Delete"}


@pytest.mark.slow
def test_cfn_lint_has_nothing_to_say(shared, templates):
    """Of the constructs, nor of `prod`; in one process, which is slow to start.

    But that the CDK lets each function depend on its role twice (W3005), which is harmless.
    """
    made = (shared, templates["in_band"], templates["prod"])
    files = [file for template in made for file in template.folder.glob("*.template.json")]
    command = [Path(sysconfig.get_path("scripts")) / "cfn-lint", "--ignore-checks", "W3005", "--template", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


NAMES = ("TableName", "UserId", "UserGroupId", "AlarmName", "DashboardName")
"""Properties with a name that is unique in account and region."""

KEPT = {"AWS::DynamoDB::Table", "AWS::ElastiCache::User"}
CHANGES = {
    "renamed and wrapped": ({"is_moved": True}, KEPT),
    # Users of another registry are made beside. The journal is the truth about where items lie.
    "sharing": ({"is_sharing": True}, {"AWS::DynamoDB::Table"}),
    "moved, without a name": ({"is_moved": True, "is_named": False}, {"AWS::DynamoDB::Table"}),
    "away": ({"has_events": False}, set()),
}
"""A change, and what of the second table's keeps its name."""


def build_two(folder, *, is_moved=False, is_sharing=False, has_events=True, is_named=True):
    """Two tables, imported and made here; the second one's registry is its own, or the first one's."""
    made = App(folder)
    stack = made.stack("Moving")
    first = constructs.HotPartition(stack, "First", table=imported_table(stack), name="first")
    if has_events:
        constructs.HotPartition(
            import_module("constructs").Construct(stack, "Wrapped") if is_moved else stack,
            "Hotter" if is_moved else "Hot",
            table=make_table(stack, "Events"),
            functions=[make_function(stack, "Collect")],
            registry=first.registry if is_sharing else None,
            name="events" if is_named else None,
            is_joining=True,
        )
    return names(made.template())


def names(template):
    """Every name that is given, by type, with the logical id that has it."""
    return {
        (resource["Type"], short_name(value)): id_
        for id_, resource in template.body["Resources"].items()
        for property_, value in resource.get("Properties", {}).items()
        if property_ in NAMES
    }


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return build_two(tmp_path_factory.mktemp("before"))


@pytest.mark.parametrize("change", CHANGES)
def test_no_name_is_taken_by_another_resource(before, tmp_path, change):
    """CloudFormation creates before it deletes: a name that stays has the logical id that it had, both ways."""
    how, kept = CHANGES[change]
    after = build_two(tmp_path, **how)
    same = before.keys() & after.keys()
    assert {name: before[name] for name in same} == {name: after[name] for name in same}
    assert {kind for kind, name in same if "vents" in name} & KEPT == kept


@pytest.fixture
def public(tmp_path):
    """What examples may use: a stack with a table, two functions and a VPC, and all public names."""
    stack = App(tmp_path).stack("Readings")
    return {
        "self": stack,
        "stack": stack,
        "vpc": ec2.Vpc(stack, "Vpc", max_azs=2),
        "readings": imported_table(stack),
        **{name: make_function(stack, name) for name in ("ingest", "show")},
        **{name: getattr(hotpartition_cdk, name) for name in hotpartition_cdk.__all__},
    }


@pytest.mark.parametrize("name", hotpartition_cdk.__all__)
def test_every_public_name_has_an_example_that_runs(name, public):
    """Of the name itself; those of its methods run after it."""
    assert run_examples("hotpartition_cdk", name, public) > 0


def test_the_smallest_example_is_synthesized(tmp_path):
    """Its function gets the settings and the rights of a table in band, with routes in it; nothing else is made."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "layers/routing/python")))
    # The CDK's own rules take many seconds; they judge `prod`.
    quick = {"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20", "CDK_VALIDATION": "false"}
    environ = {**os.environ, "PYTHONPATH": path, **quick, "CDK_OUTDIR": str(tmp_path)}
    subprocess.run([sys.executable, "app.py"], cwd=ROOT / "examples" / "events", env=environ, check=True)
    template = Template.read(tmp_path)
    kinds = {resource["Type"] for resource in template.body["Resources"].values()}
    assert not [kind for kind in kinds if "ElastiCache" in kind or "EC2" in kind]
    function = template.only("AWS::Lambda::Function")
    assert function["Environment"]["Variables"].keys() == {"TABLE_NAME", "HOTPARTITION_TABLE_NAME"}
    assert {action for action, _, _ in template.rights(function)} == READS | WRITES
