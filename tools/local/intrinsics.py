"""CloudFormation's intrinsic functions, as far as the template uses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.local.errors import LocalRunError

_NO_VALUE = object()


class Intrinsics:
    """Resolves values of one template. What has no local counterpart gets a made-up name, but no made-up attribute.

    `pseudo` are the `AWS::` parameters, `provided` attributes by logical id and name, `physical_names` what `Ref` is.
    """

    def __init__(
        self,
        template: Mapping[str, Any],
        *,
        pseudo: Mapping[str, str],
        provided: Mapping[tuple[str, str], str],
        physical_names: Mapping[str, str],
    ) -> None:
        self._resources = template.get("Resources", {})
        self._parameters = template.get("Parameters", {})
        self._pseudo = pseudo
        self._provided = provided
        self._physical_names = physical_names
        self._functions: Mapping[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Fn::GetAtt": self._get_att,
            "Fn::Join": self._join,
            "Fn::Sub": self._sub,
            "Fn::Select": self._select,
            "Fn::Split": self._split,
        }

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
        if name == "AWS::NoValue":
            return _NO_VALUE
        if name in self._pseudo:
            return self._pseudo[name]
        if name in self._resources:
            return self._physical_names[name]
        if "Default" in self._parameters.get(name, {}):
            return self._parameters[name]["Default"]
        raise LocalRunError(f"the template refers to {name}, which has no value in the local run")

    def _get_att(self, argument: str | Sequence[str]) -> str:
        logical_id, _, attribute = (argument if isinstance(argument, str) else ".".join(argument)).partition(".")
        if (logical_id, attribute) in self._provided:
            return self._provided[logical_id, attribute]
        if attribute == "Arn" and logical_id in self._resources:
            service = self._resources[logical_id]["Type"].split("::")[1].lower()
            region, account = self._pseudo["AWS::Region"], self._pseudo["AWS::AccountId"]
            return f"arn:aws:{service}:{region}:{account}:{self._physical_names[logical_id]}"
        raise LocalRunError(f"the template asks for {attribute} of {logical_id}, which has no value in the local run")

    def _join(self, argument: Sequence[Any]) -> str:
        separator, parts = argument
        return str(separator).join(str(part) for part in self.resolve(parts))

    def _sub(self, argument: str | Sequence[Any]) -> str:
        text, given = (argument, {}) if isinstance(argument, str) else (argument[0], argument[1])
        values = self.resolve(given)

        def replace(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("!"):
                return f"${{{name[1:]}}}"
            if name in values:
                return str(values[name])
            return str(self._get_att(name) if "." in name else self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", replace, text)

    def _select(self, argument: Sequence[Any]) -> Any:
        position, values = argument
        return self.resolve(values)[int(self.resolve(position))]

    def _split(self, argument: Sequence[Any]) -> list[str]:
        separator, text = argument
        parts: list[str] = str(self.resolve(text)).split(separator)
        return parts
