"""What a `ShardedTable` is beside boto3's `Table`, `fixed(n)`, tables with other keys, and the pages' quick starts.

Several tests take one kind of table through all of its calls: sharded by hand, keyed by numbers, without sort keys.
"""

import copy
import inspect
import logging
import re
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from boto3.dynamodb.conditions import Attr, Key
from boto3.resources.base import ServiceResource

from hotpartition.core.errors import InvalidRequestError
from hotpartition.dynamodb.python_values import load
from hotpartition.table import ReadCache, ShardedCounter, ShardedTable, adaptive, at_random, fixed, in_band

from .conftest import put_all, raise_key, updating

KEY = {"PK": "room", "SK": "0001"}
ROOM = {"KeyConditionExpression": Key("PK").eq("room")}


@pytest.mark.parametrize(("made", "how"), [(adaptive, {}), (ReadCache, {"redis": "redis://redis.example"})])
def test_what_needs_redis_names_the_extra_that_brings_it(monkeypatch, made, how):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match=r"hotpartition\[adaptive\]"):
        made(**how)


@pytest.mark.parametrize("method", ["get_item", "update_item", "delete_item", "query", "query_pages"])
def test_hashed_is_a_parameter_of_its_own(method):
    """In a type that is made of boto3's it would be the only one, where a user has not boto3's stubs."""
    assert "Hashed" in inspect.signature(getattr(ShardedTable, method)).parameters


def test_a_table_can_be_looked_at_and_copied(table, plain):
    """A copy is the same table; `dir` lists what boto3's has, and nothing that is refused."""
    table.put_item(Item=KEY)
    twice = copy.copy(table)
    twice.update_item(Key=KEY, **updating("SET n = :n", n=1))
    assert table.get_item(Key=KEY)["Item"] == {**KEY, "n": 1}
    assert {"put_item", "key_schema", "wait_until_exists", "get_items"} <= set(dir(table))
    assert "transact_write_items" not in dir(table)
    assert repr(table).startswith(f"ShardedTable({plain!r}, shards=Fixed(")
    assert repr(copy.copy(table.meta)) == repr(table.meta)
    assert isinstance(table, ServiceResource)
    assert table != ShardedTable(plain, shards=fixed(4))


def test_a_missing_table_is_reported_as_by_boto3(dynamodb):
    plain = dynamodb.Table("missing")
    requests = {
        "put_item": {"Item": KEY},
        "get_item": {"Key": KEY},
        "delete_item": {"Key": KEY},
        "query": ROOM,
        "scan": {},
    }
    for method, request in requests.items():
        errors = []
        for table in (plain, ShardedTable(plain, shards=fixed(4))):
            with pytest.raises(dynamodb.meta.client.exceptions.ResourceNotFoundException) as caught:
                getattr(table, method)(**request)
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


@pytest.mark.parametrize("sort_type", ["N", "B"])
def test_routing_items_lie_beside_items_whatever_the_type_of_their_sort_key(create, sort_type):
    """At a constant of that type, which no owner's item may have; streams do not show them."""
    of = {"N": Decimal, "B": lambda number: bytes([number])}[sort_type]
    plain = create("points", "PK", "SK", types={"SK": sort_type})
    keys = [{"PK": "room", "SK": of(number)} for number in range(1, 20)]
    table = ShardedTable(plain, shards=in_band(environ={}))
    table.put_item(Item=keys[0])
    typed = table._open("PutItem").items.sharding.routes.journal.key_of("room")
    raise_key(plain, "room", 4, sort_key=load(typed)["SK"])
    table = ShardedTable(plain, shards=in_band(environ={}))
    table.query(**ROOM)
    put_all(table, keys[1:])
    assert len({item["PK"] for item in plain.scan()["Items"]}) > 3
    for options in ({}, {"Limit": 7}, {"ScanIndexForward": False, "Limit": 5}):
        found = [item for page in table.query_pages(**ROOM, **options) for item in page["Items"]]
        assert found == (keys[::-1] if "ScanIndexForward" in options else keys)
    assert table.get_item(Key=keys[6])["Item"] == keys[6]
    assert table.scan()["Count"] == 19
    assert table.logical_key(typed) is table.logical_key(load(typed)) is None
    with pytest.raises(InvalidRequestError, match="reserved"):
        table.put_item(Item=load(typed))


