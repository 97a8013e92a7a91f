"""The reference: every public name of the constructs has an example in its docstring, and it runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_

import hotpartition_cdk
from support.examples import run_examples


def make_function(stack, name):
    return lambda_.Function(
        stack,
        name,
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
    )


@pytest.fixture
def names(tmp_path):
    """What examples may use: a stack with a table, two functions and a VPC, and all public names."""
    app = cdk.App(outdir=str(tmp_path), context={"aws:cdk:bundling-stacks": []}, analytics_reporting=False)
    stack = cdk.Stack(app, "Readings")
    public = {name: getattr(hotpartition_cdk, name) for name in hotpartition_cdk.__all__}
    return {
        "self": stack,
        "stack": stack,
        "vpc": ec2.Vpc(stack, "Vpc", max_azs=2),
        "readings": dynamodb.Table.from_table_attributes(stack, "Table", table_name="readings"),
        **{name: make_function(stack, name) for name in ("ingest", "show")},
        **public,
    }


@pytest.mark.parametrize("name", hotpartition_cdk.__all__)
def test_every_public_name_has_an_example_that_runs(name, names):
    """Of the name itself; those of its methods run after it."""
    assert run_examples("hotpartition_cdk", name, names) > 0


def test_a_wrong_option_is_said_in_a_sentence():
    """With the app's own line, and no traceback; another error still shows one."""
    wrong = "HotPartition(stack, 'Hot', table=table, options={'registry': {'node_typ': 'x'}})"
    code = f"""
import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from hotpartition_cdk import HotPartition
stack = cdk.Stack(cdk.App(), "Readings")
table = dynamodb.Table.from_table_attributes(stack, "Table", table_name="readings")
{wrong}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=with_library())
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("hotpartition: <string>, line 7: option registry.node_typ is unknown; allowed are")
    assert line.endswith("Did you mean registry.node_type?")


def with_library():
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join(map(str, (root, root / "layers/routing/python")))
    return {**os.environ, "PYTHONPATH": path, "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20"}


def test_the_smallest_example_is_synthesized(tmp_path):
    """Its function gets the settings and the rights of a table in band, and nothing else is made for it."""
    folder = Path(__file__).resolve().parents[2] / "examples" / "events"
    subprocess.run(
        [sys.executable, "app.py"], cwd=folder, env=with_library() | {"CDK_OUTDIR": str(tmp_path)}, check=True
    )
    resources = json.loads((tmp_path / "Events.template.json").read_text())["Resources"]
    kinds = sorted(resource["Type"] for resource in resources.values())
    assert not [kind for kind in kinds if "ElastiCache" in kind or "EC2" in kind]
    (function,) = [each for each in resources.values() if each["Type"] == "AWS::Lambda::Function"]
    assert any(name.startswith("HOTPARTITION_") for name in function["Properties"]["Environment"]["Variables"])
