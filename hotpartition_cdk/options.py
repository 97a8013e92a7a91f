"""Options of an environment: declared beside each number, overridable by name without editing code.

An option is a field with a description of a model that derives from `Options`. Its path, such as
`registry.node_type`, names it in messages and documents; a nested object of the same names overrides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hotpartition.runtime.declaring import unknown
from hotpartition_cdk.errors import ConfigurationError


class Options(BaseModel):
    """Values that do not change, each of exactly its type: text is not a number, and a number is not a flag."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


OptionsT = TypeVar("OptionsT", bound=Options)


def list_options(options: Options, prefix: str = "") -> Iterator[tuple[str, str, object]]:
    """List the options of a model and of those within it: path, description and value."""
    for name, value in options:
        description = type(options).model_fields[name].description
        if isinstance(value, Options):
            yield from list_options(value, f"{prefix}{name}.")
        elif description is not None:
            yield prefix + name, description, value


def override(options: OptionsT, changes: Mapping[str, object]) -> OptionsT:
    """Replace options by name, at any depth.

    Raises:
        ConfigurationError: naming every option that is unknown or wrong, and what is allowed.
    """
    problems: list[str] = []
    values = _merge(options, changes, "", problems)
    try:
        changed = type(options).model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(*problems, *list_mistakes(error, "option {}".format)) from error
    if problems:
        raise ConfigurationError(*problems)
    return changed


def list_mistakes(error: ValidationError, name_of: Callable[[str], str]) -> list[str]:
    """List what a model refused, a sentence each; `name_of` names a field, given its path, as `registry.node_type`."""
    return [_explain(mistake, name_of) for mistake in error.errors(include_url=False)]


def _explain(mistake: Mapping[str, Any], name_of: Callable[[str], str]) -> str:
    # Without the positions in a list: its field is what has a name.
    name = name_of(".".join(part for part in mistake["loc"] if isinstance(part, str)))
    match mistake["type"]:
        case "extra_forbidden":
            return f"{name} is unknown"
        case "missing":
            return f"{name} is missing"
        case "value_error":
            return str(mistake["ctx"]["error"])
        case _:
            # pydantic's own sentence, whose first word is "Input", or the kind of the value.
            return f"{name} {mistake['msg'].partition(' ')[2]}, not {mistake['input']!r}"


def _merge(options: Options, changes: Mapping[str, object], prefix: str, problems: list[str]) -> dict[str, object]:
    """Put changes over values, and note the names that are not options."""
    values = dict(options)
    known = {path.partition(".")[0] for path, _, _ in list_options(options)}
    for name, change in changes.items():
        current = values.get(name)
        if name not in known:
            problems.append(unknown(f"option {prefix}{name}", (prefix + each for each in values if each in known)))
        elif isinstance(current, Options) and isinstance(change, Mapping):
            values[name] = _merge(current, change, f"{prefix}{name}.", problems)
        else:
            values[name] = change
    return values
