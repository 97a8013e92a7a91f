"""An application of another team, whose table it has itself: `python team_app.py -c hot=yes -o FOLDER`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "layers" / "routing" / "python")]

from hotpartition_cdk import SMALL, HotPartition  # noqa: E402 - the line above makes it importable


def main(arguments: list[str]) -> None:
    """Synthesize the application."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("-o", "--output")
    given = parser.parse_args(arguments)
    contexts = dict(pair.partition("=")[::2] for pair in given.context)
    app = cdk.App(outdir=given.output, analytics_reporting=False, builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Readings")
    table = dynamodb.Table(
        stack,
        "Table",
        table_name="readings",
        partition_key=dynamodb.Attribute(name="Sensor", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="At", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        removal_policy=cdk.RemovalPolicy.RETAIN,
    )
    ingest = lambda_.Function(
        stack,
        "Ingest",
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
    )
    if contexts.get("hot") == "yes":
        changes = {"log_retention_days": 30, "registry": {"node_type": "cache.t4g.small"}}
        options = SMALL.changed(changes if contexts.get("size") == "larger" else {})
        HotPartition(
            stack, contexts.get("id", "Hot"), table=table, functions=[ingest], options=options, is_joining=True
        )
    app.synth()


if __name__ == "__main__":
    main(sys.argv[1:])
