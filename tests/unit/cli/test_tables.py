"""What commands do to a table's items and routes, over moto; what they print is in `transcripts/tables.txt`."""

import json
import re
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from hotpartition.control.operations import Operations
from hotpartition.core.errors import StoreRefusedError
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import LARGEST_NUMBER, JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.table import ShardedTable, TimeBuckets, at_random, by_attribute, fixed, in_band
from hotpartition_cli import tables
from hotpartition_cli.errors import Status
from hotpartition_cli.main import run
from support.tables import BESIDE, TABLE_SCHEMA, define_table

COMMAND_LINE = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"
NOW_MS = 1_700_000_000_000
QUICK = ["--items-per-second", "1000", "--settle", "0"]


APART = JournalPlace("hp-routes-readings", sort_key="")


def journal_of(client, place):
    return DynamoDBJournal(ThreadedCalls(Boto3Call(client)), place)


def tool(capsys, *arguments):
    """Run a command: its exit status, and its JSON, whose fields are documented."""
    status = run([*arguments, "--json"], {}, sleep=lambda _: None)
    found = json.loads(capsys.readouterr().out)
    assert set(found) - {"error"} <= set(re.findall(r"`(\w+)`", COMMAND_LINE.read_text()))
    return status, found


def open_table(place):
    """Open the table as a process that knows no route yet."""
    options = {} if place is BESIDE else {"journal_table_name": place.table_name}
    return ShardedTable(
        boto3.resource("dynamodb").Table("readings"), shards=in_band(**options), hashed=by_attribute("owner")
    )


def spread(client, place):
    """Write 30 items under a route that grows twice, through tables of their own, and return what reads of them."""
    for n in (0, 4, 16):
        if n:
            journal_of(client, place).add("room", [Generation(0, n)], cause=Cause("test"), now_ms=NOW_MS)
        opened = open_table(place)
        keys_in(opened)
        for number in range(10):
            at = f"{n:02}-{number:03}"
            opened.put_item(
                Item={"PK": "room", "SK": at, "owner": f"o{number}"}, ConditionExpression="attribute_not_exists(PK)"
            )
    return open_table(place)


def keys_in(table):
    page = table.query(KeyConditionExpression=Key("PK").eq("room"), ConsistentRead=True)
    return [item["SK"] for item in page["Items"]]


def options_of(place):
    return ["--table", "readings", *(["--journal-table", "hp-routes-readings"] if place is APART else [])]


def routing_items(client, place):
    return [item for item in client.scan(TableName=place.table_name)["Items"] if "generations" in item]


def lose(client, place):
    for item in routing_items(client, place):
        names = [place.partition_key, *([place.sort_key] if place.sort_key else [])]
        client.delete_item(TableName=place.table_name, Key={name: item[name] for name in names})


@pytest.fixture(params=[BESIDE, APART], ids=["beside", "apart"])
def place(request, client):
    """Where the routing items lie."""
    client.create_table(TableName="hp-routes-readings", **define_table("pk"))
    return request.param


def test_a_lost_journal_is_noticed_and_its_items_are_folded(client, place, capsys, monkeypatch):
    """The stored keys show what lies on shards; readers of all shards stay complete, and no route is needed later."""
    everything = keys_in(spread(client, place))
    assert len(everything) == 30
    lose(client, place)
    assert len(keys_in(open_table(place))) < 30
    lost = {"room": 16}
    status, found = tool(capsys, "verify", *options_of(place))
    assert (status, found["unrouted"], found["unrouted_shard_counts"]) == (Status.FINDING, ["room"], lost)
    journal_of(client, place).add("other", [Generation(0, 2)], cause=Cause("test"), now_ms=NOW_MS)
    client.put_item(TableName="readings", Item={"PK": {"S": "other#_1"}, "SK": {"S": "routed"}})
    monkeypatch.setattr(tables, "SAMPLED_ITEMS", 5)
    assert tool(capsys, "verify", *options_of(place))[1]["unrouted"] == []
    assert tool(capsys, "verify", *options_of(place), "--all")[1]["unrouted_shard_counts"] == lost

    readers = ShardedTable(
        boto3.resource("dynamodb").Table("readings"), shards=fixed(0, readable=max(lost.values())), hashed=at_random()
    )
    assert keys_in(readers) == everything
    for key, n in lost.items():
        status, found = tool(capsys, "fold", key, "--table", "readings", "--n", str(n), *QUICK)
        assert (status, found["left"]) == (Status.FINE, 0)
    assert keys_in(readers) == everything
    again = open_table(place)
    assert keys_in(again) == everything
    for sort_key in everything:
        found = again.get_item(Key={"PK": "room", "SK": sort_key}, Hashed=f"o{int(sort_key[3:])}", ConsistentRead=True)
        assert "Item" in found
    assert tool(capsys, "verify", *options_of(place), "--all")[1]["unrouted"] == []


