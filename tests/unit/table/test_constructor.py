"""What a `ShardedTable` is made of, how it can be looked at, and which arguments and calls it refuses by name."""

import copy
import sys
from decimal import Decimal

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from boto3.resources.base import ServiceResource
from botocore.exceptions import ClientError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.route import Generation
from hotpartition.dynamodb.python_values import load
from hotpartition.table import ShardedTable, adaptive, by_sort_key, fixed, in_band

from .conftest import updating

ITEM = {"PK": "room", "SK": "0001"}


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        ({"shards": 8}, r"fixed\(8\), in_band\(\) or adaptive\(\)"),
        ({"shards": fixed}, r"fixed\(n\)"),
        ({"hashed": "device"}, r"by_attribute\('device'\)"),
        ({"hashed": by_sort_key}, r"by_sort_key\(\)"),
        ({"position": 7}, "a function"),
        ({"shards": in_band(closing=True)}, r"Write position=\.\.\., a function that returns the time"),
    ],
)
def test_wrong_arguments_are_refused_with_what_to_write(plain, arguments, instead):
    """When the table is made, not with the first call."""
    with pytest.raises(TypeError, match=instead):
        ShardedTable(plain, **{"shards": fixed(4), **arguments})


def test_what_is_no_table_is_refused_with_what_to_write(plain, dynamodb):
    """A name, a client, a resource; and a table that is sharded already."""
    for other in ("readings", dynamodb):
        with pytest.raises(TypeError, match=r'\.Table\("readings"\)'):
            ShardedTable(other, shards=fixed(4))
    with pytest.raises(TypeError, match=r"guard\(client, table\)"):
        ShardedTable(boto3.client("dynamodb"), shards=fixed(4))
    with pytest.raises(TypeError, match="is sharded already"):
        ShardedTable(ShardedTable(plain, shards=fixed(4)), shards=fixed(4))


def test_an_attribute_error_inside_is_not_hidden(plain):
    """It names what was missing, where it was."""

    class Broken:
        finds_read_heat = False

        def build_routes(self, *_):
            return self.missing

    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'missing'"):
        ShardedTable(plain, shards=Broken()).put_item(Item=ITEM)


def test_adaptive_names_the_extra_that_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match=r"hotpartition\[adaptive\]"):
        adaptive(registry_host="redis.example")


def test_a_table_can_be_looked_at_and_copied(table, plain):
    """A copy is the same table; `dir` lists what boto3's has, and nothing that is refused."""
    table.put_item(Item=ITEM)
    twice = copy.copy(table)
    twice.update_item(Key=ITEM, **updating("SET n = :n", n=1))
    assert table.get_item(Key=ITEM)["Item"] == {**ITEM, "n": 1}
    assert {"put_item", "key_schema", "wait_until_exists", "get_items"} <= set(dir(table))
    assert "transact_write_items" not in dir(table)
    assert repr(table).startswith(f"ShardedTable({plain!r}, shards=Fixed(")
    assert repr(copy.copy(table.meta)) == repr(table.meta)
    assert isinstance(table, ServiceResource)
    assert table != ShardedTable(plain, shards=fixed(4))


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("put_item", {"Item": ITEM}),
        ("get_item", {"Key": ITEM}),
        ("update_item", {"Key": ITEM}),
        ("delete_item", {"Key": ITEM}),
        ("query", {"KeyConditionExpression": "PK = :p", "ExpressionAttributeValues": {":p": "room"}}),
        ("scan", {}),
    ],
)
def test_a_missing_table_is_reported_as_by_boto3(dynamodb, method, request_):
    with pytest.raises(ClientError) as expected:
        getattr(dynamodb.Table("missing"), method)(**request_)
    with pytest.raises(type(expected.value)) as found:
        getattr(ShardedTable(dynamodb.Table("missing"), shards=fixed(4)), method)(**request_)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    ("method", "request_", "instead"),
    [
        ("query", {"KeyConditions": {}}, "KeyConditionExpression"),
        ("query", {"QueryFilter": {}}, "FilterExpression"),
        ("scan", {"ScanFilter": {}}, "FilterExpression"),
        ("get_item", {"Key": {}, "AttributesToGet": ["n"]}, "ProjectionExpression"),
        ("put_item", {"Item": {}, "Expected": {}}, "ConditionExpression"),
        ("update_item", {"Key": {}, "AttributeUpdates": {}}, "UpdateExpression"),
        ("delete_item", {"Key": {}, "ConditionalOperator": "AND"}, "expressions"),
    ],
)
def test_parameters_are_refused_with_what_to_use_instead(table, watched, method, request_, instead):
    with pytest.raises(NotImplementedError, match=instead):
        getattr(table, method)(**request_)
    assert not watched.sent


