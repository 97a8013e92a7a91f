"""Reads of a key whose items are being moved to its base key: whenever one moves, they find it once."""

import json
from types import SimpleNamespace

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key

from hotpartition.table import ShardedTable, fixed, in_band
from support.executors import Inline

from .conftest import raise_key

pytestmark = pytest.mark.slow

ROOM = {"KeyConditionExpression": Key("PK").eq("room"), "ConsistentRead": True}
SORT_KEYS = [f"{number:02}" for number in range(6)]


class InlineTable(ShardedTable):
    """A table without threads."""

    def _open_executor(self, threads):
        return Inline()


class Mover:
    """Moves one item right after the response of a given number, as one transaction does."""

    def __init__(self, plain):
        self.raw = boto3.client("dynamodb")
        self.left = 0
        self.events = plain.meta.client.meta.events
        self.events.register("before-call.dynamodb.BatchGetItem", self.get_one_by_one)
        self.events.register("after-call.dynamodb.Query", self.move_when_it_is_time)

    def stop(self):
        self.events.unregister("before-call.dynamodb.BatchGetItem", self.get_one_by_one)
        self.events.unregister("after-call.dynamodb.Query", self.move_when_it_is_time)

    def begin(self, item, moment):
        """Have it happen after a number of responses."""
        self.item, self.left = item, moment

    def move_when_it_is_time(self, **_):
        self.left -= 1
        if self.left == 0:
            self.place("room")

    def place(self, partition_key):
        """Have the item lie at one key alone."""
        for item in self.raw.scan(TableName="readings")["Items"]:
            if item["SK"] == self.item["SK"]:
                self.raw.delete_item(TableName="readings", Key={name: item[name] for name in ("PK", "SK")})
        self.raw.put_item(TableName="readings", Item={**self.item, "PK": {"S": partition_key}})

    def get_one_by_one(self, model, params, **_):
        """Respond to a batch as DynamoDB may: its items are read one after the other."""
        (asked,) = json.loads(params["body"])["RequestItems"].values()
        options = {name: value for name, value in asked.items() if name != "Keys"}
        found = []
        for key in asked["Keys"]:
            response = self.raw.get_item(TableName="readings", Key=key, **options)
            found += [response["Item"]] if "Item" in response else []
            self.move_when_it_is_time()
        return SimpleNamespace(status_code=200), {"Responses": {"readings": found}, "UnprocessedKeys": {}}


@pytest.fixture
def mover(plain):
    mover = Mover(plain)
    yield mover
    mover.stop()


def keys_of(*pages):
    return [item["SK"] for page in pages for item in page["Items"]]


def read_one(table, sort_key):
    (item,) = table.get_items([{"PK": "room", "SK": sort_key}], ConsistentRead=True)
    return [] if item is None else [item["SK"]]


IS_WANTED = {"FilterExpression": Attr("is_wanted").eq(True), "Limit": 4}
READS = {
    "page": (lambda table, _: keys_of(table.query(**ROOM)), SORT_KEYS),
    "pages": (lambda table, _: keys_of(*table.query_pages(**ROOM, Limit=2)), SORT_KEYS),
    "newest": (lambda table, _: keys_of(table.query(**ROOM, Limit=3, ScanIndexForward=False)), SORT_KEYS[:2:-1]),
    "filtered": (lambda table, _: keys_of(*table.query_pages(**ROOM, **IS_WANTED)), SORT_KEYS[::2]),
    "item": (read_one, None),
}


def fill(plain):
    """Spread items over shards, and return where each lies that is on one."""
    raise_key(plain, "room", 2)
    table = ShardedTable(plain, shards=in_band(environ={}))
    table.query(**ROOM)
    for number, sort_key in enumerate(SORT_KEYS):
        table.put_item(
            Item={"PK": "room", "SK": sort_key, "is_wanted": number % 2 == 0},
            ConditionExpression="attribute_not_exists(PK)",
        )
    return [item for item in plain.scan()["Items"] if "#_" in item["PK"]]


def find_losses(mover, on_shards, read, open_table):
    """Move items at each moment of a read; find those at which the read was not what it should be."""
    act, expected = READS[read]
    for item in (on_shards[0], on_shards[-1]):
        moment = 0
        while mover.left <= 0:
            moment += 1
            mover.begin({"SK": {"S": item["SK"]}, "is_wanted": {"BOOL": item["is_wanted"]}}, moment)
            mover.place(item["PK"])
            found = act(open_table(), item["SK"])
            if found != (expected or [item["SK"]]):
                yield item["SK"], moment
        mover.place(item["PK"])
        mover.left = 0


@pytest.mark.parametrize("read", READS)
def test_what_moves_while_it_is_read_is_found_once(plain, mover, read):
    """Whichever item moves after whichever response; where the base key is not asked last, some are missed."""
    on_shards = fill(plain)
    plain.delete_item(Key={"PK": "room", "SK": "r#"})
    leaving, staying = (InlineTable(plain, shards=fixed(n, readable=2, choices=3)) for n in (0, 2))
    assert list(find_losses(mover, on_shards, read, lambda: leaving)) == []
    assert any(find_losses(mover, on_shards, read, lambda: staying))
