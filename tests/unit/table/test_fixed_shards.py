"""`fixed(n)`: which numbers are taken, how n is raised, and what a wrong n would hide."""

import logging

import pytest
from boto3.dynamodb.conditions import Key

from hotpartition.table import ShardedTable, fixed

from .conftest import updating

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


def test_what_an_update_creates_says_under_which_n(plain):
    """Once: a second update leaves it alone."""
    table = ShardedTable(plain, shards=fixed(8, only_shards=True))
    for _ in range(2):
        table.update_item(Key=KEY, **updating("SET a = :one", one=1))
    assert [item["hp_shards"] for item in plain.scan()["Items"]] == [8]


def test_without_items_at_base_keys_none_is_read(plain, watched):
    """A page asks the shards alone."""
    table = ShardedTable(plain, shards=fixed(3, only_shards=True))
    write(table, range(6))
    assert numbers_in(table) == list(range(6))
    assert sorted(watched.queried) == ["room#_0", "room#_1", "room#_2"]
