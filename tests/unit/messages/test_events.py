"""docs/openapi.json describes the API as it is: valid, of the models that check requests, and of every response."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from hotpartition_messages import api as problems
from hotpartition_messages import read_requests, write_requests
from support.documents import description
from support.events import COLLECTION, ELEMENT, http_event, message_event

from .api import Api
from .test_requests import BAD_BODIES, BAD_PARAMETERS, BAD_TAGS, ID

REQUESTS = {
    ("post", COLLECTION): write_requests.WriteRequest,
    ("get", COLLECTION): read_requests.PageReadRequest,
    ("get", ELEMENT): read_requests.MessageReadRequest,
    ("patch", ELEMENT): write_requests.MessageEditRequest,
    ("delete", ELEMENT): write_requests.MessageDeleteRequest,
}
"""The models that check each route's requests."""

anything = st.text(max_size=12) | st.text(st.characters(codec=None, categories=["Cs", "Cc", "Lo", "So"]), max_size=4)


def odd(*known):
    """What is known, or anything."""
    return st.sampled_from([each for each in known if each is not None]) | anything


def some_of(names, values):
    """A part of an event that names texts, or null."""
    return st.none() | st.dictionaries(odd(*names), odd(*values), max_size=5)


queries = some_of(
    [*BAD_PARAMETERS, "limit[]", "Limit", ""],
    ["1", "newest", "strong", *(text for texts in BAD_PARAMETERS.values() for text in texts)],
)
headers = some_of(
    ["content-type", "content-encoding", "If-Match"],
    ["application/json", "text/plain; charset=utf-16", "gzip", 'W/"1", "2"', "*", *BAD_TAGS],
)
texts = odd(
    '{"sender":"a","body":"b"}',
    '{"sender":"a","body":"b","message_id":null}',
    '{"sender":"a","body":"b","expires_at":"9999-12-31T23:59:59.9Z"}',
    '{"sender":"a","body":"b","attributes":{"x":[1e300,-0.0,123456789012345678901234567890]}}',
    '{"sender":"a","body":"\\u0000"}',
    *BAD_BODIES,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)
messages = st.fixed_dictionaries(
    {"sender": anything, "body": anything},
    optional={"attributes": json_values, "message_id": anything, "surplus": json_values},
)
bodies = (
    st.none()
    | texts
    | (json_values | messages).map(json.dumps)
    | texts.map(lambda text: base64.b64encode(text.encode(errors="replace")).decode())
)
ids = odd("c", ID, ID.lower(), "018bcfe5-6800-7000-8000-000000000005")


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """An event of one of the routes, in which everything that a client decides may be odd."""
    method, route = draw(st.sampled_from(sorted(REQUESTS)))
    named = {name: draw(ids) for name in ("conversation_id", "message_id") if f"{{{name}}}" in route}
    event = http_event(method.upper(), route, named, is_base64=draw(st.booleans()))
    optional = {
        "pathParameters": draw(st.just(named) | st.just(named) | st.none()),
        "headers": draw(headers),
        "queryStringParameters": draw(queries),
        "body": draw(bodies),
        "cookies": draw(st.none() | st.lists(anything, max_size=2)),
        "stageVariables": draw(st.none() | st.just({"a": "b"})),
    }
    for name, value in optional.items():
        event.pop(name, None)
        if value is not None or draw(st.booleans()):
            event[name] = value
    return {**event, "rawPath": draw(anything), "rawQueryString": draw(anything)}


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


@pytest.mark.parametrize("present", [{"pathParameters": None}, {}])
@pytest.mark.parametrize(("method", "route"), REQUESTS)
def test_an_event_without_path_parameters_is_refused(method, route, present):
    """Nothing is read or written for a conversation without a name."""
    event = http_event(method.upper(), route, {"conversation_id": "c", "message_id": ID}, body='{"sender":"a"}')
    del event["pathParameters"]
    assert Api().call({**event, **present}).status in {400, 404}


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
