"""Overrides of the functions' settings that come with the context key `settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, get_type_hints

from hotpartition.dynamodb.calls import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from hotpartition.runtime.settings import (
    CommonSettings,
    ConsumerSettings,
    OperateSettings,
    ReaderSettings,
    WriterSettings,
    parse_setting,
    setting_names,
)
from infra.config import read_object
from infra.environments import Environment
from infra.errors import ConfigurationError

FUNCTION_SETTINGS: tuple[type[CommonSettings], ...] = (
    WriterSettings,
    ReaderSettings,
    ConsumerSettings,
    OperateSettings,
)

WIRED_NAMES = frozenset(
    {
        "table_name",
        "routing_index_name",
        "registry_host",
        "registry_port",
        "registry_tls",
        "registry_authentication",
        "registry_user",
        "registry_cache_name",
    }
)
"""Settings that the stack derives from its own resources; overriding one would only break the wiring."""

_CONSUMER_END_SECONDS = 10.0
"""What a consumer needs after `run_seconds` to finish its last pass and its metrics: the handler's `STOP_MARGIN_MS`,
which bounds the run as well, and lies where the infrastructure cannot import it."""

_ANSWER_SECONDS = 0.5
_LAST_ATTEMPT_SECONDS = CONNECT_TIMEOUT_SECONDS + READ_TIMEOUT_SECONDS + _ANSWER_SECONDS
"""What a request needs after its budget: an attempt that starts at its very end may wait as long as DynamoDB's client
does, and then there is an answer to give."""


def read_overrides(value: object) -> dict[str, str]:
    """Read the overrides: a JSON object, or what one parses to, of setting name to value.

    Returns:
        Each setting's text as it goes into the environment, in the order of the names.

    Raises:
        ConfigurationError: naming the setting that is unknown or wrong, and what is allowed.
    """
    overrides = read_object(value, "settings")
    return {str(name): _read_override(str(name), overrides[name]) for name in sorted(overrides, key=str)}


def select_overrides(settings: type[CommonSettings], overrides: Mapping[str, str]) -> dict[str, str]:
    """Select the overrides that one function knows."""
    return {name: text for name, text in overrides.items() if name in setting_names(settings)}


def check_times(environment: Environment, overrides: Mapping[str, str]) -> None:
    """Check that Lambda does not end a function before the function itself means to.

    Raises:
        ConfigurationError: naming the setting and its limit in this environment.
    """
    attempt = f"an attempt that starts at its end may take {_LAST_ATTEMPT_SECONDS:g} s more"
    last_pass = f"the last pass may take {_CONSUMER_END_SECONDS:g} s more"
    writer_ms = (environment.writer.timeout_seconds - _LAST_ATTEMPT_SECONDS) * 1000.0
    reader_ms = (environment.reader.timeout_seconds - _LAST_ATTEMPT_SECONDS) * 1000.0
    run_seconds = environment.consumer.timeout_seconds - _CONSUMER_END_SECONDS
    budgets = (
        ("request_budget_ms", WriterSettings, writer_ms, attempt),
        ("request_budget_ms", ReaderSettings, reader_ms, attempt),
        ("run_seconds", ConsumerSettings, run_seconds, last_pass),
    )
    for name, settings, limit, why in budgets:
        used = float(overrides.get(name, str(_declared(settings)[name].default)))
        if used > limit:
            raise ConfigurationError(
                f"setting {name} should be at most {limit:g} in environment {environment.name}, not {used:g},"
                f" because {why} and Lambda stops the function after its timeout"
            )


def _read_override(name: str, value: object) -> str:
    knowing = [settings for settings in FUNCTION_SETTINGS if name in setting_names(settings)]
    if name in WIRED_NAMES:
        raise ConfigurationError(f"setting {name} is set by the stack itself and cannot be overridden")
    if not knowing:
        known = sorted(frozenset[str]().union(*map(setting_names, FUNCTION_SETTINGS)) - WIRED_NAMES)
        raise ConfigurationError(f"setting {name} is unknown; allowed are {', '.join(known)}")
    text = _setting_text(name, value)
    for settings in knowing:
        try:
            parse_setting(_declared(settings)[name], get_type_hints(settings)[name], text)
        except ValueError as error:
            raise ConfigurationError(f"setting {name} {error}") from error
    return text


def _setting_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    raise ConfigurationError(f"setting {name} should be a text, a number, true or false, not {value!r}")


def _declared(settings: type[CommonSettings]) -> dict[str, Field[Any]]:
    return {declared.name: declared for declared in fields(settings)}