def test_a_table_reads_what_was_raised(client, place, capsys):
    """`ShardedTable` finds the route where the command put it."""
    tool(capsys, "raise", "room", "--n", "4", *options_of(place))
    client.put_item(TableName="readings", Item={"PK": {"S": "room#_3"}, "SK": {"S": "a"}})
    assert keys_in(open_table(place)) == ["a"]


def test_a_right_that_is_missing_is_said_as_everywhere(client, place, capsys, monkeypatch):
    """Also in the middle of a command."""
    refused = StoreRefusedError("AccessDeniedException")
    refused.__cause__ = ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem")

    def refuse(*_, **__):
        raise refused

    monkeypatch.setattr(Operations, "list_hot", refuse)
    status, found = tool(capsys, "hot", *options_of(place))
    assert (status, found["error"]["kind"]) == (Status.FAILED, "access-denied")
    assert "needs dynamodb:DescribeTable and GetItem" in found["error"]["message"]


def test_messages_and_counters_are_not_folded(client, capsys):
    """Keys of messages are closed; what a counter's shards counted is summed."""
    client.create_table(TableName="messages", **TABLE_SCHEMA)
    status, found = tool(capsys, "fold", "c", "--table", "messages", "--n", "4", *QUICK)
    assert (status, "close" in found["error"]["message"]) == (Status.USAGE, True)
    cell = {"PK": {"S": "likes#_1"}, "SK": {"S": "c#"}, "counted": {"N": "3"}}
    client.put_item(TableName="readings", Item=cell)
    status, found = tool(capsys, "fold", "likes", "--table", "readings", "--n", "2", *QUICK)
    assert (status, "counter" in found["error"]["message"]) == (Status.USAGE, True)


def test_items_of_fixed_shards_are_folded_for_plain_boto3(client, capsys):
    """And an index by time finds them."""
    client.create_table(TableName="events", **define_table("PK", "SK", indexes={"by-time": ("bucket", "SK")}))
    plain = boto3.resource("dynamodb").Table("events")
    buckets = TimeBuckets("hour", index="by-time")
    table = ShardedTable(plain, shards=fixed(8), indexes=[buckets])
    for number in range(20):
        table.put_item(Item={"PK": "room", "SK": f"2026-11-21T10:{number:02}:00Z"})
    leaving = ShardedTable(plain, shards=fixed(0, readable=8), hashed=at_random(), indexes=[buckets])
    status, found = tool(capsys, "fold", "room", "--table", "events", "--n", "8", *QUICK)
    assert (status, found["moved"]) == (Status.FINE, 20)
    assert len(plain.query(KeyConditionExpression=Key("PK").eq("room"))["Items"]) == 20
    assert len(keys_in(leaving)) == 20
    in_index = leaving.query(
        IndexName="by-time",
        KeyConditionExpression=Key("PK").eq("room") & Key("SK").between("2026-11-21T10:00:00Z", "2026-11-21T10:59:00Z"),
    )["Items"]
    assert len(in_index) == 20
    assert {item["bucket"] for item in plain.scan()["Items"]} == {"room#2026-11-21T10"}
    assert not any("hp_shards" in item for item in plain.scan()["Items"])


