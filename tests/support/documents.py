"""Documents held to the code: responses to the published description of the API, and examples of docstrings run.

The two share no code, and doctest alone does not see the text that follows a constant: that is read from the source.
"""

from __future__ import annotations

import ast
import doctest
import inspect
import json
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tools.site import find_home

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


class _Checker(doctest.OutputChecker):
    """What an example does not show is not compared."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


def read_docstrings(package: str, name: str) -> list[str]:
    """Read the docstring of a public name, and of its public methods, in the order of the source."""
    module = import_module(find_home(package, name))
    thing = getattr(module, name)
    if not callable(thing):
        return [_read_beside(inspect.getsource(module), name)]
    methods = [each for key, each in vars(thing).items() if not key.startswith("_")] if inspect.isclass(thing) else []
    return [inspect.getdoc(each) or "" for each in (thing, *methods)]


def _read_beside(source: str, name: str) -> str:
    """Read the text that follows a constant."""
    body = ast.parse(source).body
    for node, following in pairwise(body):
        is_named = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name
        if is_named and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return str(following.value.value)
    return ""


def run_examples(package: str, name: str, names: dict[str, Any]) -> int:
    """Run all examples of a public name one after the other; returns how many its own docstring has."""
    said: list[str] = []
    runner = doctest.DocTestRunner(checker=_Checker(), verbose=False, optionflags=doctest.ELLIPSIS)
    counts = []
    for docstring in read_docstrings(package, name):
        test = doctest.DocTestParser().get_doctest(docstring, names, f"{package}.{name}", None, 0)
        counts.append(len(test.examples))
        runner.run(test, out=said.append, clear_globs=False)
        names.update(test.globs)
    assert not said, "".join(said)
    return counts[0]
