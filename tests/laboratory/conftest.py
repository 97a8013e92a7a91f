"""Small functions of Lambda, and pools that run them."""

from __future__ import annotations

import json
import random
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.loop import Loop
from tools.local.environments import Launcher, install_runtime
from tools.local.pool import FunctionPool
from tools.local.template import FunctionSpec

RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    created = Loop()
    yield created
    created.close()


@pytest.fixture(scope="session")
def runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local") / "runtime"
    install_runtime(folder)
    return folder


MakePool = Callable[..., FunctionPool]


@pytest.fixture
def make_pool(loop: Loop, runtime_dir: Path, tmp_path: Path) -> Iterator[MakePool]:
    """Make pools of functions from source; all are stopped afterwards."""
    pools: list[FunctionPool] = []

    def make(
        source: str, *, least: int = 0, most: int = 4, timeout_seconds: float = 600.0, **limits: Any
    ) -> FunctionPool:
        code = tmp_path / f"code{len(pools)}"
        layer = tmp_path / f"layer{len(pools)}"
        (layer / "python").mkdir(parents=True)
        (layer / "python" / "from_layer.py").write_text("WORD = 'layered'\n")
        code.mkdir()
        (code / "handler.py").write_text(textwrap.dedent(source))
        function = FunctionSpec(
            logical_id="F",
            name=f"f{len(pools)}",
            arn="arn:aws:lambda:eu-central-1:123456789012:function:f",
            handler="handler.handler",
            runtime=RUNTIME,
            timeout_seconds=timeout_seconds,
            memory_mb=128,
            code_dir=code,
            layer_dirs=(layer,),
            environment={"GIVEN": "value"},
            reserved_concurrency=limits.pop("reserved", None),
        )
        launcher = Launcher(
            function,
            runtime_dir=runtime_dir,
            log_dir=tmp_path,
            dynamodb_endpoint="http://127.0.0.1:9",
        )
        pool = FunctionPool(
            launcher=launcher,
            min_environments=least,
            max_environments=most,
            rng=random.Random(1),
            **{"queue_seconds": 600.0, **limits},
        )
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        loop.run(pool.stop())


ECHO_HANDLER = """
    import json, os, signal, threading, time
    def handler(event, context):
        if "rawPath" not in event:
            return {"scheduled": event.get("detail-type")}
        return {
            "statusCode": 200,
            "headers": {"Content-Type": "application/json"},
            "body": json.dumps({
                "path": event["pathParameters"], "body": event.get("body"), "table": os.environ["TABLE"],
                "endpoint": os.environ["AWS_ENDPOINT_URL_DYNAMODB"], "redis": os.environ["REDIS"], "pid": os.getpid(),
            }),
        }
"""


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cloud assembly with one small function behind one route and one schedule."""
    folder = tmp_path_factory.mktemp("assembly")
    (folder / "asset.code").mkdir()
    (folder / "asset.code" / "handler.py").write_text(textwrap.dedent(ECHO_HANDLER))
    keys = [("pk", "HASH"), ("sk", "RANGE")]
    resources = {
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "BillingMode": "PAY_PER_REQUEST",
                "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in keys],
                "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
            },
        },
        "Registry": {"Type": "AWS::ElastiCache::ReplicationGroup"},
        "EchoFunction": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Handler": "handler.handler",
                "Runtime": RUNTIME,
                "Timeout": 600,
                "Code": {"S3Key": "code.zip"},
                "Environment": {
                    "Variables": {
                        "TABLE": {"Ref": "Table"},
                        "REDIS": {"Fn::GetAtt": ["Registry", "ConfigurationEndPoint.Port"]},
                    }
                },
            },
        },
        "Integration": {
            "Type": "AWS::ApiGatewayV2::Integration",
            "Properties": {"IntegrationUri": {"Fn::GetAtt": ["EchoFunction", "Arn"]}, "PayloadFormatVersion": "2.0"},
        },
        "Route": {
            "Type": "AWS::ApiGatewayV2::Route",
            "Properties": {"RouteKey": "POST /echo/{word}", "Target": {"Fn::Sub": "integrations/${Integration}"}},
        },
        "Schedule": {
            "Type": "AWS::Scheduler::Schedule",
            "Properties": {
                "ScheduleExpression": "rate(1 minute)",
                "Target": {"Arn": {"Fn::GetAtt": ["EchoFunction", "Arn"]}},
            },
        },
    }
    (folder / "s.assets.json").write_text(json.dumps({"files": {"code": {"source": {"path": "asset.code"}}}}))
    (folder / "s.template.json").write_text(json.dumps({"Resources": resources}))
    artifacts = {
        "s": {"type": "aws:cloudformation:stack", "properties": {"templateFile": "s.template.json"}},
        "s.assets": {"type": "cdk:asset-manifest", "properties": {"file": "s.assets.json"}},
    }
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    return folder
