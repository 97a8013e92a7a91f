from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotpartition.dynamodb.table import JournalPlace
from tools.local.errors import LocalRunError
from tools.local.intrinsics import Intrinsics
from tools.local.run import find_journals
from tools.local.template import Endpoints, RouteSpec, ScheduleSpec, parse_rate, read_assembly, read_stack

ENDPOINTS = Endpoints("127.0.0.1", 7000, "http://127.0.0.1:8000", "eu-central-1")


def _resources() -> dict[str, Any]:
    return {
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "BillingMode": "PAY_PER_REQUEST",
                "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
            },
        },
        "Registry": {"Type": "AWS::ElastiCache::ReplicationGroup", "Properties": {}},
        "Layer": {"Type": "AWS::Lambda::LayerVersion", "Properties": {"Content": {"S3Key": "layer.zip"}}},
        "EchoTextFunction0123ABCD": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Handler": "handler.handler",
                "Runtime": "python3.13",
                "Timeout": 7,
                "MemorySize": 256,
                "ReservedConcurrentExecutions": 2,
                "Code": {"S3Bucket": {"Fn::Sub": "b-${AWS::Region}"}, "S3Key": "code.zip"},
                "Layers": [{"Ref": "Layer"}],
                "Environment": {
                    "Variables": {
                        "TABLE": {"Ref": "Table"},
                        "REDIS": {
                            "Fn::Join": [
                                ":",
                                [
                                    {"Fn::GetAtt": ["Registry", "ConfigurationEndPoint.Address"]},
                                    {"Fn::GetAtt": ["Registry", "ConfigurationEndPoint.Port"]},
                                ],
                            ]
                        },
                    }
                },
            },
        },
        "Api": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {}},
        "Integration": {
            "Type": "AWS::ApiGatewayV2::Integration",
            "Properties": {
                "IntegrationUri": {"Fn::GetAtt": ["EchoTextFunction0123ABCD", "Arn"]},
                "PayloadFormatVersion": "2.0",
            },
        },
        "Route": {
            "Type": "AWS::ApiGatewayV2::Route",
            "Properties": {
                "RouteKey": "GET /a/{b}",
                "Target": {"Fn::Join": ["", ["integrations/", {"Ref": "Integration"}]]},
            },
        },
        "Schedule": {
            "Type": "AWS::Scheduler::Schedule",
            "Properties": {
                "ScheduleExpression": "rate(2 minutes)",
                "Target": {"Arn": {"Fn::GetAtt": ["EchoTextFunction0123ABCD", "Arn"]}, "Input": '{"a": 1}'},
            },
        },
        "Group": {"Type": "AWS::Logs::LogGroup"},
    }


def _write_assembly(folder: Path, resources: dict[str, Any]) -> Path:
    (folder / "asset.code").mkdir()
    (folder / "asset.layer").mkdir()
    files = {name: {"source": {"path": f"asset.{name}"}} for name in ("code", "layer")}
    (folder / "s.assets.json").write_text(json.dumps({"files": files}))
    (folder / "s.template.json").write_text(json.dumps({"Resources": resources}))
    artifacts = {
        "s": {"type": "aws:cloudformation:stack", "properties": {"templateFile": "s.template.json"}},
        "s.assets": {"type": "cdk:asset-manifest", "properties": {"file": "s.assets.json"}},
    }
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    return folder


def test_a_template_says_what_is_started(tmp_path: Path) -> None:
    """Function, route and schedule come out with every reference resolved."""
    stack = read_stack(read_assembly(_write_assembly(tmp_path, _resources())), ENDPOINTS)
    (function,) = stack.functions
    assert list(stack.tables) == ["s-Table"]
    assert function.name == "echo_text"
    assert (function.timeout_seconds, function.memory_mb, function.reserved_concurrency) == (7.0, 256, 2)
    assert function.environment == {"TABLE": "s-Table", "REDIS": "127.0.0.1:7000"}
    assert function.code_dir == tmp_path / "asset.code"
    assert function.layer_dirs == (tmp_path / "asset.layer",)
    assert stack.routes == (RouteSpec("GET /a/{b}", "echo_text"),)
    assert stack.schedules == (ScheduleSpec("Schedule", "echo_text", 120.0, '{"a": 1}'),)
    assert stack.warnings == ()


def test_several_tables_and_functions_of_one_service(tmp_path: Path) -> None:
    """Tables of either type keep their names; functions of the same service are told apart by their logical ids."""
    resources = _resources()
    echo = resources["EchoTextFunction0123ABCD"]
    for name, service in (
        ("ReadingsOperate89ABCDEF", "operate"),
        ("RoomsOperate89ABCDEF", "operate"),
        ("Jobs", "jobs"),
    ):
        variables = {"Variables": {"POWERTOOLS_SERVICE_NAME": service}}
        resources[name] = {**echo, "Properties": {**echo["Properties"], "Environment": variables}}
    resources["Readings"] = {"Type": "AWS::DynamoDB::GlobalTable", "Properties": {"TableName": "readings"}}
    variables = echo["Properties"]["Environment"]["Variables"]
    variables["ARN"] = {"Fn::GetAtt": ["Readings", "Arn"]}
    stack = read_stack(read_assembly(_write_assembly(tmp_path, resources)), ENDPOINTS)
    assert list(stack.tables) == ["s-Table", "readings"]
    assert [function.name for function in stack.functions] == ["echo_text", "readings_operate", "rooms_operate", "jobs"]
    assert stack.functions[0].environment["ARN"] == "arn:aws:dynamodb:eu-central-1:123456789012:table/readings"


