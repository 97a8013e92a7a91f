"""Changes by a deployment: the optional file of options and settings, and their overrides by context.

The file is TOML (or JSON) with a section for each environment:

    [prod.options]
    registry = { node_type = "cache.r7g.large" }
    api = { jwt_issuer = "https://login.example.com/", jwt_audience = ["chat"] }

    [prod.settings]
    max_shard_count = 256

`options` are those of `environments.py`, `settings` are those of the functions. A section of another name is an
environment of your own, which begins as its `base`:

    [staging]
    base = "prod"
    options = { registry = { node_type = "cache.m7g.large" } }
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hotpartition.dynamodb.calls import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from hotpartition_cdk import options
from hotpartition_cdk.configuration import Host
from hotpartition_cdk.errors import ConfigurationError, refuse
from hotpartition_cdk.options import Options, list_mistakes, override
from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from infra.environments import ENVIRONMENT_NAMES, AdaptiveEnvironment, Environment, choose_environment

DEFAULT_FILE = "hotpartition.toml"
"""Read when it lies beside `app.py`, and no other file is named."""

_RESPONSE_SECONDS = 0.5
_LAST_ATTEMPT_SECONDS = CONNECT_TIMEOUT_SECONDS + READ_TIMEOUT_SECONDS + _RESPONSE_SECONDS
"""Time that a request needs after its budget: an attempt at its very end may wait as long as DynamoDB's client does,
and then there is a response to give."""

_OWN_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Changes(Options):
    """Changes to one environment."""

    base: Literal["dev", "prod", "lite"] | None = Field(
        default=None, description="which environment one of your own begins as"
    )
    options: Mapping[str, object] = Field(default_factory=dict, description="of the environment")
    settings: Mapping[str, object] = Field(default_factory=dict, description="of the functions")


def load_environment(name: object, root: Path) -> Environment:
    """Find an environment with the options of the project's file, for callers without a context.

    Raises:
        ConfigurationError: when there is no such environment, or the file is wrong.
    """
    environment, changes = read_environment(name, None, root)
    return override(environment, changes.options)


def read_environment(name: object, place: object, root: Path) -> tuple[Environment, Changes]:
    """Find an environment, and the changes by the file.

    The place is that of the file, seen from the root; None takes `hotpartition.toml` where there is one.

    Raises:
        ConfigurationError: when there is no such environment, or the file is named and absent, unreadable or wrong.
    """
    sections = _read_sections(place, root)
    changes = sections.get(name, Changes()) if isinstance(name, str) else Changes()
    own_names = [section for section in sections if section not in ENVIRONMENT_NAMES]
    environment = choose_environment(changes.base or name, Host.current(), own_names)
    # Without validation, which comes with the first override.
    return environment.model_copy(update={"name": name}), changes


def _read_sections(place: object, root: Path) -> dict[str, Changes]:
    if place is None and not (root / DEFAULT_FILE).is_file():
        return {}
    if not isinstance(place, str | None):
        raise ConfigurationError(f"config should be the name of a TOML or JSON file, not {place!r}")
    file = root / (place or DEFAULT_FILE)
    parsed = _parse(file)
    if not isinstance(parsed, Mapping):
        raise ConfigurationError(f"{file.name} should be sections by name, not {parsed!r}")
    sections: dict[str, Changes] = {}
    problems: list[str] = []
    for name, values in parsed.items():
        try:
            sections[name] = Changes.model_validate(values)
        except ValidationError as error:
            problems += list_mistakes(error, partial(_call_section, file.name, name))
        else:
            problems += _check_section(_call_section(file.name, name, ""), name, sections[name])
    refuse(problems)
    return sections


def _call_section(file_name: str, section: str, path: str) -> str:
    return f"section {section}{'.' if path else ''}{path} of {file_name}"


def _check_section(called: str, name: str, changes: Changes) -> list[str]:
    """Describe the mistakes in an environment of the user's."""
    if name in ENVIRONMENT_NAMES:
        return [f"{called} has a base, which only environments of another name have"] if changes.base else []
    if changes.base is None:
        known = ", ".join(ENVIRONMENT_NAMES)
        return [f"{called} is not one of {known}; an environment of your own needs a base, dev, prod or lite"]
    if not _OWN_NAME.fullmatch(name):
        return [f"{called} should be called by small letters and digits, with single hyphens between"]
    return []


def read_object(value: object, name: str) -> Mapping[str, object]:
    """Read a context that is an object, or a JSON text of one.

    Raises:
        ConfigurationError: when it is neither.
    """
    parsed = value
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError as error:
            raise ConfigurationError(f"{name} should be a JSON object, not {value!r} ({error})") from error
    if parsed is None:
        return {}
    if not isinstance(parsed, Mapping):
        raise ConfigurationError(f"{name} should be a JSON object of names to values, not {parsed!r}")
    return parsed


def _parse(file: Path) -> object:
    kind, parse = ("JSON", json.loads) if file.suffix == ".json" else ("TOML", tomllib.loads)
    try:
        return parse(file.read_text())
    except OSError as error:
        raise ConfigurationError(f"config file {file.name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"config file {file.name} is no {kind}: {error}") from error


def read_overrides(values: Mapping[str, object], environment: Environment) -> dict[str, str]:
    """Read the overrides of the settings of an environment's functions, as `hotpartition_cdk.options` does."""
    functions = FUNCTIONS if isinstance(environment, AdaptiveEnvironment) else IN_BAND_FUNCTIONS
    wired = options.WIRED_NAMES | {"journal_sort_key", "retention_days", "sender_claim"}
    return options.read_overrides(values, functions, settings=MessageSettings, wired=wired)


def check_times(environment: Environment, overrides: Mapping[str, str]) -> None:
    """Check that Lambda does not end a function before the function itself means to."""
    place = f"environment {environment.name}"
    request_seconds = min(environment.writer.timeout_seconds, environment.reader.timeout_seconds)
    budget_ms = MessageSettings.defaults("write", **MessageSettings.select("write", overrides)).request_budget_ms
    limit_ms = (request_seconds - _LAST_ATTEMPT_SECONDS) * 1000.0
    why = f"an attempt that starts at its end may take {_LAST_ATTEMPT_SECONDS:g} s more"
    problems = options.describe_overrun(place, "request_budget_ms", budget_ms, limit_ms, why)
    if isinstance(environment, AdaptiveEnvironment):
        problems += options.describe_long_run(environment.consumer.timeout_seconds, overrides, place)
    refuse(problems)
