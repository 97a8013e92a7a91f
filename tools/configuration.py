"""The tables of options and settings that the documents show; `python -m tools.configuration` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hotpartition.runtime.declaring import Settings
from hotpartition.runtime.settings import AdaptiveSettings, InBandSettings
from hotpartition_cdk.configuration import PRODUCTION, SMALL
from hotpartition_cdk.mistakes import describe
from hotpartition_cdk.options import Options, list_options
from hotpartition_messages.settings import FUNCTION_SETTINGS
from infra.environments import DEV, PROD

KNOWING: Mapping[str, type[Settings]] = {
    **FUNCTION_SETTINGS,
    "adaptive()": AdaptiveSettings,
    "in_band()": InBandSettings,
}
"""Who has settings: the functions, and a `ShardedTable` of anybody's."""


def options_table() -> str:
    """Build the table of a deployment's options, with what they are in `dev` and `prod`."""
    return _options_table(("dev", DEV), ("prod", PROD))


def construct_options_table() -> str:
    """Build the table of the options of a `HotPartition` of anybody's."""
    return _options_table(("SMALL", SMALL), ("PRODUCTION", PRODUCTION))


def _options_table(first: tuple[str, Options], second: tuple[str, Options]) -> str:
    others = {path: value for path, _, value in list_options(second[1])}
    rows = [
        (f"`{path}`", _show(value), _show(others[path]), describe(type(first[1]), path), meaning)
        for path, meaning, value in list_options(first[1])
    ]
    return _table(("Option", first[0], second[0], "Allowed", "Meaning"), rows)


def settings_table() -> str:
    """Build the table of the functions' settings, with which function knows which."""
    knowing: dict[str, list[str]] = {}
    for function, settings in KNOWING.items():
        for name in settings.declared():
            knowing.setdefault(name, []).append(function)
    rows = []
    for name, functions in knowing.items():
        setting = KNOWING[functions[0]].declared()[name]
        default = "set by the stack" if setting.default is None else _show(setting.default)
        known = "all" if len(functions) == len(KNOWING) else ", ".join(functions)
        rows.append((f"`{name}`", default, setting.allowed, known, setting.description))
    return _table(("Setting", "Default", "Allowed", "Functions", "Meaning"), rows)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def _show(value: object) -> str:
    match value:
        case None | ():
            return "none"
        case Mapping() if not value:
            return "none"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value:,}" if value >= 10_000 else f"{value:g}"
        case _:
            return str(value)


if __name__ == "__main__":
    print(options_table(), construct_options_table(), settings_table(), sep="\n\n")
