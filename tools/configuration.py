"""The tables of options and settings that the documents show; `python -m tools.configuration` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hotpartition_cdk.configuration import PRODUCTION, SMALL
from hotpartition_cdk.options import list_options
from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from infra.environments import DEV, LITE, PROD

KNOWING = (*FUNCTIONS, "adaptive()", "in_band()")
"""What has settings: the functions, and any `ShardedTable`."""
GROUPS = {KNOWING: "all", tuple(each for each in KNOWING if each != "in_band()"): "with Redis"}


def options_table() -> str:
    """Build the table of a deployment's options, with what they are in each environment."""
    known = [{path: value for path, _, value in list_options(options)} for options in (PROD, LITE)]
    rows = [
        (
            f"`{path}`",
            _show(value),
            *(_show(each[path]) if path in each else "-" for each in known),
            _describe(_walk(DEV.model_json_schema(), path)),
            meaning,
        )
        for path, meaning, value in list_options(DEV)
    ]
    return _table(("Option", "dev", "prod", "lite", "Allowed", "Meaning"), rows)


def construct_options_table() -> str:
    """Build the table of the options of a `HotPartition` of anybody's; what they mean stands in the other one."""
    production = {path: value for path, _, value in list_options(PRODUCTION)}
    rows = [(f"`{path}`", _show(value), _show(production[path])) for path, _, value in list_options(SMALL)]
    return _table(("Option", "SMALL", "PRODUCTION"), rows)


def _describe(schema: Mapping[str, Any]) -> str:
    """Say what JSON Schema allows."""
    match schema:
        case {"anyOf": kinds}:
            return " or ".join(map(_describe, kinds))
        case {"enum": values}:
            return f"one of {', '.join(map(str, values))}"
        case {"type": "null"}:
            return "null"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "array", "items": {"examples": [example, *_]}}:
            return f"a list, like {example}"
        case {"minimum": least, "maximum": most}:
            return f"{least} to {most}"
        case {"examples": [example, *_]}:
            return f"like {example}"
    return "texts by name"


def _walk(schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Find the schema of a field below a model's."""
    node = schema
    for part in path.split("."):
        node = node["properties"][part]
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return node


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
        known = GROUPS.get(tuple(functions), ", ".join(functions))
        in_lite = ", ".join(each.removeprefix("in-band ") for each in IN_BAND_FUNCTIONS if name in settings[each])
        rows.append((f"`{name}`", default, _range(setting.allowed), known, in_lite or "-", setting.description))
    return _table(("Setting", "Default", "Allowed", "Functions", "In `lite`", "Meaning"), rows)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def _range(allowed: str) -> str:
    """Say in a cell what a sentence says in more words."""
    short = re.sub(r"a (?:whole )?number, between (\S+) and (\S+)", r"\1 to \2", allowed)
    return short.replace("a text that is not empty", "a text")


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
