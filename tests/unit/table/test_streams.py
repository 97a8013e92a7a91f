"""What consumers of a stream see, and the consumer of the page about it."""

from pathlib import Path
from random import Random

import boto3
import pytest

from hotpartition.table import ShardedTable, TimeBuckets, fixed, in_band

from .conftest import raise_key, updating

PAGE = Path(__file__).resolve().parents[3] / "docs" / "streams.md"
KEY = {"PK": {"S": "room"}, "SK": {"S": "0001"}}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({**KEY, "PK": {"S": "room#_3"}, "hp_changes": {"N": "2"}, "hp_shards": {"N": "4"}}, KEY),
        ({"PK": "room#_3", "SK": "0001", "hp_shards": 4}, {"PK": "room", "SK": "0001"}),
        ({"PK": "room#_x", "SK": "0001"}, {"PK": "room#_x", "SK": "0001"}),
        ({}, None),
        (None, None),
    ],
)  # fmt: skip
def test_a_stored_item_is_turned_into_its_owners(plain, stored, expected):
    table = ShardedTable(plain, shards=fixed(4))
    assert table.logical_item(stored) == expected
    assert table.logical_key(stored) == (expected and {name: expected[name] for name in ("PK", "SK")})


def test_what_is_none_of_the_owners_is_left_out(plain):
    """Routing and load items, wherever they were stored."""
    table = ShardedTable(plain, shards=in_band(environ={}))
    raise_key(plain, "room", 4)
    plain.put_item(Item={"PK": "hotpartition#load#0#room", "SK": "r#"})
    table.put_item(Item={"PK": "room", "SK": "0001"})
    assert [table.logical_key(item) for item in plain.scan()["Items"]].count(None) == 2
    assert table.logical_key({"PK": {"S": "room"}, "SK": {"S": "r#"}}) is None


def test_attributes_of_an_index_by_time_are_left_out(create):
    plain = create("timed", "PK", "SK", indexes={"by-time": ("bucket", "SK")})
    table = ShardedTable(plain, shards=fixed(4), indexes=[TimeBuckets("hour", index="by-time")])
    item = {"PK": "room", "SK": "2026-11-21T09:30"}
    table.put_item(Item=item)
    assert [table.logical_item(stored) for stored in plain.scan()["Items"]] == [item]


def test_the_pages_consumer_keeps_the_newest_of_each_partition_key(dynamodb, plain, create, watched, monkeypatch):
    """Whatever the order in which shards are read, and however often."""
    newest = create("newest", "PK")
    monkeypatch.setattr(boto3, "resource", lambda _: dynamodb)
    consumer: dict = {}
    exec(PAGE.read_text().split("```python\n")[1].split("```")[0], consumer)  # noqa: S102 - the page's own code
    table, records = ShardedTable(plain, shards=fixed(16)), []

    def record(operation, body):
        """Do a write, and note it as the table's stream would."""
        if operation not in {"PutItem", "UpdateItem", "DeleteItem"}:
            return None
        response = watched.dynamodb.call(operation, body)
        key = body.get("Key") or {name: body["Item"][name] for name in KEY}
        now = watched.dynamodb.call("GetItem", {"TableName": "readings", "Key": key}).get("Item")
        records.append({"dynamodb": {"Keys": key, **({"NewImage": now} if now else {})}})
        return response

    watched.responds = record
    for number in range(60):
        table.put_item(Item={"PK": f"sensor-{number % 3}", "SK": f"{number:04}", "celsius": number})
    table.update_item(Key={"PK": "sensor-2", "SK": "0059"}, **updating("SET celsius = :c", c=21))
    table.delete_item(Key={"PK": "sensor-0", "SK": "0000"})
    watched.forget()
    assert len(records) == 62
    for seed in range(3):
        consumer["handler"]({"Records": shuffled(records, Random(seed))}, None)
        kept = {item["PK"]: (item["SK"], item["celsius"]) for item in newest.scan()["Items"]}
        assert kept == {"sensor-0": ("0057", 57), "sensor-1": ("0058", 58), "sensor-2": ("0059", 21)}


def shuffled(records, random):
    """The records in another order, as DynamoDB keeps it: that of each stored key stays."""
    keys = [repr(record["dynamodb"]["Keys"]) for record in records]
    left = {key: [record for record in records if repr(record["dynamodb"]["Keys"]) == key] for key in keys}
    random.shuffle(keys)
    return [left[key].pop(0) for key in keys]
