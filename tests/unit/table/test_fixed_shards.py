"""`fixed(n)`: which numbers are taken, how n is raised, and what a wrong n would hide."""

import logging

import pytest
from boto3.dynamodb.conditions import Key

from hotpartition.table import ShardedCounter, ShardedTable, at_random, fixed

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


def test_another_suffix_needs_shards_that_are_not_computed(plain):
    """By which function they were chosen nothing says."""
    with pytest.raises(TypeError, match=r"#SHARD#.*at_random\(\)"):
        ShardedTable(plain, shards=BY_HAND)


def test_counters_lie_under_such_keys_as_well(plain):
    counter = ShardedCounter(plain, BY_HAND, name="views")
    for _ in range(20):
        counter.add("video-7")
    assert counter.get("video-7") == 20
    assert {item["PK"].rpartition("#")[0] for item in plain.scan()["Items"]} == {"video-7#SHARD"}
