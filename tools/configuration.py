"""The tables of options and settings that the documents show; `python -m tools.configuration` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hotpartition_cdk.configuration import PRODUCTION, SMALL
from hotpartition_cdk.mistakes import describe
from hotpartition_cdk.options import Options, list_options
from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from infra.environments import DEV, LITE, PROD

KNOWING = (*FUNCTIONS, "adaptive()", "in_band()")
"""What has settings: the functions, and any `ShardedTable`."""


def options_table() -> str:
    """Build the table of a deployment's options, with what they are in each environment."""
    return _options_table(("dev", DEV), ("prod", PROD), ("lite", LITE))


def construct_options_table() -> str:
    """Build the table of the options of a `HotPartition` of anybody's."""
    return _options_table(("SMALL", SMALL), ("PRODUCTION", PRODUCTION))


def _options_table(first: tuple[str, Options], *others: tuple[str, Options]) -> str:
    known = [{path: value for path, _, value in list_options(options)} for _, options in others]
    rows = [
        (
            f"`{path}`",
            _show(value),
            *(_show(each[path]) if path in each else "-" for each in known),
            describe(type(first[1]), path),
            meaning,
        )
        for path, meaning, value in list_options(first[1])
    ]
    return _table(("Option", first[0], *(name for name, _ in others), "Allowed", "Meaning"), rows)


def settings_table() -> str:
    """Build the table of the functions' settings, with which function knows which."""
    knowing: dict[str, list[str]] = {}
    settings = {function: MessageSettings.declared(function) for function in (*KNOWING, *IN_BAND_FUNCTIONS)}
    for function in KNOWING:
        for name in settings[function]:
            knowing.setdefault(name, []).append(function)
    rows = []
    for name, functions in knowing.items():
        setting = settings[functions[0]][name]
        default = "set by the stack" if setting.default is None else _show(setting.default)
        known = "all" if len(functions) == len(KNOWING) else ", ".join(functions)
        in_lite = ", ".join(each.removeprefix("in-band ") for each in IN_BAND_FUNCTIONS if name in settings[each])
        rows.append((f"`{name}`", default, setting.allowed, known, in_lite or "-", setting.description))
    return _table(("Setting", "Default", "Allowed", "Functions", "In `lite`", "Meaning"), rows)


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
