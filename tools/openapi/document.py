"""One document for the routes of both functions: what Powertools generates of each, joined and set right.

Powertools describes the schemas; three things that it says of every API are not true of this one and are taken out:
the 422 that our functions answer as 400, the schemas that only the 422 uses, and query parameters that could be `null`.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hotpartition import __version__

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT_FILE = ROOT / "docs" / "openapi.json"
FUNCTIONS = ("write_message", "read_messages")
METHODS = ("get", "post")

INFO = {
    "title": "hotpartition",
    "version": __version__,
    "summary": "Messages of conversations, however hot.",
    "description": (
        "Stores and reads the messages of conversations, wherever they are stored. A body is JSON, whatever its "
        "Content-Type says. What API Gateway answers by itself is not described here: a path or method that matches "
        "no route, a missing signature, too many requests (429), more than 6 MB, a function that fails or takes too "
        "long (500, 503); those bodies are `application/json` with a `message`."
    ),
    "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
}
SERVERS = [{"url": "http://localhost:8000", "description": "`make up`; on AWS: the stack's output `ApiUrl`."}]
SECURITY_SCHEME = "aws_iam"
SECURITY_SCHEMES = {
    SECURITY_SCHEME: {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "AWS Signature Version 4 of service `execute-api`. The local run does not check it.",
        "x-amazon-apigateway-authtype": "awsSigv4",
    }
}
_REFERENCE = "#/components/schemas/"


def build_document() -> dict[str, Any]:
    """Build the document from the functions' code."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for function in FUNCTIONS:
        # The routes are only described, never called, so there is no job behind them.
        text = _load_handler(function).build_app(None).get_openapi_json_schema()
        generated = json.loads(text, parse_float=_number)
        for path, item in generated["paths"].items():
            paths.setdefault(path, {}).update(item)
        schemas.update(generated["components"]["schemas"])
    for item in paths.values():
        for method in METHODS:
            if method in item:
                item[method] = _correct(item[method])
    used = _used_schemas(paths, schemas)
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "servers": SERVERS,
        "security": [{SECURITY_SCHEME: []}],
        "paths": paths,
        "components": {
            "schemas": {name: schemas[name] for name in sorted(used)},
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def render(document: Mapping[str, Any]) -> str:
    """Render the document as the file holds it."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _number(text: str) -> float:
    """Read a limit; Powertools makes doubles of all of them."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _load_handler(function: str) -> ModuleType:
    """Load a function's module under a name of its own: all of them are called `handler`."""
    spec = importlib.util.spec_from_file_location(f"openapi_{function}", ROOT / "lambdas" / function / "handler.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"there is no function {function}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic resolves the annotations of its models there
    spec.loader.exec_module(module)
    return module


def _correct(operation: Mapping[str, Any]) -> dict[str, Any]:
    responses = {status: answer for status, answer in sorted(operation["responses"].items()) if status != "422"}
    parameters = [_correct_parameter(parameter) for parameter in operation["parameters"]]
    return {**operation, "parameters": parameters, "responses": responses}


def _correct_parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Say what an optional parameter is when it is there, and its description once."""
    schema = parameter["schema"]
    if "anyOf" in schema:
        (given,) = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
        schema = {**given, "title": schema["title"]}
    description = parameter.get("description") or schema.get("description", "")
    schema = {name: value for name, value in schema.items() if name != "description"}
    return {
        "name": parameter["name"],
        "in": parameter["in"],
        "description": description,
        "required": parameter["required"],
        "schema": schema,
    }


def _used_schemas(paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> set[str]:
    """List the schemas that the paths refer to, directly or through others."""
    used: set[str] = set()
    waiting = list(_references(paths))
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting.extend(_references(schemas[name]))
    return used


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            if name == "$ref":
                yield value.removeprefix(_REFERENCE)
            else:
                yield from _references(value)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for value in node:
            yield from _references(value)
