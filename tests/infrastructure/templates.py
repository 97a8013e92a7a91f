"""Asks questions of a synthesized template, so that tests can name decisions instead of paths into JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hotpartition.runtime.declaring import Settings
from hotpartition.runtime.settings import ConsumerSettings, OperateSettings
from hotpartition_messages.settings import ReadSettings, WriteSettings

ENVIRONMENTS = ("dev", "prod", "local")

FUNCTIONS: dict[str, type[Settings]] = {
    "write_message": WriteSettings,
    "read_messages": ReadSettings,
    "consume_reports": ConsumerSettings,
    "operate": OperateSettings,
}

_RESOLVED = {
    ("Ref", "AWS::Region"): "cn-north-1",
    ("Ref", "AWS::URLSuffix"): "amazonaws.com.cn",
    ("Ref", "Table"): "hotpartition-table",
    ("Ref", "Registry"): "hotpartition-registry",
    ("Fn::GetAtt", "Registry.ConfigurationEndPoint.Address"): "registry.example",
    ("Fn::GetAtt", "Registry.ConfigurationEndPoint.Port"): "6379",
}
"""What CloudFormation would fill in."""


@dataclass(frozen=True, slots=True, order=True)
class Statement:
    """One action on one resource, and under which conditions (JSON)."""

    action: str
    resource: str
    condition: str = "{}"


@dataclass(frozen=True, slots=True)
class Template:
    """One environment's template, and the very text of its file."""

    body: dict[str, Any]
    text: str

    def of_type(self, type_: str) -> dict[str, dict[str, Any]]:
        """Find all resources of a type, by logical id."""
        return {id_: resource for id_, resource in self.body["Resources"].items() if resource["Type"] == type_}

    def only(self, type_: str) -> dict[str, Any]:
        """Find the properties of the one resource of a type."""
        (resource,) = self.of_type(type_).values()
        return resource["Properties"]

    def function_id(self, folder: str) -> str:
        """Find a function's logical id by the name of its folder."""
        (id_,) = [
            id_
            for id_, resource in self.of_type("AWS::Lambda::Function").items()
            if resource["Properties"]["Environment"]["Variables"].get("POWERTOOLS_SERVICE_NAME") == folder
        ]
        return id_

    def function(self, folder: str) -> dict[str, Any]:
        """Find a function's properties by the name of its folder."""
        return self.body["Resources"][self.function_id(folder)]["Properties"]

    def variables(self, folder: str) -> dict[str, str]:
        """Find a function's environment as Lambda would see it."""
        variables = self.function(folder)["Environment"]["Variables"]
        return {name: self._resolve(value) for name, value in variables.items()}

    def role_id(self, folder: str) -> str:
        """Find the logical id of a function's role."""
        id_: str = self.function(folder)["Role"]["Fn::GetAtt"][0]
        return id_

    def statements(self, role_id: str) -> list[Statement]:
        """List what a role may do, each action on each resource by itself."""
        role = self.body["Resources"][role_id]["Properties"]
        assert not {"ManagedPolicyArns", "Policies"} & role.keys()
        return [
            Statement(action, short_name(resource), json.dumps(statement.get("Condition", {}), sort_keys=True))
            for policy in self.of_type("AWS::IAM::Policy").values()
            if {"Ref": role_id} in policy["Properties"]["Roles"]
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
            if _is_allowing(statement)
            for action in _listed(statement["Action"])
            for resource in _listed(statement["Resource"])
        ]

    @staticmethod
    def _resolve(value: object) -> str:
        if isinstance(value, str):
            return value
        assert isinstance(value, dict)
        ((function, argument),) = value.items()
        if function == "Fn::Join":
            separator, parts = argument
            return separator.join(map(Template._resolve, parts))
        return _RESOLVED[function, argument if isinstance(argument, str) else ".".join(argument)]


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


def _is_allowing(statement: dict[str, Any]) -> bool:
    """Refuse what a walk over allowed actions and resources would not see."""
    assert statement["Effect"] == "Allow"
    assert not {"NotAction", "NotResource"} & statement.keys()
    return True
