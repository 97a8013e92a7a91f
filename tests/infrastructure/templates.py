"""Asks questions of a synthesized template, so that tests can name decisions instead of paths into JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hotpartition.settings import CommonSettings, ConsumerSettings, ReaderSettings, WriterSettings

ENVIRONMENTS = ("dev", "prod", "local")

FUNCTIONS: dict[str, type[CommonSettings]] = {
    "write_message": WriterSettings,
    "read_messages": ReaderSettings,
    "consume_reports": ConsumerSettings,
}

_RESOLVED = {
    ("Ref", "Table"): "hotpartition-table",
    ("Fn::GetAtt", "Registry.ConfigurationEndPoint.Address"): "registry.example",
    ("Fn::GetAtt", "Registry.ConfigurationEndPoint.Port"): "6379",
}
"""What CloudFormation would fill in."""


@dataclass(frozen=True, slots=True)
class Template:
    """One environment's template."""

    body: dict[str, Any]

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
            if resource["Properties"]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == folder
        ]
        return id_

    def function(self, folder: str) -> dict[str, Any]:
        """Find a function's properties by the name of its folder."""
        return self.body["Resources"][self.function_id(folder)]["Properties"]

    def variables(self, folder: str) -> dict[str, str]:
        """Find a function's environment as Lambda would see it."""
        variables = self.function(folder)["Environment"]["Variables"]
        return {name: self._resolve(value) for name, value in variables.items()}

    def allowed(self, folder: str) -> dict[str, list[str]]:
        """List what a function's role may do: actions by a short form of the resource."""
        role_id = self.function(folder)["Role"]["Fn::GetAtt"][0]
        role = self.body["Resources"][role_id]["Properties"]
        assert "ManagedPolicyArns" not in role
        allowed: dict[str, list[str]] = {}
        for policy in self.of_type("AWS::IAM::Policy").values():
            if policy["Properties"]["Roles"] != [{"Ref": role_id}]:
                continue
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
                assert statement["Effect"] == "Allow"
                actions = statement["Action"]
                allowed.setdefault(_short(statement["Resource"]), []).extend(
                    [actions] if isinstance(actions, str) else actions
                )
        return allowed

    @staticmethod
    def _resolve(value: object) -> str:
        if isinstance(value, str):
            return value
        assert isinstance(value, dict)
        ((function, argument),) = value.items()
        return _RESOLVED[function, argument if isinstance(argument, str) else ".".join(argument)]


def _short(resource: Any) -> str:
    match resource:
        case {"Fn::GetAtt": [id_, "Arn"]}:
            return id_
        case {"Fn::Join": ["", [{"Fn::GetAtt": [id_, "Arn"]}, rest]]}:
            return f"{id_}{rest}"
        case _:
            return str(resource)
