"""What commands do to a table's items and routes, over moto; what they print is in `transcripts/tables.txt`."""

import json
import re
from pathlib import Path

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from hotpartition.core.route import Generation
from hotpartition.dynamodb.table import LARGEST_NUMBER, JournalPlace
from hotpartition.table import ShardedTable, TimeBuckets, at_random, by_attribute, fixed, in_band
from hotpartition_cli import tables
from hotpartition_cli.errors import Status
from hotpartition_cli.main import run
from support.tables import BESIDE, define_table

COMMAND_LINE = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text()
APART = JournalPlace("hp-routes-readings", sort_key="")
ROOM = Key("PK").eq("room")


@pytest.fixture
def tool(capsys):
    """Runs a command: its exit status, and its JSON, whose fields are documented."""

    def tool(*arguments):
        status = run([*arguments, "--json"], {}, sleep=lambda _: None)
        found = json.loads(capsys.readouterr().out)
        assert set(found) - {"error"} <= set(re.findall(r"`(\w+)`", COMMAND_LINE))
        return status, found

    return tool


@pytest.fixture
def generations_of(journal_of):
    """Reads the generations of `room` in a journal."""
    return lambda place: set(journal_of(place).get("room", is_strong=True).route.generations)


def open_table(place):
    """Open the table as a process that knows no route yet."""
    options = {} if place is BESIDE else {"journal_table_name": place.table_name}
    return ShardedTable(
        boto3.resource("dynamodb").Table("readings"), shards=in_band(**options), hashed=by_attribute("owner")
    )


def keys_in(table):
    return [item["SK"] for item in table.query(KeyConditionExpression=ROOM, ConsistentRead=True)["Items"]]


def options_of(place):
    return ["--table", "readings", *(["--journal-table", "hp-routes-readings"] if place is APART else [])]


def spread(tool, place):
    """Write 30 items under a route that grows twice, through tables of their own, and return their sort keys."""
    for n in (0, 4, 16):
        if n:
            tool("raise", "room", "--n", str(n), *options_of(place))
        opened = open_table(place)
        keys_in(opened)
        for number in range(10):
            item = {"PK": "room", "SK": f"{n:02}-{number:03}", "owner": f"o{number}"}
            opened.put_item(Item=item, ConditionExpression="attribute_not_exists(PK)")
    return keys_in(open_table(place))


def lose(client, place):
    for item in client.scan(TableName=place.table_name)["Items"]:
        if "generations" in item:
            names = [place.partition_key, *([place.sort_key] if place.sort_key else [])]
            client.delete_item(TableName=place.table_name, Key={name: item[name] for name in names})


@pytest.fixture(params=[BESIDE, APART], ids=["beside", "apart"])
def place(request, client):
    """Where the routing items lie."""
    client.create_table(TableName="hp-routes-readings", **define_table("pk"))
    return request.param


def test_a_lost_journal_is_noticed_and_its_items_are_folded(client, place, tool, raise_key, monkeypatch):
    """The stored keys show what lies on shards; readers of all shards stay complete, and no route is needed later."""
    everything = spread(tool, place)
    assert len(everything) == 30
    lose(client, place)
    assert len(keys_in(open_table(place))) < 30
    status, found = tool("verify", *options_of(place))
    assert (status, found["unrouted"], found["unrouted_shard_counts"]) == (Status.FINDING, ["room"], {"room": 16})
    raise_key(place, "other", 0, 2)
    client.put_item(TableName="readings", Item={"PK": {"S": "other#_1"}, "SK": {"S": "routed"}})
    monkeypatch.setattr(tables, "SAMPLED_ITEMS", 5)
    assert tool("verify", *options_of(place))[1]["unrouted"] == []
    assert tool("verify", *options_of(place), "--all")[1]["unrouted_shard_counts"] == {"room": 16}

    plain = boto3.resource("dynamodb").Table("readings")
    readers = ShardedTable(plain, shards=fixed(0, readable=16), hashed=at_random())
    assert keys_in(readers) == everything
    status, found = tool("fold", "room", "--table", "readings", "--n", "16")
    assert (status, found["left"]) == (Status.FINE, 0)
    again = open_table(place)
    assert keys_in(readers) == keys_in(again) == everything
    for sort_key in everything:
        found = again.get_item(Key={"PK": "room", "SK": sort_key}, Hashed=f"o{int(sort_key[3:])}", ConsistentRead=True)
        assert "Item" in found
    assert tool("verify", *options_of(place), "--all")[1]["unrouted"] == []


