"""Synthesizes the project's app, and reads a template: the local run starts what CloudFormation would create."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tools.local.events import ACCOUNT, REGION
from tools.local.processes import LocalRunError, kill, start_process

LOOPBACK = "127.0.0.1"
TABLES = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")
FUNCTION = "AWS::Lambda::Function"
LAYER = "AWS::Lambda::LayerVersion"
ALIAS = "AWS::Lambda::Alias"
VERSION = "AWS::Lambda::Version"
REPLICATION_GROUP = "AWS::ElastiCache::ReplicationGroup"
ENDS = ("Configuration", "Primary", "Reader")
API = "AWS::ApiGatewayV2::Api"
ROUTE = "AWS::ApiGatewayV2::Route"
INTEGRATION = "AWS::ApiGatewayV2::Integration"
SCHEDULE = "AWS::Scheduler::Schedule"

ROOT = Path(__file__).resolve().parents[2]
_NO_VALUE = object()
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
_TAKEN_OVER = ("AttributeDefinitions", "KeySchema", "LocalSecondaryIndexes", "IndexName", "Projection")
"""What CreateTable takes over of a table and its indexes; the rest (recovery, encryption) has no local effect."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function as the template describes it."""

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
class ScheduleSpec:
    """A schedule, its function and the event; `payload` None stands for EventBridge's own event."""

    name: str
    function: str
    every_seconds: float
    payload: str | None


@dataclass(frozen=True, slots=True)
class Stack:
    """Everything of a template that the local run starts: properties of tables by name, functions by route key."""

    name: str
    tables: Mapping[str, Mapping[str, Any]]
    functions: tuple[FunctionSpec, ...]
    routes: Mapping[str, str]
    schedules: tuple[ScheduleSpec, ...]
    has_redis: bool
    warnings: tuple[str, ...] = ()


