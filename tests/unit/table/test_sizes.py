"""Sizes of Python values are those of the encoded items."""

from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary, TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.capacity import item_size_bytes
from hotpartition.table.schema import attributes_size_bytes

INTEGERS = st.integers(-(10**38) + 1, 10**38 - 1)
NUMBERS = INTEGERS | st.builds(lambda digits, exponent: Decimal(f"{digits}E{exponent}"), INTEGERS, st.integers(-60, 60))
BINARIES = st.binary(min_size=1) | st.binary(min_size=1).map(bytearray) | st.binary(min_size=1).map(Binary)
SCALARS = st.text() | NUMBERS | BINARIES | st.booleans() | st.none()
SETS = st.one_of(st.sets(each, min_size=1, max_size=4) for each in (st.text(), NUMBERS, st.binary(min_size=1)))
VALUES = st.recursive(
    SCALARS | SETS,
    lambda values: st.lists(values) | st.lists(values).map(tuple) | st.dictionaries(st.text(), values),
    max_leaves=6,
)


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=3))
def test_a_size_is_that_of_the_encoded_item(item):
    serialize = TypeSerializer().serialize
    assert attributes_size_bytes(item) == item_size_bytes({name: serialize(value) for name, value in item.items()})


@pytest.mark.parametrize("value", [1.5, object(), Decimal("NaN"), {"a", 1}])
def test_what_boto3_refuses_is_left_to_boto3(value):
    """Its size matters to nobody, and the error is boto3's own."""
    assert attributes_size_bytes({"a": value}) >= 0
