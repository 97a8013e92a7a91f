"""Reads of a key whose items are being moved to its base key: whenever one moves, they find it once."""

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
    """Moves one item right after the response of a given number, as one transaction does.

    The keys of a batch are read one after the other, each by a response of its own, as DynamoDB may.
    """

    def __init__(self, watched):
        self.dynamodb, self.left = watched.dynamodb, 0
        watched.responds = self.respond

    def begin(self, item, moment):
        """Have it happen after a number of responses."""
        self.item, self.left = item, moment

    def respond(self, operation, body):
        """Read, and move the item when its time has come."""
        if operation == "Query":
            response = self.dynamodb.call(operation, body)
            self.move_when_it_is_time()
            return response
        if operation != "BatchGetItem":
            return None
        (asked,) = body["RequestItems"].values()
        found = []
        for key in asked["Keys"]:
            one = self.dynamodb.call("GetItem", {**asked, "TableName": "readings", "Key": key})
            found += [one["Item"]] if "Item" in one else []
            self.move_when_it_is_time()
        return {"Responses": {"readings": found}, "UnprocessedKeys": {}}

    def move_when_it_is_time(self):
        self.left -= 1
        if self.left == 0:
            self.place("room")

    def place(self, partition_key):
        """Have the item lie at one key alone."""
        for item in self.dynamodb.call("Scan", {"TableName": "readings"})["Items"]:
            if item["SK"] == self.item["SK"]:
                key = {name: item[name] for name in ("PK", "SK")}
                self.dynamodb.call("DeleteItem", {"TableName": "readings", "Key": key})
        self.dynamodb.call("PutItem", {"TableName": "readings", "Item": {**self.item, "PK": {"S": partition_key}}})


@pytest.fixture
def mover(plain, watched):
    return Mover(watched)


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