def creation_request(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Build the request that makes a table of the template, empty and on demand."""
    table, *indexes = (
        {member: each[member] for member in _TAKEN_OVER if member in each}
        for each in (properties, *properties.get("GlobalSecondaryIndexes", ()))
    )
    of_indexes = {"GlobalSecondaryIndexes": indexes} if indexes else {}
    return {"TableName": name, "BillingMode": "PAY_PER_REQUEST", **table, **of_indexes}


async def synthesize(
    outdir: Path, *, environment: str = "dev", settings: Mapping[str, Any], options: Mapping[str, Any]
) -> Path:
    """Run app.py and return the folder of the cloud assembly, or raise `LocalRunError` with what app.py said."""
    shutil.rmtree(outdir, ignore_errors=True)
    outdir.parent.mkdir(parents=True, exist_ok=True)
    log_path = outdir.parent / "synthesis.log"
    context = ["-c", f"environment={'local' if environment == 'dev' else f'local-{environment}'}"]
    for key, changes in (("settings", settings), ("options", options)):
        if changes:
            context += ["-c", f"{key}={json.dumps(changes)}"]
    command = [sys.executable, str(ROOT / "app.py"), *context, "-o", os.path.abspath(outdir)]  # noqa: PTH100, ASYNC240
    # Nothing is deployed, and the CDK's rules take longer than all else.
    variables = {**os.environ, "CDK_VALIDATION": "false", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1"}
    with log_path.open("wb") as log:
        process = await start_process(command, log=log, cwd=ROOT, env=variables)
    try:
        status = await process.wait()
    finally:
        await kill(process)
    if status != 0:
        lines = [line for line in log_path.read_text(errors="replace").splitlines() if line.strip()]
        raise LocalRunError(f"synthesis failed: {lines[-1] if lines else f'status {status}'} (see {log_path})")
    return outdir


def read_stack(folder: Path, *, redis_port: int, api_url: str) -> Stack:
    """Read what the local run starts of a cloud assembly's one stack, with every reference resolved."""
    manifest_path = folder / "manifest.json"
    if not manifest_path.is_file():
        raise LocalRunError(f"{folder} holds no cloud assembly: there is no manifest.json")
    artifacts = json.loads(manifest_path.read_text())["artifacts"]
    stacks = [(n, a["properties"]) for n, a in artifacts.items() if a["type"] == "aws:cloudformation:stack"]
    if len(stacks) != 1:
        raise LocalRunError(f"the cloud assembly in {folder} should hold one stack, it holds {len(stacks)}")
    ((name, stack),) = stacks
    template = json.loads((folder / stack["templateFile"]).read_text())
    place = {"Address": LOOPBACK, "Port": str(redis_port)}
    assets: dict[str, Path] = {}
    for artifact in artifacts.values():
        if artifact["type"] == "cdk:asset-manifest":
            files = json.loads((folder / artifact["properties"]["file"]).read_text())["files"]
            assets |= {key: (folder / file["source"]["path"]).resolve() for key, file in files.items()}
    redis = {f"{end}EndPoint.{part}": value for end in ENDS for part, value in place.items()}
    attributes = {REPLICATION_GROUP: redis, API: {"ApiEndpoint": api_url}}
    return _Template(stack.get("stackName", name), template, assets, attributes).read()


class _Template:
    """Reads a template, with its intrinsic functions resolved as far as templates here use them.

    What has no local counterpart gets a made-up name and ARN, but no other attribute.
    """

    def __init__(
        self,
        stack_name: str,
        template: Mapping[str, Any],
        assets: Mapping[str, Path],
        attributes: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._stack_name = stack_name
        self._assets = assets
        self._resources: Mapping[str, Any] = template["Resources"]
        parameters = template.get("Parameters", {}).items()
        self._values = {
            "AWS::Region": REGION,
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": stack_name,
            "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/local",
            "AWS::NoValue": _NO_VALUE,
            **{name: parameter["Default"] for name, parameter in parameters if "Default" in parameter},
            **{logical_id: self._name(logical_id) for logical_id in self._resources},
        }
        """What `Ref` stands for, and what `Fn::GetAtt` does under id and attribute, with a dot in between."""
        for logical_id, resource in self._resources.items():
            found = {"Arn": self._arn(logical_id), **attributes.get(resource["Type"], {})}
            self._values |= {f"{logical_id}.{attribute}": value for attribute, value in found.items()}

    def read(self) -> Stack:
        """Read the stack."""
        schedules = (self._schedule(*each) for each in self._of(SCHEDULE))
        types = {resource["Type"] for resource in self._resources.values()}
        unknown = sorted(t for t in types - _STARTED if not t.startswith(_WITHOUT_COUNTERPART))
        return Stack(
            name=self._stack_name,
            tables={self._values[id_]: self._resolve(table) for id_, table in self._of(*TABLES)},
            functions=tuple(self._functions.values()),
            routes=dict(self._route(*each) for each in self._of(ROUTE)),
            schedules=tuple(schedule for schedule in schedules if schedule is not None),
            has_redis=any(self._of(REPLICATION_GROUP)),
            warnings=tuple(f"{each} has no counterpart in the local run and is left out" for each in unknown),
        )

    def _of(self, *types: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """List the resources of these types with their properties."""
        for logical_id, resource in self._resources.items():
            if resource["Type"] in types:
                yield logical_id, resource.get("Properties", {})

    # Intrinsic functions.

    def _resolve(self, value: Any) -> Any:
        """Replace every intrinsic function in a value by what it stands for, or raise `LocalRunError` naming it."""
        match value:
            case list():
                return [r for element in value if (r := self._resolve(element)) is not _NO_VALUE]
            case {"Ref": str(name)}:
                return self._value(name)
            case {"Fn::GetAtt": argument}:
                return self._value(argument if isinstance(argument, str) else ".".join(argument))
            case {"Fn::Join": [separator, parts]}:
                return separator.join(map(str, self._resolve(parts)))
            case {"Fn::Sub": argument}:
                text, given = (argument, {}) if isinstance(argument, str) else argument
                return self._substitute(text, self._resolve(given))
            case {"Fn::Select": [index, parts]}:
                return self._resolve(parts)[int(self._resolve(index))]
            case {"Fn::Split": [separator, text]}:
                return str(self._resolve(text)).split(separator)
            case dict():
                if unknown := [name for name in value if name.startswith("Fn::")]:
                    raise LocalRunError(f"the template uses {unknown[0]}, which the local run does not know")
                return {k: r for k, element in value.items() if (r := self._resolve(element)) is not _NO_VALUE}
        return value

    def _value(self, name: str) -> Any:
        if name not in self._values:
            raise LocalRunError(f"the template refers to {name}, which has no value in the local run")
        return self._values[name]

    def _name(self, logical_id: str) -> str:
        properties = self._resources[logical_id].get("Properties", {})
        given = properties.get("TableName", properties.get("FunctionName"))
        return given if isinstance(given, str) else f"{self._stack_name}-{logical_id}"

    def _arn(self, logical_id: str) -> str:
        """Build a resource's ARN; a function's has the logical id, whatever name it is given."""
        type_ = self._resources[logical_id]["Type"]
        if type_ in (FUNCTION, ALIAS, VERSION):
            return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self._stack_name}-{logical_id}"
        kind = "table/" if type_ in TABLES else ""
        return f"arn:aws:{type_.split('::')[1].lower()}:{REGION}:{ACCOUNT}:{kind}{self._values[logical_id]}"

    def _substitute(self, text: str, given: Mapping[str, Any]) -> str:
        def replace_one(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("!"):
                return f"${{{name[1:]}}}"
            if name in given:
                return str(given[name])
            return str(self._value(name))

        return re.sub(r"\$\{([^}]+)\}", replace_one, text)

    # What is started.

    @cached_property
    def _functions(self) -> Mapping[str, FunctionSpec]:
        """The functions. Each is called by its service, or by its logical id where several have that service.

        Left out are those that make custom resources: only CloudFormation calls them.
        """
        tokens = [resource.get("Properties", {}).get("ServiceToken") for resource in self._resources.values()]
        providers = {token["Fn::GetAtt"][0] for token in tokens if isinstance(token, dict)}
        functions = {id_: self._function(id_, each) for id_, each in self._of(FUNCTION) if id_ not in providers}
        services = Counter(each.service for each in functions.values())
        return {
            id_: replace(each, name=each.service) if each.service and services[each.service] == 1 else each
            for id_, each in functions.items()
        }

    def _function(self, logical_id: str, properties: Mapping[str, Any]) -> FunctionSpec:
        environment = self._resolve(properties.get("Environment", {}).get("Variables", {}))
        layers, layer_ids = dict(self._of(LAYER)), [each.get("Ref") for each in properties.get("Layers", ())]
        if not layers.keys() >= set(layer_ids):
            raise LocalRunError(f"function {logical_id} uses a layer that is not in the template")
        reserved = properties.get("ReservedConcurrentExecutions")
        return FunctionSpec(
            name=_snake_case(logical_id),
            arn=self._arn(logical_id),
            handler=self._resolve(properties["Handler"]),
            runtime=self._resolve(properties["Runtime"]),
            timeout_seconds=float(self._resolve(properties.get("Timeout", 3))),
            memory_mb=int(self._resolve(properties.get("MemorySize", 128))),
            code_dir=self._asset(logical_id, properties["Code"]),
            layer_dirs=tuple(self._asset(layer_id, layers[layer_id]["Content"]) for layer_id in layer_ids),
            environment={name: str(value) for name, value in environment.items()},
            service=environment.get("POWERTOOLS_SERVICE_NAME", ""),
            reserved_concurrency=None if reserved is None else int(self._resolve(reserved)),
            log_format=properties.get("LoggingConfig", {}).get("LogFormat", "Text"),
        )

    def _asset(self, logical_id: str, code: Mapping[str, Any]) -> Path:
        key = str(self._resolve(code.get("S3Key", ""))).rpartition("/")[2].removesuffix(".zip")
        path = self._assets.get(key)
        if path is None or not path.is_dir():
            raise LocalRunError(f"the asset of {logical_id} ({key or 'inline code'}) is not in the cloud assembly")
        return path

    def _called(self, what: str, target: Any) -> str:
        """Return the name of the function that a target means by ARN or name, or by an alias's or a version's."""
        called = self._resolve(target)
        for logical_id, properties in self._of(ALIAS, VERSION):
            if called in (self._arn(logical_id), self._values[logical_id]):
                return self._called(what, properties["FunctionName"])
        for logical_id, function in self._functions.items():
            if called in (function.arn, self._values[logical_id]):
                return function.name
        raise LocalRunError(f"{what} no function of the template")

    def _route(self, logical_id: str, properties: Mapping[str, Any]) -> tuple[str, str]:
        integrations = {self._values[id_]: integration for id_, integration in self._of(INTEGRATION)}
        target = str(self._resolve(properties.get("Target", ""))).removeprefix("integrations/")
        if target not in integrations:
            raise LocalRunError(f"route {logical_id} has no integration in the template")
        integration = integrations[target]
        if str(integration.get("PayloadFormatVersion")) != "2.0":
            raise LocalRunError(f"route {logical_id} wants another payload format than 2.0, the only one served here")
        function = self._called(f"route {logical_id} leads to", integration["IntegrationUri"])
        return self._resolve(properties["RouteKey"]), function

    def _schedule(self, logical_id: str, properties: Mapping[str, Any]) -> ScheduleSpec | None:
        if self._resolve(properties.get("State", "ENABLED")) != "ENABLED":
            return None
        target, expression = properties["Target"], self._resolve(properties["ScheduleExpression"])
        found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression.strip())
        if found is None:
            raise LocalRunError(f"the schedule {expression!r} is not of the form rate(<n> minutes|hours|days)")
        seconds = int(found[1]) * {"minute": 60.0, "hour": 3600.0, "day": 86400.0}[found[2]]
        function = self._called(f"schedule {logical_id} starts", target["Arn"])
        return ScheduleSpec(logical_id, function, seconds, self._resolve(target.get("Input")))


def _snake_case(logical_id: str) -> str:
    """Turn `WriteMessageFunction6AB8B7CA` into `write_message`."""
    bare = re.sub(r"[0-9A-F]{8}$", "", logical_id).removesuffix("Function")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare or logical_id).lower()
