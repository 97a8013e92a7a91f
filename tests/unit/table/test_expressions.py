"""Key conditions, equalities in filters and projections, as objects and as texts; sizes of values.

Its tables set what can be read beside what only looks like it, as a query by a wrong guess would miss items.
"""

from decimal import Decimal, localcontext

import pytest
from boto3.dynamodb.conditions import Attr, Key
from boto3.dynamodb.types import Binary, TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.capacity import item_size_bytes
from hotpartition.table.expressions import (
    ADD,
    Comparison,
    Conditions,
    KeyCondition,
    UnreadableExpressionError,
    add_clause,
    enclose,
)
from hotpartition.table.schema import attributes_size_bytes, text_of

VALUES = {":p": "room", ":a": "1", ":b": "2"}


KEYS = [
    ("PK = :p", None),
    ("#p=:p", None),
    ("(PK = :p)", None),
    ("PK = :p AND SK = :a", Comparison("SK", "=", ("1",))),
    ("SK>=:a and PK=:p", Comparison("SK", ">=", ("1",))),
    ("((PK = :p) And (SK < :a))", Comparison("SK", "<", ("1",))),
    ("PK = :p AND #s between :a and :b", Comparison("SK", "BETWEEN", ("1", "2"))),
    ("begins_with ( SK , :a ) AND PK = :p", Comparison("SK", "BEGINS_WITH", ("1",))),
    (Key("SK").between("1", "2") & Key("PK").eq("room"), Comparison("SK", "BETWEEN", ("1", "2"))),
]


def read_key(expression):
    request = {"KeyConditionExpression": expression, "ExpressionAttributeValues": VALUES}
    names = {"#p": "PK", "#s": "SK"}
    return Conditions.parse({**request, "ExpressionAttributeNames": names}).read_key("PK", "SK")


@pytest.mark.parametrize(("expression", "expected"), KEYS)
def test_key_conditions_are_read(expression, expected):
    assert read_key(expression) == KeyCondition("room", expected)


@pytest.mark.parametrize(
    "expression",
    ["", "PK", "PK = ", "PK = :nobody", "PK > :p", "SK = :a", "PK = :p OR SK = :a", "PK = :p AND n = :a",
     "PK = :p AND", "(PK = :p", "PK = :p)", "PK IN (:p)", "contains(PK, :p)", "PK = :p AND SK <> :a",
     "Begins_With(SK, :a) AND PK = :p", "PK = :p AND SK > :a AND SK < :b", "PK = :p AND PK = :a"],
)  # fmt: skip
def test_what_is_no_key_condition_is_not_guessed_at(expression):
    """DynamoDB says what is wrong with it."""
    with pytest.raises(UnreadableExpressionError):
        read_key(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Attr("device").eq("d1"), "d1"),
        (Attr("n").gt(1) & Attr("device").eq("d1"), "d1"),
        ((Attr("n").between(1, 2) & Attr("x").exists()) & Attr("device").eq("d1"), "d1"),
        ("device = :a", "1"),
        (":a = device", "1"),
        ("n BETWEEN :a AND :b AND (device = :b)", "2"),
        ("#d = :a AND (n = :b OR n = :a)", "1"),
        (Attr("device").eq("d1") | Attr("n").eq(1), None),
        (~Attr("device").eq("d1"), None),
        ("NOT device = :a", None),
        ("NOT (device = :a)", None),
        ("n = :a OR device = :a", None),
        ("n = :a OR n = :b AND device = :a", None),
        ("device.name = :a", None),
        ("size(device) = :a", None),
        ("device <> :a", None),
        ("device = n", None),
        (None, None),
    ],
)
def test_equalities_are_found_where_every_item_must_fulfil_them(expression, expected):
    """And nowhere else: a query would miss what it does not ask for."""
    request = {
        "FilterExpression": expression,
        "ExpressionAttributeNames": {"#d": "device"},
        "ExpressionAttributeValues": VALUES,
    }
    assert Conditions.parse(request).find_equality("device") == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a = :b", "(a = :b)"),
        ("(a = :b)", "(a = :b)"),
        ("(a = :b) OR (c = :d)", "((a = :b) OR (c = :d))"),
        ("((a = :b) AND b IN (:c))", "((a = :b) AND b IN (:c))"),
    ],
)
def test_a_condition_is_enclosed_once(expression, expected):
    """DynamoDB refuses redundant parentheses."""
    assert enclose(expression) == expected


def test_what_only_the_key_condition_uses_goes_with_it():
    """What the filter uses stays, and so does what nothing uses: DynamoDB refuses that."""
    request = {
        "KeyConditionExpression": "#p = :p AND #s > :a",
        "FilterExpression": "#s = :a",
        "ExpressionAttributeNames": {"#p": "PK", "#s": "SK", "#unused": "y"},
        "ExpressionAttributeValues": {":p": "room", ":a": 1},
    }
    assert Conditions.parse(request).rest == {
        "FilterExpression": "#s = :a",
        "ExpressionAttributeNames": {"#s": "SK", "#unused": "y"},
        "ExpressionAttributeValues": {":a": 1},
    }


INTEGERS = st.integers(-(10**38) + 1, 10**38 - 1)
NUMBERS = INTEGERS | st.builds(lambda digits, exponent: Decimal(f"{digits}E{exponent}"), INTEGERS, st.integers(-60, 60))
BINARIES = st.binary(min_size=1) | st.binary(min_size=1).map(bytearray) | st.binary(min_size=1).map(Binary)
SETS = st.one_of(st.sets(each, min_size=1, max_size=4) for each in (st.text(), NUMBERS, st.binary(min_size=1)))
ATTRIBUTES = st.recursive(
    st.text() | NUMBERS | BINARIES | st.booleans() | st.none() | SETS,
    lambda values: st.lists(values) | st.lists(values).map(tuple) | st.dictionaries(st.text(), values),
    max_leaves=6,
)


@given(st.dictionaries(st.text(min_size=1), ATTRIBUTES, max_size=3))
def test_a_size_is_that_of_the_encoded_item(item):
    serialize = TypeSerializer().serialize
    assert attributes_size_bytes(item) == item_size_bytes({name: serialize(value) for name, value in item.items()})


@pytest.mark.parametrize("value", [1.5, object(), Decimal("NaN"), {"a", 1}])
def test_what_boto3_refuses_is_left_to_boto3(value):
    """Its size matters to nobody, and the error is boto3's own."""
    assert attributes_size_bytes({"a": value}) >= 0


def test_equal_numbers_have_one_text_whatever_the_precision_around():
    """Shards are chosen by it."""
    long = Decimal("1234567890.12345678901234567890")
    with localcontext() as context:
        context.prec = 5
        assert text_of(long) == "1234567890.1234567890123456789"
    assert text_of(Decimal("-0")) == text_of(0) == "0"
    assert text_of(Decimal("1E+2")) == text_of(100) == "100"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", "ADD #hpn0 :hpn0"),
        ("SET #add = :add, padd = :one", "SET #add = :add, padd = :one ADD #hpn0 :hpn0"),
        ("SET a = :one add n :one", "SET a = :one ADD #hpn0 :hpn0, n :one"),
    ],
)
def test_an_update_gets_a_clause_or_more_of_its_own(expression, expected):
    """A name or placeholder that is called like a clause is left as it is."""
    changed = add_clause({"UpdateExpression": expression}, ADD, ["hp_changes"], [1])
    assert changed["UpdateExpression"] == expected
