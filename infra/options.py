"""Options of an environment: declared beside each number, overridable by name without editing code.

An option is a field of one of the frozen dataclasses in `environments.py`. Its path, such as `registry.node_type`,
names it in messages and in `docs/configuration.md`; a nested object of the same names overrides it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from infra.errors import ConfigurationError

OptionsT = TypeVar("OptionsT")

_KEY = "option"
_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list of texts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one option means and may be.

    Attributes:
        doc: Meaning, with its unit.
        at_least: Smallest number.
        at_most: Largest number.
        choices: The only values; empty for any.
        pattern: What a text, or each text of a list, must match as a whole.
        example: A text that matches, for messages.
    """

    doc: str
    at_least: float | None = None
    at_most: float | None = None
    choices: Sequence[object] = ()
    pattern: str = ""
    example: str = ""

    def allowed(self) -> str:
        """Say what is allowed besides the type."""
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        if self.at_least is not None or self.at_most is not None:
            return f"between {self.at_least:g} and {self.at_most:g}"
        return f"like {self.example}" if self.example else "not empty"

    def admits(self, value: object) -> bool:
        """Say whether a value of the right type is allowed."""
        if isinstance(value, tuple):
            return all(self.admits(each) for each in value)
        if self.choices:
            return value in self.choices
        if isinstance(value, str):
            return bool(re.fullmatch(self.pattern, value) if self.pattern else value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option with its value, for documents and tests."""

    path: str
    rule: Rule
    value: object


def option(doc: str, *, default: object = MISSING, **rule: Any) -> Any:
    """Declare an option; the arguments are those of `Rule`."""
    metadata = {_KEY: Rule(doc=doc, **rule)}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def list_options(options: object, prefix: str = "") -> Iterator[Option]:
    """List the options of a dataclass and of those within it."""
    for declared in _declared(options):
        value = getattr(options, declared.name)
        if is_dataclass(value):
            yield from list_options(value, f"{prefix}{declared.name}.")
        elif _KEY in declared.metadata:
            yield Option(path=prefix + declared.name, rule=declared.metadata[_KEY], value=value)


def override(options: OptionsT, changes: Mapping[str, object], prefix: str = "") -> OptionsT:
    """Replace options by name, at any depth.

    Raises:
        ConfigurationError: naming the option that is unknown or wrong, and what is allowed.
    """
    types = get_type_hints(type(options))
    known = {d.name: d for d in _declared(options) if _is_open(options, d)}
    changed: dict[str, object] = {}
    for name, value in changes.items():
        path = f"{prefix}{name}"
        if name not in known:
            raise ConfigurationError(f"option {path} is unknown; allowed are {', '.join(prefix + n for n in known)}")
        current = getattr(options, name)
        if is_dataclass(current):
            if not isinstance(value, Mapping):
                allowed = ", ".join(o.path for o in list_options(current, f"{path}."))
                raise ConfigurationError(f"option {path} should hold options by name ({allowed}), not {value!r}")
            changed[name] = override(current, value, f"{path}.")
        else:
            changed[name] = _read(path, types[name], known[name].metadata[_KEY], value)
    return replace(options, **changed)  # type: ignore[type-var]  # a dataclass: it has fields


def _read(path: str, type_: Any, rule: Rule, value: object) -> object:
    kinds = [each for each in get_args(type_) if isinstance(each, type)] if type_ not in _KINDS else [type_]
    if getattr(type_, "__origin__", None) is tuple:
        kinds = [tuple]
    if value is None and NoneType in kinds:
        return None
    read = tuple(value) if isinstance(value, list) else value
    (kind,) = [each for each in kinds if each is not NoneType]
    if not _is_a(read, kind) or not rule.admits(read):
        or_null = " or null" if NoneType in kinds else ""
        raise ConfigurationError(f"option {path} should be {_describe(kind, rule)}{or_null}, not {value!r}")
    return read


def _is_a(value: object, kind: type) -> bool:
    if kind is tuple:
        return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _describe(kind: type, rule: Rule) -> str:
    return _KINDS[kind] if kind is bool else f"{_KINDS[kind]}, {rule.allowed()}"


def _declared(options: object) -> tuple[Field[Any], ...]:
    return fields(options)  # type: ignore[arg-type]  # only dataclasses come here


def _is_open(options: object, declared: Field[Any]) -> bool:
    value = getattr(options, declared.name)
    return _KEY in declared.metadata or (is_dataclass(value) and any(list_options(value)))
