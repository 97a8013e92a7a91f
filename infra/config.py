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
from dataclasses import dataclass, field
from pathlib import Path

from infra.environments import ENVIRONMENT_NAMES, Environment, Host, choose_environment
from infra.errors import ConfigurationError
from infra.options import override

DEFAULT_FILE = "hotpartition.toml"
"""Read when it lies beside `app.py`, and no other file is named."""

_PARTS = ("options", "settings")


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to one environment."""

    options: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)


def load_environment(name: object, root: Path) -> Environment:
    """Find an environment with the options of the project's file, for what needs no context.

    Raises:
        ConfigurationError: when there is no such environment, or the file is wrong.
    """
    environment = choose_environment(name, Host.current())
    return override(environment, read_file(None, environment.name, root).options)


def read_file(place: object, environment: str, root: Path) -> Changes:
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
    sections = _parse_file(root / (place or DEFAULT_FILE))
    parts: dict[str, dict[str, Mapping[str, object]]] = {}
    for name, section in sections.items():
        if name not in ENVIRONMENT_NAMES:
            allowed = ", ".join(ENVIRONMENT_NAMES)
            raise ConfigurationError(f"section {name} of {place or DEFAULT_FILE} is unknown; allowed are {allowed}")
        parts[name] = {part: _mapping(content, f"{name}.{part}") for part, content in _mapping(section, name).items()}
        for part in parts[name]:
            if part not in _PARTS:
                allowed = " and ".join(f"{name}.{each}" for each in _PARTS)
                raise ConfigurationError(f"section {name}.{part} is unknown; allowed are {allowed}")
    return Changes(**parts.get(environment, {}))


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


def _parse_file(file: Path) -> Mapping[str, object]:
    try:
        text = file.read_text()
        content: object = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"config file {file.name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        kind = "JSON" if file.suffix == ".json" else "TOML"
        raise ConfigurationError(f"config file {file.name} is no {kind}: {error}") from error
    return _mapping(content, file.name)


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} should hold sections or values by name, not {value!r}")
    return value
