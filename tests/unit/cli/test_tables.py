"""`hotpartition --table`: commands on a table without Redis and without an operations function, over moto."""

import json
import time
from types import SimpleNamespace

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError, NoCredentialsError

from hotpartition.control import hot_keys
from hotpartition.core.errors import CredentialsError, StoreRefusedError
from hotpartition.core.fleet_load import Cell
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.core.times import StoreClock
from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.table import ShardedTable, in_band
from hotpartition_cli.errors import FailedError, Status
from hotpartition_cli.main import run
from hotpartition_cli.sdk import Subject
from hotpartition_cli.tables import TableCaller
from support.tables import BESIDE

APART = JournalPlace("routes", "collection", sort_key="")
OPTIONS = {BESIDE: ["--table", "readings"], APART: ["--table", "counted", "--journal-table", "routes"]}


@pytest.fixture(params=[BESIDE, APART], ids=["beside", "apart"])
def place(request, client):
    """Where the routing items lie."""
    return request.param


@pytest.fixture
def calls(client):
    return ThreadedCalls(Boto3Call(client))


@pytest.fixture
def tool(place, capsys):
    """Runs a command on the table: exit status, JSON, and what people read."""

    def tool(command, *arguments):
        given = [command, *arguments, *OPTIONS[place]]
        status = run(given, {})
        assert run([*given, "--json"], {}) == status
        text, _, document = capsys.readouterr().out.rstrip().rpartition("\n")
        return status, json.loads(document), text.strip()

    return tool


def now_ms():
    return time.time_ns() // 1_000_000


@pytest.fixture
def stopped(monkeypatch):
    """Time stands still, for DynamoDB as well."""
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    monkeypatch.setattr(StoreClock, "learn", lambda *_: None)


def offer(client, place, collection, wcu, *, throttled=0.0):
    """Store the same load in each slot that is kept, in the one that is not over, and in one that is too old.

    It lies in two of the key's load items, half in each.
    """
    now = now_ms() // 250
    for load_place in (0, 2):
        item = place.load_key_of(collection, load_place)
        for slot in range(now - 17, now + 1):
            item[Cell(slot, 4, False).name] = {"N": f"{wcu / 8}"}
            item[Cell(slot, 4, True).name] = {"N": f"{throttled / 8}"}
        client.put_item(TableName=place.table_name, Item=item)


@pytest.fixture
def journal(calls, place):
    return DynamoDBJournal(calls, place)


class TestHot:
    def test_raised_keys_are_listed_by_the_load_that_the_fleet_counted(self, tool, client, journal, place, stopped):
        """The hottest first; one that nobody is refused for is not measured."""
        for number, name in enumerate(("busy", "rush", "quiet")):
            journal.add(name, [Generation(0, 4)], cause=Cause("raised"), now_ms=now_ms() - 9_000 + number)
        offer(client, place, "busy", 100)
        offer(client, place, "rush", 3_000, throttled=750)
        status, document, text = tool("hot")
        rows = document["routes"]
        assert status == Status.FINE
        assert [row["conversation_id"] for row in rows] == ["rush", "busy", "quiet"]
        assert [row["wcu_per_second"] for row in rows] == [3_000.0, 100.0, None]
        assert [row["throttled_share"] for row in rows] == [0.25, 0.0, None]
        same = ("shard_count", "capacity_wcu_per_second", "rcu_per_second")
        assert {tuple(row[name] for name in same) for row in rows} == {(4, 4_000.0, None)}
        assert (document["active"], document["is_complete"], document["streams"]) == (2, True, 0)
        assert document["consumer_started_at"] is None
        assert "75%" in text
        assert "consumer" not in text

    def test_where_there_are_more_keys_than_are_looked_at_that_is_a_finding(self, tool, journal, monkeypatch):
        """And `--all` does not call those cold that were not looked at."""
        monkeypatch.setattr(hot_keys, "LEAST_LOOKED_AT", 2)
        for number in range(3):
            journal.add(f"c{number}", [Generation(0, 4)], cause=Cause("raised"), now_ms=now_ms() + number)
        status, document, text = tool("hot", "--limit", "1")
        assert (status, document["is_complete"]) == (Status.FINDING, False)
        assert [row["conversation_id"] for row in document["routes"]] == ["c2"]
        assert "raised last was looked at" in text
        status, document, _ = tool("hot", "--all")
        assert [row["wcu_per_second"] for row in document["routes"]] == [None, None, None]

    def test_of_a_table_that_was_never_hot_nothing_is_claimed(self, tool):
        """Whether it is written nobody counts."""
        status, document, text = tool("hot")
        assert (status, document["routes"]) == (Status.FINE, [])
        assert text == "No partition key was ever raised."


