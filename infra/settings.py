"""Overrides of the functions' settings that come with the context key `settings`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from hotpartition.dynamodb.calls import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from hotpartition.runtime.mistakes import list_mistakes, unknown
from hotpartition.runtime.settings import (
    FUNCTION_SETTINGS,
    CommonSettings,
    ConsumerSettings,
    WriterSettings,
)
from infra.config import read_object
from infra.environments import Environment
from infra.errors import ConfigurationError

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
        "consumers",
        "retention_days",
        "sender_claim",
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
    known = sorted(frozenset[str]().union(*(each.model_fields for each in FUNCTION_SETTINGS.values())) - WIRED_NAMES)
    problems: list[str] = []
    texts: dict[str, str] = {}
    for name, given in sorted(overrides.items()):
        if name in WIRED_NAMES:
            problems.append(f"setting {name} is set by the stack itself and cannot be overridden")
        elif name not in known:
            problems.append(unknown(f"setting {name}", known))
        elif not isinstance(given, bool | int | float | str):
            problems.append(f"setting {name} should be a text, a number, true or false, not {given!r}")
        else:
            texts[name] = str(given).lower() if isinstance(given, bool) else str(given)
    for settings in FUNCTION_SETTINGS.values():
        try:
            settings.defaults(**select_overrides(settings, texts))
        except ValidationError as error:
            problems += list_mistakes(error, settings, "setting {}".format)
    if problems:
        raise ConfigurationError(*dict.fromkeys(problems))  # several functions know the same setting
    return texts


def select_overrides(settings: type[CommonSettings], overrides: Mapping[str, str]) -> dict[str, str]:
    """Select the overrides that one function knows."""
    return {name: text for name, text in overrides.items() if name in settings.model_fields}


def check_shares(environment: Environment, overrides: Mapping[str, str]) -> None:
    """Check that each consumer has a stream to read.

    Raises:
        ConfigurationError: naming the option and its limit.
    """
    streams = ConsumerSettings.defaults(**select_overrides(ConsumerSettings, overrides)).stream_partitions
    if environment.consumers > streams:
        raise ConfigurationError(
            f"option consumers should be at most {streams}, the number of report streams (setting stream_partitions),"
            f" not {environment.consumers}"
        )


def check_times(environment: Environment, overrides: Mapping[str, str]) -> None:
    """Check that Lambda does not end a function before the function itself means to.

    Raises:
        ConfigurationError: naming each setting and its limit in this environment.
    """
    attempt = f"an attempt that starts at its end may take {_LAST_ATTEMPT_SECONDS:g} s more"
    last_pass = f"the last pass may take {_CONSUMER_END_SECONDS:g} s more"
    request_seconds = min(environment.writer.timeout_seconds, environment.reader.timeout_seconds)
    request_ms = (request_seconds - _LAST_ATTEMPT_SECONDS) * 1000.0
    run_seconds = environment.consumer.timeout_seconds - _CONSUMER_END_SECONDS
    budgets = (
        (
            "request_budget_ms",
            WriterSettings.defaults(**select_overrides(WriterSettings, overrides)).request_budget_ms,
            request_ms,
            attempt,
        ),
        (
            "run_seconds",
            ConsumerSettings.defaults(**select_overrides(ConsumerSettings, overrides)).run_seconds,
            run_seconds,
            last_pass,
        ),
    )
    problems = [
        f"setting {name} should be at most {limit:g} in environment {environment.name}, not {used:g},"
        f" because {why} and Lambda stops the function after its timeout"
        for name, used, limit, why in budgets
        if used > limit
    ]
    if problems:
        raise ConfigurationError(*problems)
