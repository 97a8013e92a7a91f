"""The API's description: valid, and of the routes and requests that there are."""

from __future__ import annotations

import json

from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from hotpartition_messages import problems, read_requests, write_requests
from support.described import description
from support.events import COLLECTION, ELEMENT

REQUESTS = {
    ("post", COLLECTION): write_requests.WriteRequest,
    ("get", COLLECTION): read_requests.PageReadRequest,
    ("get", ELEMENT): read_requests.MessageReadRequest,
    ("patch", ELEMENT): write_requests.MessageEditRequest,
    ("delete", ELEMENT): write_requests.MessageDeleteRequest,
}
"""The models that check each route's requests."""


def operations():
    return {(method, path): each for path, item in description()["paths"].items() for method, each in item.items()}


def fields_of(model, part):
    """The fields of one part of a request by their names in HTTP, and whether each must be there."""
    described = model.model_fields.get(part)
    fields = described.annotation.model_fields if described else {}
    return {field.alias or name: field.is_required() for name, field in fields.items()}


def test_it_is_valid():
    """Tools for OpenAPI 3.1 can read it, and every schema is used."""
    validate(description())
    text = json.dumps(description())
    assert all(f'"#/components/schemas/{name}"' in text for name in description()["components"]["schemas"])


def test_its_requests_are_those_of_the_models():
    """Every route, parameter, header and field of a body, and whether it must be there."""
    assert operations().keys() == REQUESTS.keys()
    for key, operation in operations().items():
        model = REQUESTS[key]
        for part in ("path", "query", "header"):
            named = {each["name"]: each["required"] for each in operation["parameters"] if each["in"] == part}
            assert named == fields_of(model, part)
        body = operation.get("requestBody", {"content": {"application/json": {"schema": {"$ref": "#/-"}}}})
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        schema = description()["components"]["schemas"].get(name, {})
        required = set(schema.get("required", ()))
        assert {each: each in required for each in schema.get("properties", {})} == fields_of(model, "body")


def test_its_examples_are_what_it_describes():
    """Of every problem; and every kind that reaches a client has one."""
    shown = set()
    for operation in operations().values():
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                for name, example in content.get("examples", {}).items():
                    schema = {**content["schema"], "components": description()["components"]}
                    Draft202012Validator(schema).validate(example["value"])
                    shown.add((name, int(status), example["value"]["title"], example["value"]["type"]))
    kinds = [value for value in vars(problems).values() if isinstance(value, problems.ProblemKind)]
    expected = {(k.name, int(k.status), k.members()["title"], k.members()["type"]) for k in kinds}
    assert expected - shown == {("no-such-resource", 404, "Not Found", "urn:hotpartition:no-such-resource")}
    assert shown <= expected