def test_items_of_fixed_shards_are_folded_for_plain_boto3(client, tool):
    """And an index by time finds them."""
    client.create_table(TableName="events", **define_table("PK", "SK", indexes={"by-time": ("bucket", "SK")}))
    plain = boto3.resource("dynamodb").Table("events")
    buckets = TimeBuckets("hour", index="by-time")
    table = ShardedTable(plain, shards=fixed(8), indexes=[buckets])
    for number in range(20):
        table.put_item(Item={"PK": "room", "SK": f"2026-11-21T10:{number:02}:00Z"})
    status, found = tool("fold", "room", "--table", "events", "--n", "8")
    assert (status, found["moved"]) == (Status.FINE, 20)
    leaving = ShardedTable(plain, shards=fixed(0, readable=8), hashed=at_random(), indexes=[buckets])
    hour = ROOM & Key("SK").between("2026-11-21T10:00:00Z", "2026-11-21T10:59:00Z")
    in_index = leaving.query(IndexName="by-time", KeyConditionExpression=hour)["Items"]
    stored = plain.query(KeyConditionExpression=ROOM)["Items"]
    assert len(in_index) == len(stored) == len(keys_in(leaving)) == 20
    assert {item["bucket"] for item in stored} == {"room#2026-11-21T10"}
    assert not any("hp_shards" in item for item in stored)


def test_what_only_a_restored_copy_has_comes_back(client, place, tool, raise_key, generations_of):
    """Items and generations, of table and journal alike; what is there is not touched."""
    client.create_table(TableName="readings-restored", **define_table("PK", "SK"))
    client.create_table(TableName="hp-routes-readings-restored", **define_table("pk"))
    restored = JournalPlace(f"{place.table_name}-restored", place.partition_key, place.sort_key)
    raise_key(restored, "room", 1, 2)
    raise_key(place, "room", 5, 4)
    for name, body in (("readings-restored", "old"), ("readings", "new")):
        client.put_item(TableName=name, Item={"PK": {"S": "room#_0"}, "SK": {"S": "a"}, "body": {"S": body}})
    client.put_item(TableName="readings-restored", Item={"PK": {"S": "room#_1"}, "SK": {"S": "b"}})
    for key in (restored.key_of("broken"), restored.load_key_of("room", 0)):
        client.put_item(TableName=restored.table_name, Item=dict(key))
    names = ["readings"] if place is BESIDE else ["hp-routes-readings", "readings"]

    def copy_back():
        return [tool("copy-back", "--table", name, "--from", f"{name}-restored")[1] for name in names]

    found = copy_back()
    assert sum(each["items"] for each in found) == 1
    assert [key for each in found for key in each["malformed"]] == ["broken"]
    assert generations_of(place) == {Generation(1, 2), Generation(5, 4)}
    stored = client.get_item(TableName="readings", Key={"PK": {"S": "room#_0"}, "SK": {"S": "a"}})["Item"]
    assert stored["body"] == {"S": "new"}
    before = client.scan(TableName="readings")["Items"]
    assert sum(each["items"] for each in copy_back()) == 0
    assert client.scan(TableName="readings")["Items"] == before


@pytest.mark.parametrize(("sort_type", "routing_sort_key"), [("N", LARGEST_NUMBER), ("B", "r#")])
def test_routes_come_back_whatever_the_type_of_the_sort_key(
    client, tool, raise_key, generations_of, sort_type, routing_sort_key
):
    """Where the table was raised anew, they are added to its own."""
    for name, since_ms, shard_count in (("times-restored", 1, 2), ("times", 5, 4)):
        client.create_table(TableName=name, **define_table("PK", "SK", types={"SK": sort_type}))
        place = JournalPlace(name, "PK", "SK", routing_sort_key, sort_type=sort_type)
        raise_key(place, "room", since_ms, shard_count)
    status, found = tool("copy-back", "--table", "times", "--from", "times-restored")
    assert (status, found["items"]) == (Status.FINE, 0)
    assert generations_of(place) == {Generation(1, 2), Generation(5, 4)}