def test_what_only_a_restored_copy_has_comes_back(client, place, capsys):
    """Items and generations, of table and journal alike; what is there is not touched."""
    client.create_table(TableName="readings-restored", **define_table("PK", "SK"))
    client.create_table(TableName="hp-routes-readings-restored", **define_table("pk"))
    restored = JournalPlace(f"{place.table_name}-restored", place.partition_key, place.sort_key)
    journal_of(client, restored).add("room", [Generation(1, 2)], cause=Cause("raised"), now_ms=NOW_MS)
    journal_of(client, place).add("room", [Generation(5, 4)], cause=Cause("raised"), now_ms=NOW_MS + 9)
    for name, body in (("readings-restored", "old"), ("readings", "new")):
        client.put_item(TableName=name, Item={"PK": {"S": "room#_0"}, "SK": {"S": "a"}, "body": {"S": body}})
    client.put_item(TableName="readings-restored", Item={"PK": {"S": "room#_1"}, "SK": {"S": "b"}})
    broken = {name: {"S": "broken" if name == place.partition_key else "r#"} for name in restored.key_of("broken")}
    client.put_item(TableName=restored.table_name, Item=broken)
    tables = ["readings"] if place is BESIDE else ["hp-routes-readings", "readings"]
    found = [tool(capsys, "copy-back", "--table", name, "--from", f"{name}-restored")[1] for name in tables]
    assert sum(each["items"] for each in found) == 1
    assert [key for each in found for key in each["malformed"]] == ["broken"]
    route = journal_of(client, place).get("room", is_strong=True).route
    assert {(g.shard_count, g.since_ms) for g in route.generations} == {(2, 1), (4, 5)}
    stored = client.get_item(TableName="readings", Key={"PK": {"S": "room#_0"}, "SK": {"S": "a"}})["Item"]
    assert stored["body"] == {"S": "new"}
    before = client.scan(TableName="readings")["Items"]
    for name in tables:
        assert tool(capsys, "copy-back", "--table", name, "--from", f"{name}-restored")[1]["items"] == 0
    assert client.scan(TableName="readings")["Items"] == before


@pytest.mark.parametrize("sort_type", ["N", "B"])
def test_routes_come_back_whatever_the_type_of_the_sort_key(client, capsys, sort_type):
    """Where the table was raised anew, they are added to its own."""
    for name, generation in (("times", Generation(5, 4)), ("times-restored", Generation(1, 2))):
        client.create_table(TableName=name, **define_table("PK", "SK", types={"SK": sort_type}))
        routing_sort_key = LARGEST_NUMBER if sort_type == "N" else "r#"
        place = JournalPlace(name, "PK", "SK", routing_sort_key, sort_type=sort_type)
        journal_of(client, place).add("room", [generation], cause=Cause("raised"), now_ms=NOW_MS)
    place = replace(place, table_name="times")
    status, found = tool(capsys, "copy-back", "--table", "times", "--from", "times-restored")
    assert (status, found["items"]) == (Status.FINE, 0)
    route = journal_of(client, place).get("room", is_strong=True).route
    assert {(g.shard_count, g.since_ms) for g in route.generations} == {(2, 1), (4, 5)}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["copy-back", "--from", "numbers"], "the partition key of numbers is no string"),
        (["copy-back", "--from", "routes"], "routes is no copy of readings: its keys have other names"),
        (["copy-back", "--from", "elsewhere"], "there is no table elsewhere"),
        (["fold", "room", "--n", "4", "--table", "numbers"], "the partition key of numbers is no string"),
    ],
)
def test_a_table_that_cannot_be_repaired_is_named(client, capsys, command, message):
    client.create_table(TableName="numbers", **define_table("PK", "SK", types={"PK": "N"}))
    name, *options = command
    _, found = tool(capsys, name, "--table", "readings", *options)
    assert message in found["error"]["message"]
