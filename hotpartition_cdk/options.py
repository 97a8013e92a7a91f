"""Options of an environment, and settings of functions: both are overridden by name, without editing code.

An option is a field with a description of a model that derives from `Options`. Its path, such as
`registry.node_type`, names it in messages and documents; a nested object of the same names overrides it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hotpartition.core.errors import SettingsError
from hotpartition.runtime.declaring import unknown
from hotpartition.runtime.settings import Settings
from hotpartition_cdk.errors import ConfigurationError, refuse

TABLE_FUNCTIONS = ("adaptive()", "consumer", "operate")
"""The functions around a table: those that use it, and the library's two."""

WIRED_NAMES = frozenset(
    {
        "table_name",
        "partition_key_name",
        "sort_key_name",
        "key_separator",
        "journal_table_name",
        "journal_partition_key_name",
        "routing_index_name",
        "registry_host",
        "registry_port",
        "registry_tls",
        "registry_authentication",
        "registry_user",
        "registry_cache_name",
    }
)
"""Settings that are derived from resources and keys; overriding one would only break the wiring."""

_CONSUMER_END_SECONDS = 10.0
"""Time for a consumer's last pass and metrics after `run_seconds`: the handler's `STOP_MARGIN_MS`, which bounds the run
as well, and lies where the infrastructure cannot import it."""


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
    refuse(problems)
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


def read_overrides(
    overrides: Mapping[str, object],
    functions: Sequence[str],
    *,
    settings: type[Settings] = Settings,
    wired: Collection[str] = WIRED_NAMES,
) -> dict[str, str]:
    """Read overrides of the functions' settings, by name: each one's text for the environment, in the order of names.

    Raises:
        ConfigurationError: naming the setting that is unknown or wrong, and what is allowed.
    """
    known = sorted({name for each in functions for name in settings.declared(each)}.difference(wired))
    problems: list[str] = []
    texts: dict[str, str] = {}
    for name, given in sorted(overrides.items()):
        if name in wired:
            problems.append(f"setting {name} is set by the stack itself and cannot be overridden")
        elif name not in known:
            problems.append(unknown(f"setting {name}", known))
        elif not isinstance(given, bool | int | float | str):
            problems.append(f"setting {name} should be a text, a number, true or false, not {given!r}")
        else:
            texts[name] = str(given).lower() if isinstance(given, bool) else str(given)
    for function in functions:
        try:
            settings.defaults(function, "setting {}".format, **settings.select(function, texts))
        except SettingsError as error:
            problems += error.problems
    refuse(dict.fromkeys(problems))  # several functions know the same setting
    return texts


def check_closing(given: Mapping[str, str], place: str) -> None:
    """Check that keys shall be closed only where sort keys tell when an item is from."""
    if given.get("is_closing") == "true" and given.get("has_positions") == "false":
        raise ConfigurationError(
            f"{place} shall close keys (setting is_closing), which needs positions: set has_positions as well, where"
            " sort keys begin with a time in ms, or leave is_closing out"
        )


def describe_overrun(place: str, name: str, used: float, limit: float, why: str) -> list[str]:
    """Describe a setting by which Lambda would end a function before the function itself means to, if it is one."""
    if used <= limit:
        return []
    reason = f"because {why} and Lambda stops the function after its timeout"
    return [f"setting {name} should be at most {limit:g} in {place}, not {used:g}, {reason}"]


def describe_long_run(timeout_seconds: int, overrides: Mapping[str, str], place: str) -> list[str]:
    """Describe a consumer's run that does not end by itself, if it is one."""
    run_seconds = Settings.defaults("consumer", **Settings.select("consumer", overrides)).run_seconds
    limit = timeout_seconds - _CONSUMER_END_SECONDS
    why = f"the last pass may take {_CONSUMER_END_SECONDS:g} s more"
    return describe_overrun(place, "run_seconds", run_seconds, limit, why)
