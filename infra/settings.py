"""Overrides of the functions' settings that come with the context key `settings`."""

from __future__ import annotations

from collections.abc import Mapping

from hotpartition.dynamodb.calls import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from hotpartition_cdk import settings
from hotpartition_cdk.settings import WIRED_NAMES, TimeLimit, check_limits, limit_run
from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from infra.environments import AdaptiveEnvironment, Environment

_RESPONSE_SECONDS = 0.5
_LAST_ATTEMPT_SECONDS = CONNECT_TIMEOUT_SECONDS + READ_TIMEOUT_SECONDS + _RESPONSE_SECONDS
"""Time that a request needs after its budget: an attempt at its very end may wait as long as DynamoDB's client does,
and then there is a response to give."""


def settings_name(function: str, environment: Environment) -> str:
    """Name an environment's function as settings know it."""
    return function if isinstance(environment, AdaptiveEnvironment) else f"in-band {function}"


def read_overrides(values: Mapping[str, object], environment: Environment) -> dict[str, str]:
    """Read the overrides of the settings of an environment's functions, as `hotpartition_cdk.settings` does."""
    functions = FUNCTIONS if isinstance(environment, AdaptiveEnvironment) else IN_BAND_FUNCTIONS
    wired = WIRED_NAMES | {"retention_days", "sender_claim"}
    return settings.read_overrides(values, functions, settings=MessageSettings, wired=wired)


def check_times(environment: Environment, overrides: Mapping[str, str]) -> None:
    """Check that Lambda does not end a function before the function itself means to."""
    request_seconds = min(environment.writer.timeout_seconds, environment.reader.timeout_seconds)
    request = TimeLimit(
        "request_budget_ms",
        MessageSettings.defaults("write", **MessageSettings.select("write", overrides)).request_budget_ms,
        (request_seconds - _LAST_ATTEMPT_SECONDS) * 1000.0,
        f"an attempt that starts at its end may take {_LAST_ATTEMPT_SECONDS:g} s more",
    )
    run = (limit_run(environment, overrides),) if isinstance(environment, AdaptiveEnvironment) else ()
    check_limits((request, *run), f"environment {environment.name}")
