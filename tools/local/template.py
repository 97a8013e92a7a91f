"""Reads a synthesized template: the local run starts what CloudFormation would create."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.local.errors import LocalRunError
from tools.local.events import ACCOUNT, REGION
from tools.local.intrinsics import Intrinsics

LOOPBACK = "127.0.0.1"
TABLES = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")
FUNCTION = "AWS::Lambda::Function"
LAYER = "AWS::Lambda::LayerVersion"
ALIAS = "AWS::Lambda::Alias"
VERSION = "AWS::Lambda::Version"
REPLICATION_GROUP = "AWS::ElastiCache::ReplicationGroup"
API = "AWS::ApiGatewayV2::Api"
ROUTE = "AWS::ApiGatewayV2::Route"
INTEGRATION = "AWS::ApiGatewayV2::Integration"
SCHEDULE = "AWS::Scheduler::Schedule"

_STARTED = frozenset({*TABLES, FUNCTION, LAYER, ALIAS, VERSION, REPLICATION_GROUP, API, ROUTE, INTEGRATION, SCHEDULE})
_WITHOUT_COUNTERPART = (
    "AWS::ApiGatewayV2::Stage",  # its throttling and access log are API Gateway's own
    "AWS::ApiGatewayV2::Authorizer",  # authorization is not checked locally
    "AWS::CDK::Metadata",
    "AWS::CloudFormation::CustomResource",
    "AWS::CloudWatch::",
    "AWS::EC2::",
    "AWS::ElastiCache::ParameterGroup",
    "AWS::ElastiCache::SubnetGroup",
    "AWS::ElastiCache::User",  # also UserGroup
    "AWS::IAM::",
    "AWS::KMS::",
    "AWS::Lambda::EventInvokeConfig",  # retries of asynchronous invocations
    "AWS::Lambda::Permission",
    "AWS::Logs::",
    "AWS::SNS::",
    "AWS::SQS::",  # dead letters
    "AWS::Scheduler::ScheduleGroup",
    "Custom::",  # what they do, they do to AWS
)
"""Resource types, or beginnings of them, that the local run knows and leaves out."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function as the template describes it; `environment` is resolved once the endpoints are known."""

    logical_id: str
    name: str
    arn: str
    handler: str
    runtime: str
    timeout_seconds: float
    memory_mb: int
    code_dir: Path
    layer_dirs: tuple[Path, ...]
    environment: Mapping[str, str]
    service: str = ""
    reserved_concurrency: int | None = None
    log_format: str = "Text"


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """An HTTP API route and the function that serves it."""

    route_key: str
    function: str


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A schedule, its function and the event; `payload` None stands for EventBridge's own event."""

    name: str
    function: str
    every_seconds: float
    payload: str | None


@dataclass(frozen=True, slots=True)
class Stack:
    """Everything of a template that the local run starts; `tables` are properties by name."""

    name: str
    tables: Mapping[str, Mapping[str, Any]]
    functions: tuple[FunctionSpec, ...]
    routes: tuple[RouteSpec, ...]
    schedules: tuple[ScheduleSpec, ...]
    has_redis: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What the started parts put in place of AWS's attributes."""

    redis_port: int
    api_url: str


