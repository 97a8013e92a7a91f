"""What a deployment changes: the optional file of options and settings, and their overrides by context.

The file is TOML (or JSON) with a section for each environment:

    [prod.options]
    registry = { node_type = "cache.r7g.large" }
    api = { jwt_issuer = "https://login.example.com/", jwt_audience = ["chat"] }

    [prod.settings]
    max_shard_count = 256

`options` are what `environments.py` declares, `settings` are those of the functions.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from hotpartition.runtime.mistakes import list_mistakes
from infra.environments import Environment, EnvironmentName, Host, choose_environment
from infra.errors import ConfigurationError
from infra.options import Options, override

DEFAULT_FILE = "hotpartition.toml"
"""Read when it lies beside `app.py`, and no other file is named."""


class Changes(Options):
    """Changes to one environment."""

    options: Mapping[str, object] = Field(default_factory=dict, description="of the environment")
    settings: Mapping[str, object] = Field(default_factory=dict, description="of the functions")


class ChangesFile(Options):
    """The changes to each environment."""

    dev: Changes = Changes()
    prod: Changes = Changes()
    local: Changes = Changes()


def load_environment(name: object, root: Path) -> Environment:
    """Find an environment with the options of the project's file, for what needs no context.

    Raises:
        ConfigurationError: when there is no such environment, or the file is wrong.
    """
    environment = choose_environment(name, Host.current())
    return override(environment, read_file(None, environment.name, root).options)


def read_file(place: object, environment: EnvironmentName, root: Path) -> Changes:
    """Read what a file changes in an environment.

    Args:
        place: The file, seen from the project's root; None takes `hotpartition.toml` where there is one.
        environment: Whose section is read.
        root: The project's root.

    Raises:
        ConfigurationError: when the file is named and absent, unreadable, or holds an unknown section.
    """
    if place is None and not (root / DEFAULT_FILE).is_file():
        return Changes()
    if not isinstance(place, str | None):
        raise ConfigurationError(f"config should be the name of a TOML or JSON file, not {place!r}")
    file = root / (place or DEFAULT_FILE)
    try:
        changes: Changes = getattr(ChangesFile.model_validate(_parse(file)), environment)
    except ValidationError as error:
        mistakes = list_mistakes(
            error, ChangesFile, lambda path: f"section {path} of {file.name}" if path else file.name
        )
        raise ConfigurationError(*mistakes) from error
    return changes


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
