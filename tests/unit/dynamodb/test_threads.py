"""Calls of DynamoDB on several threads."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from hotpartition.core.errors import ThrottledError
from hotpartition.dynamodb.calls import Call
from hotpartition.dynamodb.threads import ThreadedCalls


@pytest.fixture
def _no_collector():
    """Only what nothing refers to is freed."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
def test_a_refused_call_is_freed_with_its_round():
    """Thousands are refused each second while a key is hot: none waits for the garbage collector."""
    errors = []

    def refuse(operation, request):
        error = ThrottledError()
        errors.append(weakref.ref(error))
        raise error

    with ThreadPoolExecutor(2) as executor:
        calls = ThreadedCalls(refuse, executor, parallel=2)
        round_ = calls.call_many([Call("Query", {})] * 4, is_hedged=False)
    assert [type(outcome) for outcome in round_.outcomes] == [ThrottledError] * 4
    del round_
    assert [error() for error in errors] == [None] * 4
