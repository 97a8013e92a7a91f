"""The API's description: valid, true, and the one that the code generates."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from hotpartition_messages import problems
from support.events import COLLECTION, COUNTER, ELEMENT
from tools.openapi.document import DOCUMENT_FILE, build_document, render


@pytest.fixture(scope="module")
def document():
    return build_document()


def schema_at(document, schema):
    """A schema of the document that can find the ones it refers to."""
    return Draft202012Validator({**schema, "components": document["components"]})


def operations(document):
    return {(path, method): item[method] for path, item in document["paths"].items() for method in item}


def test_the_published_document_is_the_code(document):
    """`make openapi` writes it again."""
    assert DOCUMENT_FILE.read_text(encoding="utf-8") == render(document)


def test_the_document_is_valid(document):
    """Tools for OpenAPI 3.1 can read it."""
    validate(document)


def test_its_routes_are_those_of_the_gateway(document):
    """No route that API Gateway would not pass on, and none forgotten."""
    source = (DOCUMENT_FILE.parents[1] / "infra" / "api.py").read_text()
    assert f'MESSAGES_PATH = "{COLLECTION}"' in source
    assert f'COUNTER_PATH = "{COUNTER}"' in source
    assert set(document["paths"]) == {COLLECTION, ELEMENT, COUNTER}


def test_every_schema_is_used(document):
    """What Powertools adds for answers that these functions never give is gone."""
    text = json.dumps(document)
    assert all(f'"#/components/schemas/{name}"' in text for name in document["components"]["schemas"])
    assert "ValidationError" not in text


def test_its_examples_are_what_it_describes(document):
    """Of every schema, parameter and problem."""
    count = 0
    for schema in document["components"]["schemas"].values():
        for example in schema.get("examples", ()):
            schema_at(document, schema).validate(example)
            count += 1
    for operation in operations(document).values():
        for parameter in operation["parameters"]:
            for example in parameter["schema"].get("examples", ()):
                schema_at(document, parameter["schema"]).validate(example)
                count += 1
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                for example in content.get("examples", {}).values():
                    schema_at(document, content["schema"]).validate(example["value"])
                    assert example["value"]["status"] == int(status)
                    count += 1
    assert count >= 15


def test_its_links_lead_to_its_own_parameters(document):
    """A client can follow them: the operation exists and has the parameters that the link fills in."""
    parameters = {o["operationId"]: {p["name"] for p in o["parameters"]} for o in operations(document).values()}
    links = [
        link
        for operation in operations(document).values()
        for response in operation["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert {link["operationId"] for link in links} == {"read_message", "read_page"}
    for link in links:
        assert set(link["parameters"]) <= parameters[link["operationId"]]


def test_every_kind_of_problem_is_described_or_never_reaches_a_client(document):
    """The kinds that the code answers with are the kinds that the document shows."""
    kinds = {value.name for value in vars(problems).values() if isinstance(value, problems.ProblemKind)}
    shown = {
        name
        for operation in operations(document).values()
        for response in operation["responses"].values()
        for content in response.get("content", {}).values()
        for name in content.get("examples", {})
    }
    assert kinds - shown == {"no-such-resource"}
