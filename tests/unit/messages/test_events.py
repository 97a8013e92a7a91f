"""docs/openapi.json describes the API as it is: valid, of the models that check requests, and of every response."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from hotpartition_messages import api as problems
from hotpartition_messages import read_requests, write_requests
from support.documents import description
from support.events import COLLECTION, ELEMENT, message_event

from .api import Api
from .test_requests import ID, REFUSED, TAKEN

REQUESTS = {
    ("post", COLLECTION): write_requests.WriteRequest,
    ("get", COLLECTION): read_requests.PageReadRequest,
    ("get", ELEMENT): read_requests.MessageReadRequest,
    ("patch", ELEMENT): write_requests.MessageEditRequest,
    ("delete", ELEMENT): write_requests.MessageDeleteRequest,
}
"""The models that check each route's requests."""

PARTS = ("pathParameters", "headers", "queryStringParameters", "body", "isBase64Encoded")
ANY = [*TAKEN, *(event for event, _ in REFUSED)]


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """A good event, some parts of which are those of any other request, or null, or absent."""
    event = dict(draw(st.sampled_from(TAKEN)))
    for part in draw(st.lists(st.sampled_from(PARTS), unique=True)):
        event[part] = draw(st.sampled_from(ANY)).get(part)
        if event[part] is None and draw(st.booleans()):
            del event[part]
    return event


@settings(max_examples=150)
@given(events())
def test_odd_events_get_described_responses(event):
    """Odd ids, queries, headers, encodings and bodies, present, null or absent. What is acknowledged can be read."""
    api = Api()
    api.post(message_id=ID)
    response = api.call(event)
    assert response.status != 500
    if response.status == 201:
        stored = response.body
        assert api.call(message_event(stored["conversation_id"], stored["message_id"])).status == 200


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