@pytest.mark.parametrize(
    "method",
    ["transact_write_items", "transact_get_items", "execute_statement", "batch_get_item", "batch_write_item"],
)
def test_methods_are_refused_with_what_to_use_instead(table, method):
    """Clients have them, tables do not: whoever looks for them here learns why."""
    with pytest.raises(NotImplementedError, match="Use"):
        getattr(table, method)
    assert not hasattr(table, method)


def test_a_table_that_cannot_be_sharded_is_refused(create):
    """With the first call, which looks at its keys."""
    with pytest.raises(NotImplementedError, match="no string"):
        ShardedTable(create("other", "PK", "SK", types={"PK": "N"}), shards=fixed(4)).scan()


@pytest.mark.parametrize("sort_type", ["N", "B"])
def test_routing_items_lie_beside_items_whatever_the_type_of_their_sort_key(create, sort_type):
    """At a constant of that type, which no owner's item may have; streams do not show them."""
    plain = create("points", "PK", "SK", types={"SK": sort_type})
    of = {"N": Decimal, "B": lambda number: bytes([number])}[sort_type]
    table = ShardedTable(plain, shards=in_band(environ={}))
    table.put_item(Item={"PK": "room", "SK": of(1)})
    routes = table._open("PutItem").items.sharding.routes
    key = load(routes.journal.key_of("room"))
    plain.update_item(Key=key, **updating("ADD generations :g", g={Generation(0, 4).encode()}))
    table = ShardedTable(plain, shards=in_band(environ={}))
    table.query(KeyConditionExpression=Key("PK").eq("room"))
    for number in range(2, 20):
        table.put_item(Item={"PK": "room", "SK": of(number)})
    assert len({item["PK"] for item in plain.scan()["Items"]}) > 3
    for options in ({}, {"Limit": 7}, {"ScanIndexForward": False, "Limit": 5}):
        pages = table.query_pages(KeyConditionExpression=Key("PK").eq("room"), **options)
        values = [item["SK"] for page in pages for item in page["Items"]]
        found = [int(value) if sort_type == "N" else bytes(value)[0] for value in values]
        assert found == sorted(range(1, 20), reverse="ScanIndexForward" in options)
    assert table.get_item(Key={"PK": "room", "SK": of(7)})["Item"]["PK"] == "room"
    assert table.scan()["Count"] == 19
    typed = routes.journal.key_of("room")
    assert table.logical_key(typed) is table.logical_key(key) is None
    with pytest.raises(InvalidRequestError, match="reserved"):
        table.put_item(Item=key)


def test_a_named_table_for_routing_items_is_looked_at_with_the_first_call(plain, create):
    """The sentence names it, and how it should look."""
    for name, message in (("routes", "no such table"), ("twisted", "its keys are")):
        if name == "twisted":
            create("twisted", "pk", "sk")
        table = ShardedTable(plain, shards=in_band(environ={}, journal_table_name=name))
        with pytest.raises(ValueError, match=f"{name}.*{message}.*called pk, a string"):
            table.put_item(Item=ITEM)
