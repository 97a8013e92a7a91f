"""Describes the wrong values of a pydantic model: one sentence each, with the allowed values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from hotpartition.runtime.declaring import unknown

_KINDS = {
    "array": "a list of texts",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "values by name",
    "string": "a text",
}
"""JSON Schema's types in words."""


def list_mistakes(error: ValidationError, model: type[BaseModel], name_of: Callable[[str], str]) -> list[str]:
    """List the mistakes that a model refused; `name_of` names a field, given its path, such as `registry.node_type`."""
    schema = model.model_json_schema()
    return [_explain(mistake, schema, name_of) for mistake in error.errors(include_url=False)]


def describe(model: type[BaseModel], path: str) -> str:
    """Describe the allowed values of a model's field."""
    return _describe(_walk(model.model_json_schema(), path.split("."))[-1])


def _describe(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_describe, schema["anyOf"]))
    if names := [name for name, field in schema.get("properties", {}).items() if "description" in field]:
        return f"values by name ({', '.join(names)})"
    if "additionalProperties" in schema and "properties" not in schema:
        return "texts by name"
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    kind, detail = _KINDS[schema["type"]], schema.get("items", schema)
    if "exclusiveMinimum" in detail:
        return f"{kind} greater than {detail['exclusiveMinimum']}"
    if "minimum" in detail:
        return f"{kind}, between {detail['minimum']} and {detail['maximum']}"
    if "examples" in detail:
        return f"{kind}, like {detail['examples'][0]}"
    return f"{kind} that is not empty" if "minLength" in detail else kind


def _explain(mistake: Mapping[str, Any], schema: Mapping[str, Any], name_of: Callable[[str], str]) -> str:
    # Without the positions in a list: its field is what has a name.
    path = [part for part in mistake["loc"] if isinstance(part, str)]
    name, (*_, parent, declared) = name_of(".".join(path)), (None, *_walk(schema, path))
    match mistake["type"]:
        case "extra_forbidden":
            return unknown(name, parent["properties"])
        case "missing":
            return f"{name} is missing ({declared['description']})"
        case "value_error":
            return str(mistake["ctx"]["error"])
        case _:
            return f"{name} should be {_describe(declared)}, not {mistake['input']!r}"


def _walk(schema: Mapping[str, Any], path: Iterable[str]) -> list[Mapping[str, Any]]:
    """List the schemas from a model's own down to that of a field."""
    nodes = [schema]
    for part in path:
        values = nodes[-1].get("additionalProperties")
        node = nodes[-1].get("properties", {}).get(part, values if isinstance(values, Mapping) else {})
        nodes.append(schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node)
    return nodes
