"""What is synthesized for the tests, once, and questions about it: tests name decisions instead of paths into JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hotpartition.runtime.settings import Settings

SettingsT = TypeVar("SettingsT", bound=Settings)

FUNCTIONS = {
    "write_message": "write",
    "read_messages": "read",
    "consume_reports": "consumer",
    "operate": "operate",
}
"""The functions' names among the settings, by folder."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"environment": name} for name in ("dev", "lite", "local")},
    "prod": {"environment": "prod", "options": {"alarms": {"is_silent": True}}},
    # A setting as the context of a command line has it.
    "changed": {"environment": "prod", "config": "changed.toml", "settings": '{"max_shard_count": 64}'},
    # The context on the command line has the last word over the file.
    "staging": {
        "environment": "staging",
        "config": "staging.toml",
        "options": {"consumer_concurrency": 4},
        "settings": {"max_shard_count": 32},
    },
}
"""What is synthesized, by context; each option stands in one of them, or in its file beside this one."""


@dataclass(frozen=True, slots=True)
class Template:
    """A stack's template, and the folder of its assembly."""

    body: dict[str, Any]
    folder: Path

    @classmethod
    def read(cls, folder: Path) -> Template:
        """Read the one template of an assembly."""
        (file,) = folder.glob("*.template.json")
        return cls(json.loads(file.read_text()), folder)

    def of_type(self, type_: str) -> dict[str, dict[str, Any]]:
        """Find all resources of a type, by logical id."""
        return {id_: resource for id_, resource in self.body["Resources"].items() if resource["Type"] == type_}

    def all(self, type_: str) -> list[dict[str, Any]]:
        """Find the properties of all resources of a type."""
        return [resource["Properties"] for resource in self.of_type(type_).values()]

    def only(self, type_: str) -> dict[str, Any]:
        """Find the properties of the one resource of a type."""
        (properties,) = self.all(type_)
        return properties

    def alarms(self) -> dict[str, dict[str, Any]]:
        """Find the properties of the alarms by their names without the stack's."""
        return {alarm["AlarmName"].rpartition("-")[2]: alarm for alarm in self.all("AWS::CloudWatch::Alarm")}

    def function(self, name: str) -> dict[str, Any]:
        """Find a function's properties by the name of its folder, or of the module of its handler."""
        (found,) = [
            function
            for function in self.all("AWS::Lambda::Function")
            if name == function["Environment"]["Variables"].get("POWERTOOLS_SERVICE_NAME")
            or function.get("Handler") == f"{name}.handler"
        ]
        return found

    def settings(self, name: str, known_as: str, kind: type[SettingsT]) -> SettingsT:
        """Read a function's environment as the function does; it has no variables beyond that.

        Names stand for what CloudFormation fills in.
        """
        given = self.function(name)["Environment"]["Variables"]
        variables = {key: re.sub(r"\$\{(\w+)[^}]*\}", r"\1", short_name(value)) for key, value in given.items()}
        ours = {f"HOTPARTITION_{each.upper()}" for each in kind.declared(known_as)}
        assert {each for each in variables if not each.startswith("POWERTOOLS_")} <= ours
        ports = {key: "6379" for key in variables if key.endswith("_PORT")}
        return kind.from_env(variables | ports, known_as)

    def rights(self, function: Mapping[str, Any]) -> set[tuple[str, str, str]]:
        """List what a function may do by the policies of its role: action, resource and condition (JSON)."""
        role = {"Ref": function["Role"]["Fn::GetAtt"][0]}
        statements = [
            statement
            for policy in self.all("AWS::IAM::Policy")
            if role in policy["Roles"]
            for statement in policy["PolicyDocument"]["Statement"]
        ]
        assert {statement["Effect"] for statement in statements} == {"Allow"}
        return {
            (action, short_name(resource), json.dumps(statement.get("Condition", {}), sort_keys=True))
            for statement in statements
            for action in _listed(statement["Action"])
            for resource in _listed(statement["Resource"])
        }


def short_name(value: Any) -> str:
    """Write a value of the template as one text: `${LogicalId.Attribute}` for what CloudFormation fills in."""
    match value:
        case {"Fn::GetAtt": [id_, attribute]}:
            return f"${{{id_}.{attribute}}}"
        case {"Ref": id_}:
            return f"${{{id_}}}"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(short_name(part) for part in parts)
        case _:
            return str(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
