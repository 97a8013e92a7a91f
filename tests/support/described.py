"""Holds responses to the published description of the API."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

DOCUMENT_FILE = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"


@cache
def description() -> dict[str, Any]:
    """Return the document as it is published."""
    document: dict[str, Any] = json.loads(DOCUMENT_FILE.read_text(encoding="utf-8"))
    return document


def check_described(route_key: str, status: int, headers: dict[str, str], body: str | bytes) -> None:
    """Assert that a response's status, headers, content type and content are among those described for its route."""
    method, _, path = route_key.partition(" ")
    responses = description()["paths"][path][method.lower()]["responses"]
    assert str(status) in responses, f"{route_key} responded {status}: {body!r:.300}"
    response = responses[str(status)]
    lowered = {name.lower(): value for name, value in headers.items()}
    for name, header in response.get("headers", {}).items():
        assert name.lower() in lowered or not header["required"]
    if "content" not in response:
        assert not body
        return
    assert lowered["content-type"] in response["content"]
    _validator(route_key, status, lowered["content-type"]).validate(json.loads(body))


@cache
def _validator(route_key: str, status: int, content_type: str) -> Draft202012Validator:
    method, _, path = route_key.partition(" ")
    document = description()
    schema = document["paths"][path][method.lower()]["responses"][str(status)]["content"][content_type]["schema"]
    return Draft202012Validator({**schema, "components": document["components"]})
