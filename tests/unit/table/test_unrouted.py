"""A journal that was lost beside items on shards: scans and queries of indexes say so."""

import logging

import pytest
from boto3.dynamodb.conditions import Key

from hotpartition.dynamodb.table import JournalPlace
from hotpartition.table import ShardedTable, in_band
from support.adaptive import AdaptiveShards
from support.fakes import FakeClock, FakeTelemetry

from .conftest import raise_key

BY_OWNER = {"IndexName": "by-owner", "KeyConditionExpression": Key("owner").eq("eu")}


class Process:
    """A table as one process opens it."""

    def __init__(self, plain, way):
        self.clock, self.telemetry = FakeClock(), FakeTelemetry()
        if way == "adaptive":
            shards = AdaptiveShards(JournalPlace("readings", "PK", "SK"))
            self.telemetry = shards.telemetry
        else:
            shards = in_band(environ={}, telemetry=self.telemetry)
        self.table = ShardedTable(plain, shards=shards, clock=self.clock.as_clock())

    @property
    def counted(self):
        return self.telemetry.counts.get("ItemsUnrouted", 0)


@pytest.fixture(params=["adaptive", "in band"])
def process(request, plain):
    for number in range(9):
        key = f"{('hall', 'room')[number % 2]}#_{number % 3}"
        plain.put_item(Item={"PK": key, "SK": f"{number}", "owner": "eu", "at": f"{number}"})
    return Process(plain, request.param)


def gets(watched):
    return watched.sent["GetItem"]


@pytest.mark.parametrize("look", [lambda t: t.scan(), lambda t: t.query(**BY_OWNER)], ids=["scan", "index"])
def test_each_key_is_named_once_at_most_one_a_minute(process, watched, caplog, look):
    """Each look costs one read of the journal; what was named is not looked up again."""
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            look(process.table)
        assert (process.counted, gets(watched)) == (1, 1)
        for _ in range(3):
            process.clock.now_ms += 60_000
            look(process.table)
    assert (process.counted, gets(watched)) == (2, 2)
    assert sorted(record.collection for record in caplog.records) == ["hall", "room"]


def test_keys_of_which_the_journal_knows_are_looked_up_once(process, plain, watched):
    """A route of fewer shards than there are is one that is too old."""
    raise_key(plain, "hall", 3)
    raise_key(plain, "room", 4)
    for _ in range(4):
        process.table.scan()
        process.clock.now_ms += 60_000
    assert (process.counted, gets(watched)) == (0, 2)
    plain.put_item(Item={"PK": "hall#_3", "SK": "9"})
    process.table.scan()
    assert process.counted == 1


def test_a_table_without_shards_costs_nothing_more(plain, watched):
    """Nor does a look that fails do harm."""
    process = Process(plain, "in band")
    plain.put_item(Item={"PK": "room", "SK": "1"})
    process.table.scan()
    assert gets(watched) == 0
    plain.put_item(Item={"PK": "room#_1", "SK": "2"})
    watched.refuses = lambda operation, _: "TableReadKeyRangeThroughputExceeded" if operation == "GetItem" else None
    assert process.table.scan()["Count"] == 2
    assert process.counted == 0
