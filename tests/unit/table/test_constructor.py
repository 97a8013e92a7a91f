"""What a `ShardedTable` is made of, which arguments and calls it refuses by name, `fixed(n)`, and two pages."""

import copy
import logging
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from boto3.resources.base import ServiceResource
from botocore.exceptions import ClientError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.route import Generation
from hotpartition.dynamodb.python_values import load
from hotpartition.table import ShardedCounter, ShardedTable, adaptive, at_random, by_sort_key, fixed, in_band

from .conftest import put_all, updating

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


EVERYTHING = {"KeyConditionExpression": Key("PK").eq("room")}


def write(table, numbers) -> None:
    for number in numbers:
        table.put_item(Item={"PK": "room", "SK": f"{number:04}", "n": number})


def numbers_in(table, **query) -> list[int]:
    return [int(item["n"]) for item in table.query(**EVERYTHING, **query)["Items"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shards": ()}, "needs the number"),
        ({"shards": (-1,)}, "from 0 to 1024"),
        ({"shards": (2000,)}, "from 0 to 1024"),
        ({"shards": (0, 4), "only_shards": True}, "at their base key"),
        ({"shards": (16, 4)}, "only raised"),
        ({"shards": (4,), "suffix": "#SHARD#"}, "only_shards=True"),
        ({"shards": (4,), "suffix": "", "only_shards": True}, "a text"),
        ({"shards": ((4, 100),)}, "from 0 to 1024"),
        ({"shards": (4,), "readable": 5000}, "from 0 to 1024"),
        ({"shards": (4,), "choices": 4}, "choices"),
    ],
)
def test_wrong_numbers_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        fixed(*arguments.pop("shards"), **arguments)


def test_an_older_instance_looks_where_a_newer_one_writes(plain, caplog):
    """What it finds tells under how many shards it was written: it looks there, and says that it did not know."""
    write(ShardedTable(plain, shards=fixed(2, 8)), range(40))
    older = ShardedTable(plain, shards=fixed(2))
    with caplog.at_level(logging.WARNING):
        assert numbers_in(older) == list(range(40))
        assert numbers_in(older, Limit=5) == list(range(5))
    (record,) = caplog.records
    assert (record.written_under, record.known) == (8, 2)
    write(older, [99])
    assert {item["hp_shards"] for item in plain.scan()["Items"] if item["n"] == 99} == {2}


KEY = {"PK": "room", "SK": "0001"}


def change_everything(table) -> list:
    """Make every kind of change of one item, and return what each responds."""
    update = {**updating("ADD n :one", one=1), "ReturnValues": "ALL_NEW"}
    with table.batch_writer() as batch:
        batch.put_item(Item={"PK": "room", "SK": "0002"})
        batch.delete_item(Key={"PK": "room", "SK": "0003"})
    return [
        table.update_item(Key=KEY, **update).get("Attributes"),
        table.put_item(Item={**KEY, "n": 5}, ReturnValues="ALL_OLD").get("Attributes"),
        table.update_item(Key=KEY, **update).get("Attributes"),
        table.delete_item(Key=KEY, ReturnValues="ALL_OLD").get("Attributes"),
    ]


@pytest.mark.parametrize("shards", [fixed(8, only_shards=True), fixed(0)])
def test_an_item_with_one_place_is_changed_without_being_looked_for(plain, twin, watched, shards):
    """Each change is one request, and all see what boto3's see."""
    expected = change_everything(twin)
    watched.sent.clear()
    assert change_everything(ShardedTable(plain, shards=shards)) == expected
    assert dict(watched.sent) == {"BatchWriteItem": 1, "UpdateItem": 2, "PutItem": 1, "DeleteItem": 1}
    assert len(plain.scan()["Items"]) == len(twin.scan()["Items"]) == 1


def test_without_items_at_base_keys_none_is_read(plain, watched):
    """A page asks the shards alone. What an update creates says under which N, and a second one leaves it alone."""
    table = ShardedTable(plain, shards=fixed(3, only_shards=True))
    for number in [*range(6), *range(6)]:
        key = {"PK": "room", "SK": f"{number:04}"}
        table.update_item(Key=key, **updating("SET n = :n", n=number))
    assert numbers_in(table) == list(range(6))
    assert sorted(watched.queried) == ["room#_0", "room#_1", "room#_2"]
    assert {item["hp_shards"] for item in plain.scan()["Items"]} == {3}


BY_HAND = fixed(10, only_shards=True, suffix="#SHARD#")


def test_keys_that_were_sharded_by_hand_are_read_and_written(plain, watched):
    """Whichever function chose their shards: point reads ask all of them, and no base key."""
    for number in range(30):
        plain.put_item(Item={"PK": f"room#SHARD#{number * 7 % 10}", "SK": f"{number:04}", "n": number})
    table = ShardedTable(plain, shards=BY_HAND, hashed=at_random())
    write(table, range(20, 40))
    assert numbers_in(table) == list(range(40))
    assert numbers_in(table, ScanIndexForward=False, Limit=5) == [39, 38, 37, 36, 35]
    assert len(plain.scan()["Items"]) == 40
    assert {item["PK"].rpartition("#")[0] for item in plain.scan()["Items"]} == {"room#SHARD"}
    watched.sent.clear()
    assert table.get_item(Key={"PK": "room", "SK": "0007"})["Item"]["n"] == 7
    assert dict(watched.sent) == {"BatchGetItem": 1}
    table.update_item(Key={"PK": "room", "SK": "0007"}, **updating("SET n = :n", n=70))
    table.delete_item(Key={"PK": "room", "SK": "0008"})
    assert numbers_in(table) == [*range(7), 70, *range(9, 40)]
    assert table.logical_key({"PK": "room#SHARD#3", "SK": "1"}) == {"PK": "room", "SK": "1"}
    assert table.put_item(Item={"PK": "other#_7", "SK": "1"})["ResponseMetadata"]
    counter = ShardedCounter(plain, BY_HAND, name="views")
    for _ in range(20):
        counter.add("video-7")
    assert counter.get("video-7") == 20


