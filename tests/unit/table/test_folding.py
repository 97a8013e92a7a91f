"""A key whose items move to its base key: reads find each once, and a fold's conditions keep what changes meanwhile.

Items move after each response of each kind of read: to stop between two requests takes most of its helpers.
"""

from concurrent.futures import Executor, Future
from itertools import count

import pytest
from boto3.dynamodb.conditions import Attr, Key

from hotpartition.control.folding import MAX_PASSES, Folder, FoldForm
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.python_values import PythonValuesCall
from hotpartition.table import ShardedTable, fixed, in_band
from support.fakes import FakeClock

from .conftest import raise_key, updating

ROOM = {"KeyConditionExpression": Key("PK").eq("room"), "ConsistentRead": True}
IS_NEW = {"ConditionExpression": "attribute_not_exists(PK)"}
SORT_KEYS = [f"{number:02}" for number in range(6)]


class Inline(Executor):
    """Makes each call at once: a table on it needs no threads."""

    def submit(self, call, /, *arguments):
        future = Future()
        future.set_result(call(*arguments))
        return future


class InlineTable(ShardedTable):
    def _open_executor(self, threads):
        return Inline()


def after_each_response(watched, act):
    """Have something happen after each response: a batch's keys are read one after the other, as DynamoDB may."""

    def read(operation, body):
        response = watched.dynamodb.call(operation, body)
        act()
        return response

    def respond(operation, body):
        if operation == "Query":
            return read(operation, body)
        if operation != "BatchGetItem":
            return None
        (asked,) = body["RequestItems"].values()
        found = [read("GetItem", {**asked, "TableName": "readings", "Key": key}) for key in asked["Keys"]]
        return {"Responses": {"readings": [one["Item"] for one in found if one]}, "UnprocessedKeys": {}}

    watched.responds = respond


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


def move(plain, item, partition_key):
    """Have an item lie at one key alone."""
    for place in (item["PK"], "room"):
        plain.delete_item(Key={"PK": place, "SK": item["SK"]})
    plain.put_item(Item={**item, "PK": partition_key})


def find_losses(plain, watched, item, read, table):
    """List the responses after which an item that moves to its base key makes a read what it should not be."""
    act, expected = READS[read]
    losses = []
    for moment in count(1):
        move(plain, item, item["PK"])
        responses = count(1)
        after_each_response(watched, lambda: next(responses) == moment and move(plain, item, "room"))  # noqa: B023
        found = act(table, item["SK"])
        watched.forget()
        if next(responses) <= moment:  # it had fewer
            break
        losses += [moment] if found != (expected or [item["SK"]]) else []
    move(plain, item, item["PK"])
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("read", READS)
def test_what_moves_while_it_is_read_is_found_once(plain, watched, read):
    """Whichever item moves after whichever response: the base key is asked last."""
    raise_key(plain, "room", 2)
    table = ShardedTable(plain, shards=in_band(environ={}))
    table.query(**ROOM)
    for number, sort_key in enumerate(SORT_KEYS):
        table.put_item(Item={"PK": "room", "SK": sort_key, "is_wanted": number % 2 == 0}, **IS_NEW)
    plain.delete_item(Key={"PK": "room", "SK": "r#"})
    on_shards = [item for item in plain.scan()["Items"] if "#_" in item["PK"]]
    leaving = InlineTable(plain, shards=fixed(0, readable=2, choices=3))
    assert [find_losses(plain, watched, item, read, leaving) for item in (on_shards[0], on_shards[-1])] == [[], []]


FORM = FoldForm("readings", "PK", "SK", KeyForm(), changes="hp_changes", noted="hp_noted")
ON_SHARD, AT_BASE = {"PK": "room#_1", "SK": "a"}, {"PK": "room", "SK": "a"}


def put(table, key, text, *, changes=0):
    table.put_item(Item={**key, "text": text, **({"hp_changes": changes} if changes else {})})


def change(table):
    """As a writer that found the item on its shard: by then it has the fold's note."""
    names = {"ExpressionAttributeNames": {"#t": "text"}}
    table.update_item(Key=ON_SHARD, **updating("SET #t = :t ADD hp_changes :one", t="changed", one=1), **names)


def create_anew(table):
    table.delete_item(Key=ON_SHARD)
    put(table, ON_SHARD, "anew")


def build_folder(plain, before=lambda operation, request: request):
    """Build what folds; `before` sees each request, and returns what is sent in its place."""
    send = PythonValuesCall(plain.meta.client)

    def call(operation, request):
        return send(operation, before(operation, request))

    return Folder(call, FORM, FakeClock().as_clock(), items_per_second=1000, settle_seconds=1)


@pytest.mark.parametrize(
    ("event", "copy_at_base", "kept"),
    [
        (change, 0, ["changed"]),
        (lambda table: table.delete_item(Key=ON_SHARD), 0, []),
        (create_anew, 0, ["anew"]),
        (lambda table: put(table, AT_BASE, "changed", changes=1), 0, ["changed"]),
        (lambda table: put(table, AT_BASE, "changed", changes=2), 1, ["changed"]),
    ],
    ids=["changed", "deleted", "created anew", "created at the base key", "changed at the base key"],
)
def test_what_happens_right_before_the_transaction_is_kept(plain, event, copy_at_base, kept):
    """Each by a condition of it; a later pass moves what is left."""
    put(plain, ON_SHARD, "old", changes=copy_at_base)
    if copy_at_base:
        put(plain, AT_BASE, "older", changes=copy_at_base - 1)
    left = [event]

    def before(operation, request):
        if operation == "TransactWriteItems" and left:
            left.pop()(plain)
        return request

    build_folder(plain, before).fold("room", shard_count=2)
    assert [item["text"] for item in plain.scan()["Items"]] == kept


@pytest.mark.parametrize("is_late", [False, True], ids=["while it waits", "before its transaction"])
def test_what_is_not_moved_is_left(plain, is_late):
    """An item that changes in each pass stays where it is, and is counted as left; a calm run moves it."""
    put(plain, ON_SHARD, "old")
    tries = []

    def before(operation, request):
        key = request.get("Key", {}).get("PK")
        if operation == ("TransactWriteItems" if is_late else "GetItem") and key not in ("room", {"S": "room"}):
            tries.append(operation)
            change(plain)
        return request

    assert build_folder(plain, before).fold("room", shard_count=2) == (0, 1)
    assert len(tries) == MAX_PASSES
    assert build_folder(plain).fold("room", shard_count=2) == (1, 0)


def test_an_item_that_another_run_noted_waits_again(plain):
    """The other run may have noted one that was created anew a moment ago."""
    put(plain, ON_SHARD, "old")
    transactions = []

    def before(operation, request):
        if operation == "TransactWriteItems":
            transactions.append(operation)
            if len(transactions) == 1:
                plain.update_item(Key=ON_SHARD, **updating("SET hp_noted = :other", other="x"))
        return request

    assert build_folder(plain, before).fold("room", shard_count=2) == (1, 0)
    assert len(transactions) == 2
