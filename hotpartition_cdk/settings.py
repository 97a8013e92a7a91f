"""Overrides of the functions' settings, and which of them go to which function."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hotpartition.core.errors import SettingsError
from hotpartition.runtime.declaring import unknown
from hotpartition.runtime.settings import Settings
from hotpartition_cdk.configuration import HotPartitionOptions
from hotpartition_cdk.errors import ConfigurationError

TABLE_FUNCTIONS = ("adaptive()", "consumer", "operate")
"""The functions around a table: those that use it, and the library's two."""

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
"""Settings that are derived from resources; overriding one would only break the wiring."""

_CONSUMER_END_SECONDS = 10.0
"""Time for a consumer's last pass and metrics after `run_seconds`: the handler's `STOP_MARGIN_MS`, which bounds the run
as well, and lies where the infrastructure cannot import it."""


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
    if problems:
        raise ConfigurationError(*dict.fromkeys(problems))  # several functions know the same setting
    return texts


def check_closing(given: Mapping[str, str], place: str) -> None:
    """Check that keys shall be closed only where sort keys tell when an item is from."""
    if given.get("is_closing") == "true" and given.get("has_positions") == "false":
        raise ConfigurationError(
            f"{place} shall close keys (setting is_closing), which needs positions: set has_positions as well, where"
            " sort keys begin with a time in ms, or leave is_closing out"
        )


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """A setting that a function's timeout bounds: its value, the limit, and why that is lower than the timeout."""

    name: str
    used: float
    limit: float
    why: str


def limit_run(options: HotPartitionOptions, overrides: Mapping[str, str]) -> TimeLimit:
    """Build the limit of a consumer's run."""
    return TimeLimit(
        "run_seconds",
        Settings.defaults("consumer", **Settings.select("consumer", overrides)).run_seconds,
        options.consumer.timeout_seconds - _CONSUMER_END_SECONDS,
        f"the last pass may take {_CONSUMER_END_SECONDS:g} s more",
    )


def check_limits(limits: Iterable[TimeLimit], place: str) -> None:
    """Check that Lambda does not end a function before the function itself means to."""
    problems = [
        f"setting {each.name} should be at most {each.limit:g} in {place}, not {each.used:g},"
        f" because {each.why} and Lambda stops the function after its timeout"
        for each in limits
        if each.used > each.limit
    ]
    if problems:
        raise ConfigurationError(*problems)
