"""`ReadCache`: users' own values. The engine below it is tested in tests/unit/engine/test_cache.py."""

from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st

from hotpartition import ReadCache
from hotpartition.core.errors import MalformedPageError
from hotpartition.table.cached_values import ValueCodec

CODEC = ValueCodec()
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.builds(Binary, st.binary())
    | st.builds(bytearray, st.binary())
)
VALUES = st.recursive(
    SCALARS | st.sets(st.text() | st.decimals(allow_nan=False)),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["$", "of", "name"]) | st.text(), inner),
    max_leaves=20,
)


def types_in(value):
    """List every type in a value, in order: `1 == 1.0 == Decimal(1)` hides what a codec did."""
    if isinstance(value, dict):
        return [dict, *(each for name in value for each in types_in(value[name]))]
    return [list, *(each for item in value for each in types_in(item))] if isinstance(value, list) else [type(value)]


@given(VALUES)
def test_a_value_comes_back_as_it_was(value):
    """Through Redis, and as a copy."""
    for other in (CODEC.decode(CODEC.encode(value)), CODEC.copy(value)):
        assert (other, types_in(other)) == (value, types_in(value))


@given(st.text() | st.sampled_from(['{"$":"x","of":1}', '{"$":"decimal"}', '{"$":"decimal","of":"x"}', '{"$":[]}']))
def test_garbage_is_a_value_or_said_to_be_none(text):
    try:
        CODEC.decode(text)
    except MalformedPageError:
        return


@pytest.mark.parametrize("value", [object(), {1: "a"}, {"a": [{"b": 1j}]}])
def test_what_cannot_be_written_is_named(value):
    with pytest.raises(TypeError, match=r"ReadCache cannot write .*codec="):
        CODEC.encode(value)


def test_size_grows_with_what_is_in_a_value():
    small, large = (CODEC.size_bytes({"a": ["x" * length, Decimal(1)]}) for length in (1, 10_001))
    assert large == small + 10_000


def test_a_caller_may_change_what_it_gets():
    """Also a value of a type that the codec does not know: without Redis nothing is written."""
    cache, loaded = ReadCache(seconds=60), []

    class Product:
        def __init__(self):
            loaded.append(self)
            self.tags = []

    for _ in range(3):
        cache.get("product:42", load=Product).tags.append("changed")
    assert (len(loaded), cache.get("product:42", load=Product).tags) == (1, [])


@pytest.mark.parametrize(("seconds", "expected"), [(60, "aabb"), (0, "abcd")])
def test_a_value_is_loaded_anew_when_it_is_forgotten_or_too_old(seconds, expected):
    """With no time to live nothing is reused."""
    cache, values = ReadCache(seconds=seconds), iter("abcd")
    found = [cache.get("k", load=lambda: next(values)) for _ in range(2)]
    cache.forget("k")
    found += [cache.get("k", load=lambda: next(values)) for _ in range(2)]
    assert "".join(found) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": -1}, "seconds is -1, and must be at least 0"),
        ({"seconds": float("nan")}, "seconds is nan, and must be at least 0"),
        ({"seconds": 2, "stale_seconds": 3}, "stale_seconds is 3, and must be at least twice seconds, 4"),
        ({"max_entries": 0}, "max_entries and max_bytes must be at least 1"),
        ({"redis": "localhost"}, "redis= is the address of a Redis cluster, such as rediss://"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ReadCache(**arguments)
