"""Synthesizes the project's app, and reads a template: the local run starts what CloudFormation would create."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
API = "AWS::ApiGatewayV2::Api"
ROUTE = "AWS::ApiGatewayV2::Route"
INTEGRATION = "AWS::ApiGatewayV2::Integration"
SCHEDULE = "AWS::Scheduler::Schedule"

_ROOT = Path(__file__).resolve().parents[2]
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
    command = [sys.executable, str(_ROOT / "app.py"), *context, "-o", os.path.abspath(outdir)]  # noqa: PTH100, ASYNC240
    # Nothing is deployed, and the CDK's rules take longer than all else.
    variables = {**os.environ, "CDK_VALIDATION": "false", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1"}
    with log_path.open("wb") as log:
        process = await start_process(command, log=log, cwd=_ROOT, env=variables)
    try:
        status = await process.wait()
    finally:
        await kill(process)
    if status != 0:
        lines = [line for line in log_path.read_text(errors="replace").splitlines() if line.strip()]
        raise LocalRunError(f"synthesis failed: {lines[-1] if lines else f'status {status}'} (see {log_path})")
    return outdir


def read_stack(folder: Path, endpoints: Endpoints) -> Stack:
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
    assets: dict[str, Path] = {}
    for artifact in artifacts.values():
        if artifact["type"] == "cdk:asset-manifest":
            files = json.loads((folder / artifact["properties"]["file"]).read_text())["files"]
            assets |= {key: (folder / file["source"]["path"]).resolve() for key, file in files.items()}
    return _Reader(stack.get("stackName", name), template, assets, endpoints).read()


class _Template:
    """Resolves a template's intrinsic functions, as far as templates here use them.

    What has no local counterpart gets a made-up name, but no made-up attribute.
    """

    def __init__(
        self, stack_name: str, template: Mapping[str, Any], assets: Mapping[str, Path], endpoints: Endpoints
    ) -> None:
        self.stack_name = stack_name
        self.assets = assets
        self.resources: Mapping[str, Any] = template["Resources"]
        self._endpoints = endpoints
        self._parameters = template.get("Parameters", {})
        self._pseudo = {
            "AWS::Region": REGION,
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": stack_name,
            "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/local",
            "AWS::NoValue": _NO_VALUE,
        }
        self._functions: Mapping[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._get_att,
            "Fn::Join": lambda argument: argument[0].join(map(str, self.resolve(argument[1]))),
            "Fn::Sub": self._sub,
            "Fn::Select": lambda argument: self.resolve(argument[1])[int(self.resolve(argument[0]))],
            "Fn::Split": lambda argument: str(self.resolve(argument[1])).split(argument[0]),
        }

    def of(self, *types: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """List the resources of these types with their properties."""
        for logical_id, resource in self.resources.items():
            if resource["Type"] in types:
                yield logical_id, resource.get("Properties", {})

    def resolve(self, value: Any) -> Any:
        """Replace every intrinsic function in a value by what it stands for, or raise `LocalRunError` naming it."""
        if isinstance(value, list):
            return [r for element in value if (r := self.resolve(element)) is not _NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            if name in self._functions:
                return self._functions[name](argument)
            if name.startswith("Fn::"):
                raise LocalRunError(f"the template uses {name}, which the local run does not know")
        return {k: r for k, element in value.items() if (r := self.resolve(element)) is not _NO_VALUE}

    def _ref(self, name: str) -> Any:
        if name in self._pseudo:
            return self._pseudo[name]
        if name in self.resources:
            properties = self.resources[name].get("Properties", {})
            given = properties.get("TableName", properties.get("FunctionName"))
            return given if isinstance(given, str) else f"{self.stack_name}-{name}"
        if "Default" in self._parameters.get(name, {}):
            return self._parameters[name]["Default"]
        raise LocalRunError(f"the template refers to {name}, which has no value in the local run")

    def _get_att(self, argument: str | Sequence[str]) -> str:
        logical_id, _, attribute = (argument if isinstance(argument, str) else ".".join(argument)).partition(".")
        type_ = self.resources.get(logical_id, {}).get("Type", "")
        provided = {
            (REPLICATION_GROUP, "Address"): LOOPBACK,
            (REPLICATION_GROUP, "Port"): str(self._endpoints.redis_port),
            (API, "ApiEndpoint"): self._endpoints.api_url,
        }
        found = provided.get((type_, attribute.rpartition(".")[2]))
        if found is not None or (type_ and attribute == "Arn"):
            return found or self.arn(logical_id, type_)
        raise LocalRunError(f"the template asks for {attribute} of {logical_id}, which has no value in the local run")

    def arn(self, logical_id: str, type_: str) -> str:
        """Build a resource's ARN; a function's has the logical id, whatever name it is given."""
        place = f"{REGION}:{ACCOUNT}"
        if type_ in (FUNCTION, ALIAS, VERSION):
            return f"arn:aws:lambda:{place}:function:{self.stack_name}-{logical_id}"
        kind = "table/" if type_ in TABLES else ""
        return f"arn:aws:{type_.split('::')[1].lower()}:{place}:{kind}{self._ref(logical_id)}"

    def _sub(self, argument: str | Sequence[Any]) -> str:
        text, given = (argument, {}) if isinstance(argument, str) else (argument[0], argument[1])
        values = self.resolve(given)

        def replace_one(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("!"):
                return f"${{{name[1:]}}}"
            if name in values:
                return str(values[name])
            return str(self._get_att(name) if "." in name else self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", replace_one, text)


class _Reader(_Template):
    """Reads what is started."""

    def read(self) -> Stack:
        """Read the stack."""
        schedules = (self._schedule(*each) for each in self.of(SCHEDULE))
        types = {resource["Type"] for resource in self.resources.values()}
        unknown = sorted(t for t in types - _STARTED if not t.startswith(_WITHOUT_COUNTERPART))
        return Stack(
            name=self.stack_name,
            tables={self._ref(id_): self.resolve(table) for id_, table in self.of(*TABLES)},
            functions=self._functions_read,
            routes=tuple(self._route(*each) for each in self.of(ROUTE)),
            schedules=tuple(schedule for schedule in schedules if schedule is not None),
            has_redis=any(self.of(REPLICATION_GROUP)),
            warnings=tuple(f"{each} has no counterpart in the local run and is left out" for each in unknown),
        )

    @cached_property
    def _functions_read(self) -> tuple[FunctionSpec, ...]:
        """The functions. Each is called by its service, or by its logical id where several have that service.

        Left out are those that make custom resources: only CloudFormation calls them.
        """
        tokens = [resource.get("Properties", {}).get("ServiceToken") for resource in self.resources.values()]
        providers = {token["Fn::GetAtt"][0] for token in tokens if isinstance(token, dict)}
        functions = [self._function(*each) for each in self.of(FUNCTION) if each[0] not in providers]
        services = Counter(each.service for each in functions)
        return tuple(
            replace(each, name=each.service) if each.service and services[each.service] == 1 else each
            for each in functions
        )

    def _function(self, logical_id: str, properties: Mapping[str, Any]) -> FunctionSpec:
        environment = self.resolve(properties.get("Environment", {}).get("Variables", {}))
        layers, layer_ids = dict(self.of(LAYER)), [each.get("Ref") for each in properties.get("Layers", ())]
        if not layers.keys() >= set(layer_ids):
            raise LocalRunError(f"function {logical_id} uses a layer that is not in the template")
        reserved = properties.get("ReservedConcurrentExecutions")
        return FunctionSpec(
            logical_id=logical_id,
            name=_snake_case(logical_id),
            arn=self.arn(logical_id, FUNCTION),
            handler=self.resolve(properties["Handler"]),
            runtime=self.resolve(properties["Runtime"]),
            timeout_seconds=float(self.resolve(properties.get("Timeout", 3))),
            memory_mb=int(self.resolve(properties.get("MemorySize", 128))),
            code_dir=self._asset(logical_id, properties["Code"]),
            layer_dirs=tuple(self._asset(layer_id, layers[layer_id]["Content"]) for layer_id in layer_ids),
            environment={name: str(value) for name, value in environment.items()},
            service=environment.get("POWERTOOLS_SERVICE_NAME", ""),
            reserved_concurrency=None if reserved is None else int(self.resolve(reserved)),
            log_format=properties.get("LoggingConfig", {}).get("LogFormat", "Text"),
        )

    def _asset(self, logical_id: str, code: Mapping[str, Any]) -> Path:
        key = str(self.resolve(code.get("S3Key", ""))).rpartition("/")[2].removesuffix(".zip")
        path = self.assets.get(key)
        if path is None or not path.is_dir():
            raise LocalRunError(f"the asset of {logical_id} ({key or 'inline code'}) is not in the cloud assembly")
        return path

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The functions' names, by what a template calls them: ARN or name, an alias's or a version's as well."""
        names = {self._ref(each.logical_id): each.name for each in self._functions_read}
        names |= {each.arn: each.name for each in self._functions_read}
        for logical_id, properties in self.of(ALIAS, VERSION):
            name = names.get(self.resolve(properties["FunctionName"]))
            if name is not None:
                names |= {self.arn(logical_id, ALIAS): name, self._ref(logical_id): name}
        return names

    def _called(self, what: str, target: Any) -> str:
        name = self._names.get(self.resolve(target))
        if name is None:
            raise LocalRunError(f"{what} no function of the template")
        return name

    def _route(self, logical_id: str, properties: Mapping[str, Any]) -> RouteSpec:
        integrations = {self._ref(id_): integration for id_, integration in self.of(INTEGRATION)}
        target = str(self.resolve(properties.get("Target", ""))).removeprefix("integrations/")
        if target not in integrations:
            raise LocalRunError(f"route {logical_id} has no integration in the template")
        integration = integrations[target]
        if str(integration.get("PayloadFormatVersion")) != "2.0":
            raise LocalRunError(f"route {logical_id} wants another payload format than 2.0, the only one served here")
        function = self._called(f"route {logical_id} leads to", integration["IntegrationUri"])
        return RouteSpec(self.resolve(properties["RouteKey"]), function)

    def _schedule(self, logical_id: str, properties: Mapping[str, Any]) -> ScheduleSpec | None:
        if self.resolve(properties.get("State", "ENABLED")) != "ENABLED":
            return None
        target = properties["Target"]
        function = self._called(f"schedule {logical_id} starts", target["Arn"])
        seconds = _parse_rate(self.resolve(properties["ScheduleExpression"]))
        return ScheduleSpec(logical_id, function, seconds, self.resolve(target.get("Input")))


def _parse_rate(expression: str) -> float:
    """Return the seconds between two runs of a schedule `rate(<n> <unit>)`, the only form known here."""
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression.strip())
    if found is None:
        raise LocalRunError(f"the schedule {expression!r} is not of the form rate(<n> minutes|hours|days)")
    return int(found[1]) * {"minute": 60.0, "hour": 3600.0, "day": 86400.0}[found[2]]


def _snake_case(logical_id: str) -> str:
    """Turn `WriteMessageFunction6AB8B7CA` into `write_message`."""
    bare = re.sub(r"[0-9A-F]{8}$", "", logical_id).removesuffix("Function")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare or logical_id).lower()