def test_another_suffix_needs_shards_that_are_not_computed(plain):
    """By which function they were chosen nothing says."""
    with pytest.raises(TypeError, match=r"#SHARD#.*at_random\(\)"):
        ShardedTable(plain, shards=BY_HAND)


@pytest.mark.parametrize("key", ["room#_0", "room#_7", "a#_12"])
def test_a_key_that_ends_like_a_shards_is_refused(plain, key):
    """It could not be told from shard 7 of `room`."""
    table = ShardedTable(plain, shards=fixed(4))
    for call in (
        lambda: table.put_item(Item={"PK": key, "SK": "1"}),
        lambda: table.get_item(Key={"PK": key, "SK": "1"}),
        lambda: table.query(KeyConditionExpression=Key("PK").eq(key)),
    ):
        with pytest.raises(InvalidRequestError, match="do not end like a shard key"):
            call()


@pytest.mark.parametrize("keys", [("PK", "SK"), ("PK",)], ids=["sharded", "without a sort key"])
@pytest.mark.parametrize("names", [("PK", "SK", "n"), ("n",), ("n", "PK")])
def test_items_are_read_in_the_order_of_their_keys(create, watched, keys, names):
    """Any number; None for one that there is not, and twice what is asked for twice; what is unprocessed once more."""
    table = ShardedTable(create("read", *keys), shards=fixed(4))
    asked = [dict(zip(keys, (f"room-{number}", f"{number:04}"), strict=False)) for number in range(120)]
    put_all(table, ({**key, "n": number} for number, key in enumerate(asked)))
    nothing = {"Responses": {"read": []}}
    watched.respond_once("BatchGetItem", lambda body: {**nothing, "UnprocessedKeys": body["RequestItems"]})
    asked = [*reversed(asked), dict.fromkeys(keys, "none"), asked[7]]
    projection = {} if len(names) == 3 else {"ProjectionExpression": ", ".join(names)}
    found = table.get_items(asked, **projection, ConsistentRead=True)
    items = [{**key, "n": number} for key, number in zip(asked, [*range(119, -1, -1), None, 7], strict=True)]
    expected = [{name: value for name, value in item.items() if name in names} for item in items]
    assert found == [*expected[:120], None, expected[121]]
    assert table.get_items([]) == []


@pytest.fixture
def devices(create):
    return create("devices", "id", indexes={"by-site": ("site", "id")})


def test_a_table_without_a_sort_key_is_used_as_it_is(devices):
    """Every call is passed on, and nothing is added to an item or its key: applications may wrap all tables alike."""
    table = ShardedTable(devices, shards=fixed(4))
    table.put_item(Item={"id": "dev-1", "site": "a"}, ConditionExpression=Attr("id").not_exists())
    table.update_item(Key={"id": "dev-1"}, **updating("SET n = :n", n=1))
    with table.batch_writer() as batch:
        batch.put_item(Item={"id": "dev-2", "site": "a"})
    expected = [{"id": "dev-1", "site": "a", "n": 1}, {"id": "dev-2", "site": "a"}]
    assert sorted(devices.scan()["Items"], key=lambda item: item["id"]) == expected
    assert table.get_item(Key={"id": "dev-1"}, Hashed="x")["Item"] == expected[0]
    assert table.query(KeyConditionExpression=Key("id").eq("dev-1"))["Items"] == expected[:1]
    assert table.query(IndexName="by-site", KeyConditionExpression=Key("site").eq("a"))["Items"] == expected
    assert [page["Count"] for page in table.scan_pages(FilterExpression=Attr("id").eq("dev-2"))] == [1]
    client = table.meta.client
    client.transact_write_items(TransactItems=[{"Delete": {"TableName": "devices", "Key": {"id": "dev-1"}}}])
    found = client.batch_get_item(RequestItems={"devices": {"Keys": [{"id": "dev-1"}, {"id": "dev-2"}]}})
    assert found["Responses"]["devices"] == expected[1:]
    table.delete_item(Key={"id": "dev-2"})
    assert devices.scan()["Count"] == 0


DOCS = Path(__file__).resolve().parents[3] / "docs"

NEWEST = [f"2026-11-21T09:{minute}" for minute in range(39, 29, -1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "printed"),
    [("sharded-table.md", rf"{re.escape(str(NEWEST))}\n\d\d partition keys\n"), ("counters.md", r"99\n")],
)
def test_the_quick_start_runs_as_it_stands(tmp_path, page, printed):
    """In twenty lines or so, without AWS."""
    code = (DOCS / page).read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 21
    (tmp_path / "quick_start.py").write_text(code)
    environ = {
        "PYTHONPATH": ":".join(sys.path),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "HOME": str(tmp_path),
    }
    command = [sys.executable, tmp_path / "quick_start.py"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120)
    assert re.fullmatch(printed, done.stdout)