def test_each_tables_routes_are_found_where_its_operations_function_looks(tmp_path: Path) -> None:
    """Whatever its keys are called; a table that nobody operates has none."""
    resources = _resources()
    echo = resources["EchoTextFunction0123ABCD"]
    told = {"TABLE_NAME": "readings", "REGISTRY_HOST": "h", "PARTITION_KEY_NAME": "Site", "SORT_KEY_NAME": "At"}
    variables = {f"HOTPARTITION_{name}": value for name, value in told.items()}
    variables["POWERTOOLS_SERVICE_NAME"] = "operate"
    resources["Operate"] = {**echo, "Properties": {**echo["Properties"], "Environment": {"Variables": variables}}}
    stack = read_stack(read_assembly(_write_assembly(tmp_path, resources)), ENDPOINTS)
    (place,) = find_journals(stack.functions).values()
    key = {"Site": {"S": "plant-1"}, "At": {"S": "r#"}}
    assert JournalPlace(**place).build_get("plant-1", is_strong=False).request == {
        "TableName": "readings",
        "Key": key,
        "ConsistentRead": False,
    }


def test_what_makes_custom_resources_is_left_out(tmp_path: Path) -> None:
    """CloudFormation calls such a function, in whatever language the CDK wrote it."""
    resources = _resources()
    properties = {**resources["EchoTextFunction0123ABCD"]["Properties"], "Runtime": "nodejs22.x"}
    resources["Provider"] = {"Type": "AWS::Lambda::Function", "Properties": properties}
    token = {"Fn::GetAtt": ["Provider", "Arn"]}
    resources["Rules"] = {"Type": "Custom::VpcRestrictDefaultSG", "Properties": {"ServiceToken": token}}
    stack = read_stack(read_assembly(_write_assembly(tmp_path, resources)), ENDPOINTS)
    assert ([function.name for function in stack.functions], stack.warnings) == (["echo_text"], ())


def test_an_unknown_resource_type_is_one_warning(tmp_path: Path) -> None:
    """A type that nobody thought of is named, once."""
    resources = _resources() | {f"Queue{n}": {"Type": "AWS::Kinesis::Stream"} for n in range(2)}
    stack = read_stack(read_assembly(_write_assembly(tmp_path, resources)), ENDPOINTS)
    assert stack.warnings == ("AWS::Kinesis::Stream has no counterpart in the local run and is left out",)


def test_an_attribute_without_a_local_value_is_one_clear_error(tmp_path: Path) -> None:
    """A function that wants something the local run cannot give does not start with a made-up value."""
    resources = _resources()
    variables = resources["EchoTextFunction0123ABCD"]["Properties"]["Environment"]["Variables"]
    variables["X"] = {"Fn::GetAtt": ["Table", "StreamArn"]}
    with pytest.raises(LocalRunError, match="StreamArn of Table"):
        read_stack(read_assembly(_write_assembly(tmp_path, resources)), ENDPOINTS)


def test_a_missing_asset_is_one_clear_error(tmp_path: Path) -> None:
    """Code that the assembly does not hold is named."""
    resources = _resources()
    resources["Layer"]["Properties"]["Content"]["S3Key"] = "other.zip"
    with pytest.raises(LocalRunError, match=r"asset of Layer \(other\)"):
        read_stack(read_assembly(_write_assembly(tmp_path, resources)), ENDPOINTS)


def test_a_folder_without_an_assembly_is_one_clear_error(tmp_path: Path) -> None:
    """The folder is named."""
    with pytest.raises(LocalRunError, match="holds no cloud assembly"):
        read_assembly(tmp_path)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "AWS::Region"}, "r"),
        ({"Ref": "Param"}, "given"),
        ({"Fn::Sub": "${AWS::Region}-${Thing.Port}-${!Literal}"}, "r-1-${Literal}"),
        ({"Fn::Sub": ["${x}", {"x": {"Ref": "Thing"}}]}, "thing"),
        ({"Fn::Select": [1, {"Fn::Split": [",", "a,b"]}]}, "b"),
        ([{"Ref": "AWS::NoValue"}, 1], [1]),
    ],
)
def test_intrinsic_functions(value: object, expected: object) -> None:
    """Each function gives what CloudFormation would."""
    template = {
        "Resources": {"Thing": {"Type": "A::B::C"}},
        "Parameters": {"Param": {"Default": "given"}},
    }
    intrinsics = Intrinsics(
        template,
        pseudo={"AWS::Region": "r", "AWS::AccountId": "1"},
        provided={("Thing", "Port"): "1"},
        physical_names={"Thing": "thing"},
    )
    assert intrinsics.resolve(value) == expected


def test_rates() -> None:
    """Rates are seconds; anything else is refused."""
    assert [parse_rate(f"rate({text})") for text in ("1 minute", "2 hours", "1 day")] == [60.0, 7200.0, 86400.0]
    with pytest.raises(LocalRunError, match="cron"):
        parse_rate("cron(0 * * * ? *)")