@dataclass(frozen=True, slots=True)
class Assembly:
    """A cloud assembly with one stack."""

    stack_name: str
    template: Mapping[str, Any]
    assets: Mapping[str, Path] = field(default_factory=dict)

    def resources(self, *types: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """List the resources of these types with their properties."""
        for logical_id, resource in self.template["Resources"].items():
            if resource["Type"] in types:
                yield logical_id, resource.get("Properties", {})


def read_assembly(folder: Path) -> Assembly:
    """Read the one stack of a cloud assembly."""
    manifest_path = folder / "manifest.json"
    if not manifest_path.is_file():
        raise LocalRunError(f"{folder} holds no cloud assembly: there is no manifest.json")
    artifacts = json.loads(manifest_path.read_text())["artifacts"]
    stacks = [(n, a) for n, a in artifacts.items() if a["type"] == "aws:cloudformation:stack"]
    if len(stacks) != 1:
        raise LocalRunError(f"the cloud assembly in {folder} should hold one stack, it holds {len(stacks)}")
    name, stack = stacks[0]
    template = json.loads((folder / stack["properties"]["templateFile"]).read_text())
    assets: dict[str, Path] = {}
    for artifact in artifacts.values():
        if artifact["type"] == "cdk:asset-manifest":
            files = json.loads((folder / artifact["properties"]["file"]).read_text())["files"]
            assets |= {key: (folder / file["source"]["path"]).resolve() for key, file in files.items()}
    return Assembly(stack["properties"].get("stackName", name), template, assets)


def read_stack(assembly: Assembly, endpoints: Endpoints) -> Stack:
    """Extract what the local run starts, with every reference resolved."""
    return _Reader(assembly, endpoints).read()


class _Reader:
    def __init__(self, assembly: Assembly, endpoints: Endpoints) -> None:
        self._assembly = assembly
        self._names = self._physical_names()
        self._intrinsics = Intrinsics(
            assembly.template,
            pseudo={
                "AWS::Region": REGION,
                "AWS::AccountId": ACCOUNT,
                "AWS::Partition": "aws",
                "AWS::URLSuffix": "amazonaws.com",
                "AWS::StackName": assembly.stack_name,
                "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/local",
            },
            provided=self._provided(endpoints),
            physical_names=self._names,
        )

    def read(self) -> Stack:
        resolve = self._intrinsics.resolve
        functions = self._functions()
        self._function_names = self._names_by_arn(functions)
        return Stack(
            name=self._assembly.stack_name,
            tables={resolve({"Ref": id_}): resolve(table) for id_, table in self._assembly.resources(*TABLES)},
            functions=functions,
            routes=tuple(self._route(*resource) for resource in self._assembly.resources(ROUTE)),
            schedules=tuple(
                schedule
                for resource in self._assembly.resources(SCHEDULE)
                if (schedule := self._schedule(*resource)) is not None
            ),
            has_redis=any(self._assembly.resources(REPLICATION_GROUP)),
            warnings=self._warnings(),
        )

    def _provided(self, endpoints: Endpoints) -> dict[tuple[str, str], str]:
        provided: dict[tuple[str, str], str] = {}
        for logical_id, _ in self._assembly.resources(REPLICATION_GROUP):
            for endpoint in ("ConfigurationEndPoint", "PrimaryEndPoint", "ReaderEndPoint"):
                provided[logical_id, f"{endpoint}.Address"] = LOOPBACK
                provided[logical_id, f"{endpoint}.Port"] = str(endpoints.redis_port)
        for logical_id, _ in self._assembly.resources(API):
            provided[logical_id, "ApiEndpoint"] = endpoints.api_url
        for logical_id, _ in self._assembly.resources(FUNCTION, ALIAS, VERSION):
            provided[logical_id, "Arn"] = self._function_arn(logical_id)
        for logical_id, _ in self._assembly.resources(*TABLES):
            name = self._names[logical_id]
            provided[logical_id, "Arn"] = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"
        return provided

    def _physical_names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for logical_id, resource in self._assembly.template["Resources"].items():
            properties = resource.get("Properties", {})
            given = next((properties[k] for k in ("TableName", "FunctionName") if k in properties), None)
            names[logical_id] = given if isinstance(given, str) else f"{self._assembly.stack_name}-{logical_id}"
        return names

    def _function_arn(self, logical_id: str) -> str:
        name = f"{self._assembly.stack_name}-{logical_id}"
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"

    def _functions(self) -> tuple[FunctionSpec, ...]:
        """Read the functions. Each is called by its service, or by its logical id where several have that service."""
        providers = self._providers()
        functions = [self._function(*each) for each in self._assembly.resources(FUNCTION) if each[0] not in providers]
        services = Counter(each.service for each in functions)
        return tuple(
            replace(each, name=each.service) if each.service and services[each.service] == 1 else each
            for each in functions
        )

    def _providers(self) -> frozenset[str]:
        """List the functions that make custom resources, by logical id: only CloudFormation calls them."""
        resources = self._assembly.template["Resources"].values()
        tokens = [resource.get("Properties", {}).get("ServiceToken") for resource in resources]
        return frozenset(token["Fn::GetAtt"][0] for token in tokens if isinstance(token, dict))

    def _function(self, logical_id: str, properties: Mapping[str, Any]) -> FunctionSpec:
        resolve = self._intrinsics.resolve
        environment = resolve(properties.get("Environment", {}).get("Variables", {}))
        layer_ids = [
            layer["Ref"] for layer in properties.get("Layers", ()) if isinstance(layer, dict) and "Ref" in layer
        ]
        if len(layer_ids) != len(properties.get("Layers", ())):
            raise LocalRunError(f"function {logical_id} uses a layer that is not in the template")
        layers = dict(self._assembly.resources(LAYER))
        reserved = properties.get("ReservedConcurrentExecutions")
        return FunctionSpec(
            logical_id=logical_id,
            name=_snake_case(logical_id),
            arn=self._function_arn(logical_id),
            handler=resolve(properties["Handler"]),
            runtime=resolve(properties["Runtime"]),
            timeout_seconds=float(resolve(properties.get("Timeout", 3))),
            memory_mb=int(resolve(properties.get("MemorySize", 128))),
            code_dir=self._asset(logical_id, properties["Code"]),
            layer_dirs=tuple(self._asset(layer_id, layers[layer_id]["Content"]) for layer_id in layer_ids),
            environment={name: str(value) for name, value in environment.items()},
            service=environment.get("POWERTOOLS_SERVICE_NAME", ""),
            reserved_concurrency=None if reserved is None else int(resolve(reserved)),
            log_format=properties.get("LoggingConfig", {}).get("LogFormat", "Text"),
        )

    def _asset(self, logical_id: str, code: Mapping[str, Any]) -> Path:
        key = str(self._intrinsics.resolve(code.get("S3Key", ""))).rpartition("/")[2].removesuffix(".zip")
        path = self._assembly.assets.get(key)
        if path is None or not path.is_dir():
            raise LocalRunError(f"the asset of {logical_id} ({key or 'inline code'}) is not in the cloud assembly")
        return path

    def _names_by_arn(self, functions: Iterable[FunctionSpec]) -> dict[str, str]:
        by_arn = {function.arn: function.name for function in functions}
        by_physical = {self._intrinsics.resolve({"Ref": f.logical_id}): f.name for f in functions}
        for logical_id, properties in self._assembly.resources(ALIAS, VERSION):
            target = self._intrinsics.resolve(properties["FunctionName"])
            name = by_arn.get(target) or by_physical.get(target)
            if name is not None:
                by_arn[self._function_arn(logical_id)] = name
                by_arn[self._intrinsics.resolve({"Ref": logical_id})] = name
        return by_arn | by_physical

    def _route(self, logical_id: str, properties: Mapping[str, Any]) -> RouteSpec:
        integrations = {
            self._intrinsics.resolve({"Ref": id_}): integration
            for id_, integration in self._assembly.resources(INTEGRATION)
        }
        target = str(self._intrinsics.resolve(properties.get("Target", ""))).removeprefix("integrations/")
        if target not in integrations:
            raise LocalRunError(f"route {logical_id} has no integration in the template")
        integration = integrations[target]
        if str(integration.get("PayloadFormatVersion")) != "2.0":
            raise LocalRunError(f"route {logical_id} wants another payload format than 2.0, the only one served here")
        function = self._function_names.get(self._intrinsics.resolve(integration["IntegrationUri"]))
        if function is None:
            raise LocalRunError(f"route {logical_id} leads to no function of the template")
        return RouteSpec(self._intrinsics.resolve(properties["RouteKey"]), function)

    def _schedule(self, logical_id: str, properties: Mapping[str, Any]) -> ScheduleSpec | None:
        if self._intrinsics.resolve(properties.get("State", "ENABLED")) != "ENABLED":
            return None
        target = properties["Target"]
        function = self._function_names.get(self._intrinsics.resolve(target["Arn"]))
        if function is None:
            raise LocalRunError(f"schedule {logical_id} starts no function of the template")
        seconds = parse_rate(self._intrinsics.resolve(properties["ScheduleExpression"]))
        payload = self._intrinsics.resolve(target["Input"]) if "Input" in target else None
        return ScheduleSpec(logical_id, function, seconds, payload)

    def _warnings(self) -> tuple[str, ...]:
        types = {resource["Type"] for resource in self._assembly.template["Resources"].values()}
        unknown = sorted(t for t in types - _STARTED if not t.startswith(_WITHOUT_COUNTERPART))
        return tuple(f"{type_} has no counterpart in the local run and is left out" for type_ in unknown)


def parse_rate(expression: str) -> float:
    """Return the seconds between two runs of a schedule `rate(<n> <unit>)`, the only form known here."""
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression.strip())
    if found is None:
        raise LocalRunError(f"the schedule {expression!r} is not of the form rate(<n> minutes|hours|days)")
    return int(found[1]) * {"minute": 60.0, "hour": 3600.0, "day": 86400.0}[found[2]]


def _snake_case(logical_id: str) -> str:
    """Turn `WriteMessageFunction6AB8B7CA` into `write_message`."""
    bare = re.sub(r"[0-9A-F]{8}$", "", logical_id).removesuffix("Function")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare or logical_id).lower()