class TestRoutes:
    def test_a_raise_is_what_the_tables_users_see(self, tool, capsys, place, journal):
        """For all items, unless a time is given. Writers find out by themselves, and no registry is claimed to know."""
        assert run(["raise", "rush", "--n", "8", "--by", "ann", "--json", *OPTIONS[place]], {}) == Status.FINE
        done = json.loads(capsys.readouterr().out)
        assert (done["changed"], done["in_registry"]) == (True, None)
        assert "as soon as DynamoDB refuses them a write" in " ".join(done["warnings"])
        assert "Redis" not in " ".join(done["warnings"])
        assert journal.get("rush", is_strong=True).route.generations == {Generation(0, 8)}
        status, document, text = tool("route", "rush")
        assert "registry against journal" not in text  # there is none
        (generation,) = document["generations"]
        assert (status, document["agreement"], document["shard_count"]) == (Status.FINE, "equal", 8)
        assert (generation["in_journal"], generation["in_registry"]) == (True, None)
        assert (generation["raises"][0]["reason"], generation["raises"][0]["by"]) == ("by-hand", "ann")

    def test_a_close_believes_that_positions_are_times(self, place, journal, capsys, monkeypatch):
        """Only where the operator says so; then it is what the table's users see."""
        monkeypatch.setenv("HOTPARTITION_IS_CLOSING", "true")
        now = now_ms()
        journal.add("dev", [Generation(now - 60_000, 4)], cause=Cause("raised"), now_ms=now)
        assert run(["close", "dev", *OPTIONS[place]], {}) == Status.FINDING
        assert run(["close", "dev", "--timed", *OPTIONS[place]], {}) == Status.FINE
        refused, done, _ = capsys.readouterr().out.split("\n", 2)
        assert "--timed" in refused
        assert "dev is closed" in done
        route = journal.get("dev", is_strong=True).route
        assert (route.shard_count_at(now), route.shard_count_at(None)) == (4, 0)

    def test_a_table_reads_what_was_raised(self, client, place):
        """`ShardedTable` finds the route where the command put it."""
        run(["raise", "rush", "--n", "4", *OPTIONS[place]], {})
        name, settings, sort = "readings", {}, {"SK": "a"}
        if place is APART:
            name, sort = "counted", {"at": 1}
            settings = {"journal_table_name": "routes", "journal_partition_key_name": "collection"}
        users = boto3.resource("dynamodb").Table(name)
        users.put_item(Item={"PK": "rush#_3", **sort})
        table = ShardedTable(users, shards=in_band(environ={}, **settings))
        found = table.query(KeyConditionExpression=Key("PK").eq("rush"), ConsistentRead=True)["Items"]
        assert found == table.scan()["Items"] == [{"PK": "rush", **sort}]

    def test_a_key_that_was_never_raised_is_shown_as_one(self, tool):
        """And nothing is said of a registry."""
        status, document, text = tool("route", "cold")
        assert (status, document["generations"]) == (Status.FINE, [])
        assert text == "cold was never raised: its items, if there are any, are on the base key."

    def test_verify_finds_what_cannot_be_read(self, tool, client, place, journal):
        """In the journal: there is nothing else."""
        for name in ("good", "broken"):
            journal.add(name, [Generation(0, 4)], cause=Cause("raised"), now_ms=now_ms())
        broken = {**place.key_of("broken"), "generations": {"SS": ["many"]}}
        client.put_item(TableName=place.table_name, Item=broken)
        status, document, _ = tool("verify")
        assert status == Status.FINDING
        assert document["differences"] == [{"conversation_id": "broken", "agreement": "malformed"}]
        assert (document["counts"]["equal"], document["counts"]["malformed"]) == (1, 1)
        assert tool("route", "broken")[1]["malformed_members"] == ["many"]


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "status", "sentence"),
        [
            (["hot", "--table", "single"], Status.USAGE, "no sort key"),
            (["hot", "--table", "counted", "--journal-table", "readings"], Status.USAGE, "no table for routing items"),
            (["hot", "--table", "elsewhere"], Status.FAILED, "there is no table elsewhere in eu-central-1"),
            (["verify", "--mend", "--table", "readings"], Status.USAGE, "nothing to copy"),
            (["route", "a#_1", "--table", "readings"], Status.USAGE, "do not end like a shard key"),
        ],
    )
    def test_are_said_in_a_sentence(self, client, capsys, arguments, status, sentence):
        """On standard error."""
        assert run(arguments, {}) == status
        captured = capsys.readouterr()
        assert sentence in captured.err
        assert (captured.out, captured.err.count("\n")) == ("", 1)

    def test_a_setting_that_is_wrong_is_said(self, client, capsys, monkeypatch):
        """Those that `in_band()` reads as well."""
        monkeypatch.setenv("HOTPARTITION_MAX_SHARD_COUNT", "many")
        assert run(["hot", "--table", "readings"], {}) == Status.USAGE
        assert "HOTPARTITION_MAX_SHARD_COUNT should be" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem"), "access-denied"),
            (NoCredentialsError(), "no-credentials"),
        ],
    )
    def test_what_the_sdk_refuses_is_said_as_everywhere(self, error, kind):
        """With the right that is missing."""

        def refuse(_):
            mine = StoreRefusedError("AccessDeniedException") if kind == "access-denied" else CredentialsError("none")
            raise mine from error

        subject = Subject("DynamoDB", "table", "readings", "dynamodb:GetItem", "")
        call = TableCaller(SimpleNamespace(list_hot=refuse), None, subject, "eu-central-1", None)
        with pytest.raises(FailedError) as raised:
            call({"command": "hot"})
        assert raised.value.kind == kind
