"""What happens between a fold's reads and its transaction: its conditions alone keep it, and it is counted."""

import boto3
import pytest
from moto import mock_aws

from hotpartition.control.folding import MAX_PASSES, Folder, FoldForm
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.boto3_client import Boto3Call
from support.fakes import FakeClock
from support.tables import define_table

FORM = FoldForm("folded", "PK", "SK", KeyForm(), changes="hp_changes", noted="hp_noted")
ON_SHARD = {"PK": {"S": "room#_1"}, "SK": {"S": "a"}}
AT_BASE = {"PK": {"S": "room"}, "SK": {"S": "a"}}


def put(client, key, text, *, changes=0):
    item = {**key, "text": {"S": text}, **({"hp_changes": {"N": str(changes)}} if changes else {})}
    client.put_item(TableName="folded", Item=item)


def change(client):
    """As a writer that found the item on its shard: by then it has the fold's note."""
    client.update_item(
        TableName="folded",
        Key=ON_SHARD,
        UpdateExpression="SET #t = :t ADD hp_changes :one",
        ExpressionAttributeNames={"#t": "text"},
        ExpressionAttributeValues={":t": {"S": "changed"}, ":one": {"N": "1"}},
    )


def delete(client):
    client.delete_item(TableName="folded", Key=ON_SHARD)


def create_anew(client):
    delete(client)
    put(client, ON_SHARD, "anew")


def create_at_base(client):
    put(client, AT_BASE, "changed", changes=1)


def change_at_base(client):
    put(client, AT_BASE, "changed", changes=2)


class MeddledClient:
    """Something happens right before the first transaction, one of whose actions may have lost its condition."""

    def __init__(self, client, event, *, unguarded=None):
        self.client, self.event, self.unguarded = client, event, unguarded

    def call(self, operation, request):
        if operation == "TransactWriteItems":
            if self.event is not None:
                event, self.event = self.event, None
                event(self.client)
            request = {"TransactItems": [self.without(action) for action in request["TransactItems"]]}
        return Boto3Call(self.client)(operation, request)

    def without(self, action):
        ((kind, given),) = action.items()
        if kind != self.unguarded:
            return action
        guards = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
        return {kind: {name: value for name, value in given.items() if name not in guards}}


@pytest.fixture
def client(aws_environment):
    with mock_aws():
        client = boto3.client("dynamodb")
        client.create_table(TableName="folded", **define_table("PK", "SK"))
        yield client
        client.delete_table(TableName="folded")


def build_folder(call):
    return Folder(call, FORM, FakeClock().as_clock(), items_per_second=1000, settle_seconds=1)


def fold(client, event, *, unguarded=None, copy_at_base=0):
    """Fold a key of one item, and return the texts that are stored of it, the base key's first."""
    put(client, ON_SHARD, "old", changes=copy_at_base)
    if copy_at_base:
        put(client, AT_BASE, "older", changes=copy_at_base - 1)
    build_folder(MeddledClient(client, event, unguarded=unguarded).call).fold("room", shard_count=2)
    stored = client.scan(TableName="folded")["Items"]
    return [text for _, text in sorted((i["PK"]["S"], i["text"]["S"]) for i in stored)]


@pytest.mark.parametrize(
    ("event", "unguarded", "copy_at_base", "kept"),
    [
        (change, "Delete", 0, ["changed"]),
        (delete, "Delete", 0, []),
        (create_anew, "Delete", 0, ["anew"]),
        (create_at_base, "Put", 0, ["changed"]),
        (change_at_base, "Put", 1, ["changed"]),
    ],
    ids=["changed", "deleted", "created anew", "created at the base key", "changed at the base key"],
)
def test_each_condition_keeps_something(client, event, unguarded, copy_at_base, kept):
    """A later pass moves what is left. Without the condition, a change is lost, or what was deleted comes back."""
    assert fold(client, event, copy_at_base=copy_at_base) == kept
    for item in client.scan(TableName="folded")["Items"]:
        client.delete_item(TableName="folded", Key={name: item[name] for name in ("PK", "SK")})
    assert fold(client, event, unguarded=unguarded, copy_at_base=copy_at_base) != kept


@pytest.mark.parametrize("is_late", [False, True], ids=["while it waits", "before its transaction"])
def test_what_is_not_moved_is_left(client, is_late):
    """An item that changes in each pass stays where it is, and is counted as left; a calm run moves it."""
    put(client, ON_SHARD, "old")
    tries = []

    def call(operation, request):
        if operation == ("TransactWriteItems" if is_late else "GetItem") and request.get("Key") != AT_BASE:
            tries.append(operation)
            change(client)
        return Boto3Call(client)(operation, request)

    assert build_folder(call).fold("room", shard_count=2) == (0, 1)
    assert len(tries) == MAX_PASSES
    assert build_folder(Boto3Call(client)).fold("room", shard_count=2) == (1, 0)


def test_an_item_that_another_run_noted_waits_again(client):
    """The other run may have noted one that was created anew a moment ago."""
    put(client, ON_SHARD, "old")
    transactions = []

    def call(operation, request):
        if operation == "TransactWriteItems":
            transactions.append(operation)
            if len(transactions) == 1:
                note = {
                    "UpdateExpression": "SET hp_noted = :other",
                    "ExpressionAttributeValues": {":other": {"S": "x"}},
                }
                client.update_item(TableName="folded", Key=ON_SHARD, **note)
        return Boto3Call(client)(operation, request)

    assert build_folder(call).fold("room", shard_count=2) == (1, 0)
    assert len(transactions) == 2
