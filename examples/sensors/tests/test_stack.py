"""The app as it is deployed: synthesized without credentials or network, and judged by the AWS Solutions rules."""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

APP = Path(__file__).resolve().parents[1]
INSTALLED = {
    "aws_cdk",
    "boto3",
    "botocore",
    "cdk_nag",
    "constructs",
    "hotpartition",
    "hotpartition_cdk",
    "moto",
    "pytest",
}
OWN = {path.stem for path in APP.rglob("*.py")}


def synthesize(outdir, **context):
    """Run the app as the CDK's command line does; layers are not built."""
    given = {**json.loads((APP / "cdk.json").read_text())["context"], "aws:cdk:bundling-stacks": [], **context}
    # cdk-nag's rules judge it; the CDK's own take longer than all else, and `cdk deploy` asks them.
    environ = {
        **os.environ,
        "CDK_VALIDATION": "false",
        "CDK_CONTEXT_JSON": json.dumps(given),
        "CDK_OUTDIR": str(outdir),
    }
    done = subprocess.run([sys.executable, "app.py"], cwd=APP, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-1_000:]
    (template,) = outdir.glob("*.template.json")
    return json.loads(template.read_text())["Resources"]


def test_five_lines_make_the_table_adaptive(tmp_path):
    """Both functions know the journal and Redis, Redis and its consumer are there, and cdk-nag is silent."""
    resources = synthesize(tmp_path)
    types = Counter(resource["Type"] for resource in resources.values())
    assert (types["AWS::DynamoDB::Table"], types["AWS::ElastiCache::ReplicationGroup"]) == (2, 1)
    assert (types["AWS::Scheduler::Schedule"], types["AWS::ApiGatewayV2::Route"]) == (1, 5)
    for name in ("Ingest", "Reads"):
        (function,) = [v for k, v in resources.items() if k.startswith(name) and v["Type"] == "AWS::Lambda::Function"]
        variables = function["Properties"]["Environment"]["Variables"]
        assert {"TABLE_NAME", "PATTERN", "HOTPARTITION_JOURNAL_TABLE_NAME", "HOTPARTITION_REGISTRY_HOST"} <= set(
            variables
        )


def test_a_fixed_number_needs_nothing_beside_the_table(tmp_path):
    """No Redis, no VPC: two functions with the library, a table with its index, an API."""
    resources = synthesize(tmp_path, pattern="buckets")
    types = {resource["Type"].split("::")[1] for resource in resources.values()}
    assert types == {"ApiGatewayV2", "DynamoDB", "IAM", "Lambda", "Logs"}


def test_nothing_is_imported_but_what_is_installed():
    """No module of the checkout that this application happens to lie in."""
    trees = [ast.parse(path.read_text()) for path in APP.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    imported = {name.partition(".")[0] for name in names}
    assert imported - OWN - sys.stdlib_module_names == INSTALLED


@pytest.mark.parametrize("package", ["hotpartition", "hotpartition_cdk"])
def test_the_library_is_the_installed_one(package):
    """Not the sources beside which this application may lie."""
    file = Path(__import__(package).__file__).resolve()
    assert not file.is_relative_to(APP.parents[1] / "layers")
    assert file.parent.parent != APP.parents[1]