def write(table, numbers) -> None:
    for number in numbers:
        table.put_item(Item={"PK": "room", "SK": f"{number:04}", "n": number})


def numbers_in(table, **query) -> list[int]:
    return [int(item["n"]) for item in table.query(**ROOM, **query)["Items"]]


@pytest.mark.parametrize("look", [numbers_in, ShardedTable.scan])
def test_an_older_instance_looks_where_a_newer_one_writes(plain, caplog, look):
    """What it finds tells under how many shards it was written: it looks there, and says that it did not know."""
    write(ShardedTable(plain, shards=fixed(2, 8)), range(40))
    older = ShardedTable(plain, shards=fixed(2))
    with caplog.at_level(logging.WARNING):
        look(older)
        assert len(caplog.records) == 1
        assert numbers_in(older) == list(range(40))
        assert numbers_in(older, Limit=5) == list(range(5))
    (record,) = caplog.records
    assert (record.written_under, record.known) == (8, 2)
    write(older, [99])
    assert {item["hp_shards"] for item in plain.scan()["Items"] if item["n"] == 99} == {2}


@pytest.mark.parametrize(
    ("shards", "asked", "noted"),
    [(fixed(3, only_shards=True), ["room#_0", "room#_1", "room#_2"], 3), (fixed(0), ["room"], None)],
)
def test_an_item_with_one_place_is_changed_without_being_looked_for(plain, watched, shards, asked, noted):
    """Each change is one request; without items at base keys a page asks the shards alone."""
    table = ShardedTable(plain, shards=shards)
    with table.batch_writer() as batch:
        batch.put_item(Item={"PK": "room", "SK": "0002", "n": 2})
        batch.delete_item(Key={"PK": "room", "SK": "0003"})
    for _ in range(2):  # the first creates it, and says under which N
        table.update_item(Key=KEY, **updating("ADD n :one", one=1))
    assert {item.get("hp_shards") for item in plain.scan()["Items"]} == {noted}
    table.put_item(Item={**KEY, "n": 1})
    assert numbers_in(table) == [1, 2]
    assert sorted(watched.queried) == asked
    table.delete_item(Key=KEY)
    changes = {name: watched.sent[name] for name in watched.sent if name not in {"Scan", "Query"}}
    assert changes == {"BatchWriteItem": 1, "UpdateItem": 2, "PutItem": 1, "DeleteItem": 1}


def test_keys_that_were_sharded_by_hand_are_read_and_written(plain, watched):
    """Whichever function chose their shards: point reads ask all of them, and no base key."""
    by_hand = fixed(10, only_shards=True, suffix="#SHARD#")
    for number in range(30):
        plain.put_item(Item={"PK": f"room#SHARD#{number * 7 % 10}", "SK": f"{number:04}", "n": number})
    table = ShardedTable(plain, shards=by_hand, hashed=at_random())
    write(table, range(20, 40))
    assert numbers_in(table) == list(range(40))
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
    counter = ShardedCounter(plain, by_hand, name="views")
    counter.add("video-7", 20)
    assert counter.get("video-7") == 20


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


def test_a_table_without_a_sort_key_is_used_as_it_is(create):
    """Every call is passed on, and nothing is added to an item or its key: applications may wrap all tables alike."""
    devices = create("devices", "id", indexes={"by-site": ("site", "id")})
    table = ShardedTable(devices, shards=fixed(4))
    created = [table.create_item(Item={"id": "dev-1", "site": site}) for site in "ab"]
    assert created == [None, {"id": "dev-1", "site": "a"}]
    table.update_item(Key={"id": "dev-1"}, **updating("SET n = :n", n=1))
    put_all(table, [{"id": "dev-2", "site": "a"}])
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


@pytest.mark.parametrize(
    ("page", "printed"),
    [("sharded-table.md", rf"{re.escape(str(NEWEST))}\n\d\d partition keys\n"), ("counters.md", r"99\n")],
)
def test_the_quick_start_runs_as_it_stands(aws_environment, capsys, page, printed):
    """In twenty lines or so, without AWS."""
    code = (DOCS / page).read_text().split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 21
    exec(code, {})  # noqa: S102 - the page's own code
    assert re.fullmatch(printed, capsys.readouterr().out)
