"""Apps of other teams, synthesized for the tests without bundling: `HotPartition` beside tables and functions."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from infra.bundle import ROOT
from infrastructure.template import Template

UNBUNDLED = {"context": {"aws:cdk:bundling-stacks": []}, "analytics_reporting": False, "stack_traces": False}
IN_FIVE_LINES, _, WITH_REDIS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/constructs.md").read_text(), re.DOTALL)[
    :3
]
FIVE_LINES = re.sub(r"^HotPartition\(.*\n", WITH_REDIS, IN_FIVE_LINES, flags=re.MULTILINE)


class Lazy:
    """A module that is imported with its first use: the CDK starts Node.js."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


SERVICES = ("dynamodb", "ec2", "ecr", "kms", "lambda")
dynamodb, ec2, ecr, kms, lambda_ = (Lazy(f"aws_cdk.aws_{service}") for service in SERVICES)
cdk, constructs = Lazy("aws_cdk"), Lazy("hotpartition_cdk")


class App:
    """An app without bundling: neither network nor uv is needed."""

    def __init__(self, outdir: Path) -> None:
        self.outdir = outdir
        self.app = cdk.App(outdir=str(outdir), builtin_cloud_formation_validation=False, **UNBUNDLED)

    def stack(self, name, *, region=None):
        return cdk.Stack(self.app, name, env=cdk.Environment(region=region))

    def template(self):
        self.app.synth()
        return Template.read(self.outdir)


def make_function(stack, name, *, runtime="PYTHON_3_13", timeout=None, **properties):
    """Make a function of a team's own; the runtime is the name of CDK's constant, the timeout in seconds."""
    usual = {"code": lambda_.Code.from_inline("def handler(event, context): pass"), "handler": "index.handler"}
    seconds = None if timeout is None else cdk.Duration.seconds(timeout)
    named = {"runtime": getattr(lambda_.Runtime, runtime), "timeout": seconds}
    return lambda_.Function(stack, name, **(usual | named | properties))


def imported_table(stack, name="readings", **attributes):
    return dynamodb.Table.from_table_attributes(stack, f"Given-{name}", table_name=name, **attributes)


def make_table(stack, name="Table", *, sort="S", partition="S", replica=None, inverted=None):
    """Make a table; without a sort key, or with a replica, one of the newer kind. `inverted` names an index."""

    def attribute(name, type_):
        types = {"S": dynamodb.AttributeType.STRING, "N": dynamodb.AttributeType.NUMBER}
        return dynamodb.Attribute(name=name, type=types.get(type_, dynamodb.AttributeType.BINARY))

    key = attribute("Id", partition)
    if sort is None:
        return dynamodb.TableV2(stack, name, partition_key=key)
    keys = {"partition_key": key, "sort_key": attribute("At", sort)}
    if replica is not None:
        return dynamodb.TableV2(stack, name, replicas=[dynamodb.ReplicaTableProps(region=replica)], **keys)
    table = dynamodb.Table(stack, name, removal_policy=cdk.RemovalPolicy.DESTROY, **keys)
    if inverted is not None:
        table.add_global_secondary_index(index_name=inverted, partition_key=keys["sort_key"], sort_key=key)
    return table


def judge(app, *functions):
    """Have cdk-nag judge all of an app but the user's own functions."""
    for function in functions:
        for rule in (
            "IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole]",
            "L1",
        ):
            known = cdk.Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason="the user's own function")
            cdk.Validations.of(function).acknowledge(known)
    cdk.Validations.of(app).add_plugins(Lazy("cdk_nag").AwsSolutionsChecks(app))
    return app


def five_lines(outdir: Path, folder: Path) -> Template:
    """Synthesize the document's app, with cdk-nag judging all of it but the user's own function."""
    (folder / "functions").mkdir()
    (folder / "functions" / "ingest.py").touch()
    code = FIVE_LINES.replace("cdk.App()", "cdk.App(**arguments)").replace("app.synth()", "judge(app, ingest).synth()")
    code = code.replace('"functions"', repr(str(folder / "functions")))
    names = {"arguments": {"outdir": str(outdir), **UNBUNDLED}, "judge": judge}
    exec(compile(code, "docs/constructs.md", "exec"), names)  # noqa: S102 - the project's document
    return Template.read(outdir)


def in_band_app(outdir: Path) -> Template:
    """Synthesize a writer and a reader that find hot keys in band, with routes apart; cdk-nag judges all else."""
    app = App(outdir)
    stack = app.stack("InBand")
    events = imported_table(stack, "events")
    collect, look = (make_function(stack, name, handler=f"{name.lower()}.handler") for name in ("Collect", "Look"))
    routes = Lazy("hotpartition_cdk.journal").JournalTable(stack, "Routes", table=events, is_retained=True).journal()
    constructs.HotPartition(
        stack,
        "Events",
        table=events,
        detection=constructs.IN_BAND,
        functions=[collect],
        readers=[look],
        indexes=["by-time"],
        settings={"max_shard_count": 16},
        journal=routes,
    )
    judge(app.app, collect, look)
    return app.template()


def findings(template: Template) -> list[str]:
    """List what cdk-nag and the CDK found in an app: it prints its findings, and fails on errors alone."""
    report = json.loads((template.folder / "validation-report.json").read_text())
    return [
        f"{violation['ruleName']} {construct['constructPath']}"
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    ]
