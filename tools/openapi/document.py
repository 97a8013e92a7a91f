"""One document for the routes of both functions: their descriptions, and the models that check their requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from hotpartition import __version__
from hotpartition_messages.problems import PROBLEM_JSON, ProblemKind
from tools.openapi.description import OPERATIONS, Operation, Success, document_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT_FILE = ROOT / "docs" / "openapi.json"

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
_Described = tuple[type[BaseModel], JsonSchemaMode]


def build_document() -> dict[str, Any]:
    """Build the document from the code."""
    paths: dict[str, dict[str, Any]] = {}
    documents = {s.document for o in OPERATIONS for s in o.successes.values() if s.document is not None}
    documents |= {document_of(kind) for o in OPERATIONS for kind in o.problems}
    models: list[_Described] = [(model, "serialization") for model in documents]
    bodies: list[_Described] = [(_part(o, "body"), "validation") for o in OPERATIONS if _has(o, "body")]
    _, schemas = models_json_schema([*models, *bodies], ref_template=_REFERENCE + "{model}")
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "servers": SERVERS,
        "security": [{SECURITY_SCHEME: []}],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas["$defs"].items())), "securitySchemes": SECURITY_SCHEMES},
    }


def render(document: Mapping[str, Any]) -> str:
    """Render the document as the file holds it."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _describe(operation: Operation) -> dict[str, Any]:
    responses = {str(status): _describe_success(success) for status, success in operation.successes.items()}
    problems = {str(int(kind.status)): _describe_problem(kind) for kind in operation.problems}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": operation.operation_id,
        "parameters": [each for part in ("path", "query", "header") for each in _parameters(operation, part)],
    }
    if _has(operation, "body"):
        body = _part(operation, "body")
        described["requestBody"] = {"content": _json_content(body), "required": True}
    return {**described, "responses": {**responses, **problems}}


def _describe_success(success: Success) -> dict[str, Any]:
    described: dict[str, Any] = {"description": success.description}
    headers = {
        name: {"description": meaning, "required": name in success.headers, "schema": {"type": "string"}}
        for name, meaning in {**success.headers, **success.optional_headers}.items()
    }
    if headers:
        described["headers"] = headers
    if success.document is not None:
        described["content"] = _json_content(success.document)
    return {**described, "links": success.links} if success.links else described


def _describe_problem(kind: ProblemKind) -> dict[str, Any]:
    example = {kind.name: {"value": kind.members() | dict(kind.example)}}
    content = {PROBLEM_JSON: {"schema": _reference(document_of(kind)), "examples": example}}
    if not kind.headers:
        return {"description": kind.meaning, "content": content}
    seconds = {"description": "Seconds to wait.", "required": True, "schema": {"type": "integer", "minimum": 1}}
    return {"description": kind.meaning, "headers": {"Retry-After": seconds}, "content": content}


def _parameters(operation: Operation, part: str) -> Iterator[dict[str, Any]]:
    """Describe the parameters that one part of a request has; an optional one as what it is when it is there."""
    if not _has(operation, part):
        return
    described = _part(operation, part).model_json_schema()
    for name, schema in described["properties"].items():
        form = dict(schema)
        description = form.pop("description")
        if "anyOf" in form:
            given, _ = form.pop("anyOf")
            del form["default"]
            form |= given
        yield {
            "name": name,
            "in": part,
            "description": description,
            "required": name in described.get("required", ()),
            "schema": form,
        }


def _has(operation: Operation, part: str) -> bool:
    return part in operation.request.model_fields


def _part(operation: Operation, part: str) -> type[BaseModel]:
    model = operation.request.model_fields[part].annotation
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"{part} of {operation.operation_id} should be a model")
    return model


def _json_content(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(model)}}


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE + model.__name__}
