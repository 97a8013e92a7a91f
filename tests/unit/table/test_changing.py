"""Items are created once and changed in place, alone, in batches and in transactions, whatever happens meanwhile."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError, ReadTimeoutError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, at_random, by_attribute, fixed, in_band
from support.fakes import FakeClock
from tools.world.dynamodb import cancelled, throttled

from .conftest import KEY_RANGE, fail_with, put_all, updating, writes_to

ROOM = {"KeyConditionExpression": Key("PK").eq("room"), "ConsistentRead": True}
SHARDS = 5
BASE = "room"
FIRST, SECOND, THIRD = (f"room#_{shard}" for shard in choose_shards("0001", SHARDS))
KEY = {"PK": "room", "SK": "0001"}
IN_HALL = {"PK": "hall", "SK": "0001"}
HALL = FIRST.replace("room", "hall")
"""Where an item of another partition key is created, whose sort key is the same."""
ADD = {"Key": KEY, **updating("ADD n :n", n=5)}
IS_NEW = {"ConditionExpression": "attribute_not_exists(SK)"}
THROTTLED, FAILED, CANCELED = (
    f"{name}Exception" for name in ("ProvisionedThroughputExceeded", "ConditionalCheckFailed", "TransactionCanceled")
)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def open_table(plain, clock):
    """Opens the table in another way than with three choices of five shards."""
    return lambda **options: ShardedTable(
        plain, **{"shards": fixed(SHARDS, choices=3), "clock": clock.as_clock(), **options}
    )


@pytest.fixture
def table(open_table):
    return open_table()


def store(plain, numbers):
    """Store an item of a number at each of some partition keys and nowhere else: it was changed as often as it says."""
    for item in plain.scan()["Items"]:
        plain.delete_item(Key={"PK": item["PK"], "SK": item["SK"]})
    for partition_key, number in numbers.items():
        changes = {"hp_changes": number - 1} if number > 1 else {}
        plain.put_item(Item={"PK": partition_key, "SK": "0001", "n": number, **changes})


def stored(plain):
    """List the number of each stored item by its partition key."""
    return {item["PK"]: item.get("n") for item in plain.scan()["Items"] if item["SK"] != "r#"}


def put(table):
    table.put_item(Item={**KEY, "n": 9})


def put_new(table):
    table.put_item(Item={**KEY, "n": 9}, **IS_NEW)


def create(table):
    table.create_item(Item={**KEY, "n": 9})


def add(table):
    table.update_item(**ADD)


def delete(table):
    table.delete_item(Key=KEY)


def put_in_batch(table):
    put_all(table, [{**KEY, "n": 9}])


def delete_in_batch(table):
    with table.batch_writer() as batch:
        batch.delete_item(Key=KEY)


def transact(*actions):
    """Build a call of one transaction, whose actions are about the table."""
    named = [{kind: {"TableName": "readings", **request}} for kind, request in actions]
    return lambda table: table.meta.client.transact_write_items(TransactItems=named)


ADD_ONE = ("Update", ADD)
PUT_NEW = ("Put", {"Item": {**KEY, "n": 9}, **IS_NEW})
PUT_IN_HALL = ("Put", {"Item": {**IN_HALL, "n": 9}})
IS_THERE = ("ConditionCheck", {"Key": KEY, "ConditionExpression": "attribute_exists(SK)"})
NONE_IN_HALL = ("ConditionCheck", {"Key": IN_HALL, **IS_NEW})


def refuse(*partition_keys):
    """Have writes of single items to some partition keys throttled."""

    def begin(watched, _):
        watched.refuses = lambda operation, body: KEY_RANGE if writes_to(operation, body) in partition_keys else None

    return begin


def once(operation, response):
    """Have the first request of an operation end otherwise."""
    return lambda watched, _: watched.respond_once(operation, response)


def before(operation, numbers):
    """Have another process store something right before the first request of an operation."""
    return lambda watched, plain: watched.once_before(operation, lambda: store(plain, numbers))


REFUSED = fail_with(throttled(KEY_RANGE))
LOST = fail_with(ReadTimeoutError(endpoint_url="test"))


def left_unprocessed(body):
    return {"UnprocessedItems": body["RequestItems"]}


@dataclass(frozen=True)
class Case:
    """A call, what the table holds before, and what happens; then what it holds, and the error that comes."""

    call: Callable[[Any], Any]
    holds: Mapping[str, int] = field(default_factory=dict)
    happens: Callable[[Any, Any], None] = lambda watched, plain: None
    left: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


CASES = {
    "a put tries all choices": Case(put, {}, refuse(FIRST, SECOND), {THIRD: 9}),
    "when all choices refuse, the error is boto3's": Case(put, {}, refuse(FIRST, SECOND, THIRD), {}, THROTTLED),
    "two puts that demand that there is no such item must meet": Case(put_new, {}, refuse(FIRST), {}, THROTTLED),
    "two that add must not make two items": Case(add, {}, refuse(FIRST), {}, THROTTLED),
    "a change waits where its item is": Case(delete, {FIRST: 1}, once("DeleteItem", REFUSED)),
    # Of two copies, the one that was changed more often is the item.
    "an update removes a late copy": Case(add, {FIRST: 2, BASE: 1}, left={FIRST: 7}),
    "also one at a choice before the item's": Case(add, {SECOND: 2, FIRST: 1}, left={SECOND: 7}),
    "so does a put": Case(put, {FIRST: 1, BASE: 1}, left={BASE: 9}),
    "and a put in a batch": Case(put_in_batch, {FIRST: 1, BASE: 1}, left={BASE: 9}),
    "a deletion removes both": Case(delete, {FIRST: 1, BASE: 1}),
    "and a deletion in a batch": Case(delete_in_batch, {FIRST: 1, BASE: 1}),
    "a transaction removes it first": Case(transact(ADD_ONE), {FIRST: 2, BASE: 1}, left={FIRST: 7}),
    "a copy that was changed meanwhile may be the item": Case(
        add, {FIRST: 3, BASE: 1}, before("TransactWriteItems", {FIRST: 3, BASE: 7}), {BASE: 12}
    ),
    # A change demands its item where it was found: or there would be two, or a deletion would be lost.
    "an update of what has moved": Case(add, {FIRST: 1}, before("UpdateItem", {BASE: 4}), {BASE: 9}),
    "an update of what was deleted creates it": Case(add, {FIRST: 1}, before("UpdateItem", {}), {FIRST: 5}),
    "a put over what has moved": Case(put, {FIRST: 1}, before("PutItem", {BASE: 4}), {BASE: 9}),
    "a deletion of what has moved": Case(delete, {FIRST: 1}, before("DeleteItem", {BASE: 4})),
    "a creation becomes a change": Case(add, {}, before("UpdateItem", {FIRST: 4}), {FIRST: 9}),
    "on condition, it fails": Case(put_new, {}, before("PutItem", {FIRST: 4}), {FIRST: 4}, FAILED),
    "a transaction on what has moved": Case(
        transact(ADD_ONE, PUT_IN_HALL), {FIRST: 1}, before("TransactWriteItems", {BASE: 4}), {BASE: 9, HALL: 9}
    ),
    "two creations, of which one is in a transaction": Case(
        transact(PUT_NEW, PUT_IN_HALL), {}, before("TransactWriteItems", {FIRST: 4}), {FIRST: 4}, CANCELED
    ),
    "a check of what is deleted": Case(
        transact(IS_THERE), {FIRST: 1}, before("TransactWriteItems", {}), error=CANCELED
    ),
    "a check that there is no item meets its creation": Case(
        transact(NONE_IN_HALL, PUT_NEW), {}, before("TransactWriteItems", {HALL: 4}), {HALL: 4}, CANCELED
    ),
    "create_item goes to the next choice": Case(create, {}, refuse(FIRST), {SECOND: 9}),
    "unless an earlier call has stored it anywhere": Case(create, {THIRD: 4}, refuse(FIRST), {THIRD: 4}),
    "a lost response of create_item": Case(create, {}, once("PutItem", LOST), {FIRST: 9}),
    "create_item refused everywhere": Case(create, {}, refuse(FIRST, SECOND, THIRD), {}, THROTTLED),
    # DynamoDB gives no reasons for what it leaves of a batch: the place may be hot, and another one is as good.
    "what is left of a batch": Case(put_in_batch, {}, once("BatchWriteItem", left_unprocessed), {SECOND: 9}),
    "what is left over two copies is put once": Case(
        put_in_batch, {FIRST: 1, BASE: 1}, once("BatchWriteItem", left_unprocessed), {BASE: 9}
    ),
    "a throttled batch": Case(put_in_batch, {}, once("BatchWriteItem", REFUSED), {FIRST: 9}),
    "a throttled transaction, behind which new items avoid the place": Case(
        lambda table: (transact(ADD_ONE)(table), delete(table), put_in_batch(table)),
        {FIRST: 1},
        once("TransactWriteItems", fail_with(cancelled([{"Code": "ThrottlingError"}]))),
        {SECOND: 9},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_item_lies_in_one_place_afterwards(table, watched, plain, clock, name):
    """Callers catch what they caught before, and wait for a second at most."""
    case = CASES[name]
    store(plain, case.holds)
    case.happens(watched, plain)
    with pytest.raises(getattr(table.meta.client.exceptions, case.error)) if case.error else nullcontext() as caught:
        case.call(table)
    assert stored(plain) == case.left
    assert (0.5 if case.error == THROTTLED else 0) <= sum(clock.slept) <= 1.0
    if case.error == THROTTLED:
        assert caught.value.response["ThrottlingReasons"][0]["reason"] == KEY_RANGE


@pytest.mark.parametrize("places", [(FIRST, BASE), (SECOND, FIRST)])
def test_of_two_copies_reads_show_the_more_often_changed_one(table, plain, places):
    """In pages, counts and point reads."""
    store(plain, dict(zip(places, (2, 1), strict=True)))
    expected = {**KEY, "n": 2}
    assert table.query(**ROOM)["Items"] == [expected]
    assert table.query(**ROOM, Select="COUNT")["Count"] == 1
    assert table.get_item(Key=KEY, ConsistentRead=True)["Item"] == expected


def test_a_put_over_what_came_meanwhile_is_one_change_more(table, watched, plain):
    """A late copy of what came would be the item otherwise."""
    before("PutItem", {FIRST: 4})(watched, plain)
    put(table)
    assert [(item["n"], item["hp_changes"]) for item in plain.scan()["Items"]] == [(9, 4)]


def test_creations_at_random_meet_as_well(open_table, watched):
    texts = iter("abcdefgh")
    table = open_table(shards=fixed(64), hashed=at_random(lambda: next(texts)))
    watched.once_before("UpdateItem", lambda: table.update_item(**ADD))
    table.update_item(**ADD)
    assert table.get_item(Key=KEY, ConsistentRead=True)["Item"]["n"] == 10


def test_an_append_only_put_on_condition_sees_what_was_written_before_a_raise(open_table):
    """It is a question whether the item is there already."""
    open_table(shards=fixed(2), append_only=True).put_item(Item=KEY, **IS_NEW)
    for shards in (fixed(2, 7), fixed(2, 7, 64)):
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            open_table(shards=shards, append_only=True).put_item(Item=KEY, **IS_NEW)


def test_an_item_that_an_update_creates_says_under_which_number(plain, open_table):
    """A number that is raised later shows where it lies; a later change leaves that as it is."""
    open_table(shards=fixed(3, SHARDS)).update_item(**ADD)
    open_table(shards=fixed(3, SHARDS, 7)).update_item(**ADD)
    assert [(item["n"], item["hp_shards"]) for item in plain.scan()["Items"]] == [(10, SHARDS)]


@pytest.mark.parametrize(
    "options",
    [{}, {"hashed": at_random()}, {"shards": in_band(environ={})}, {"shards": fixed(4, only_shards=True)}],
)
def test_create_item_returns_what_an_earlier_call_stored(open_table, plain, watched, options):
    """Unchanged, as its owner knows it, in one request each."""
    table, item = open_table(**options), {**KEY, "n": 1}
    table.scan()
    watched.sent.clear()
    assert table.create_item(Item=item) is None
    assert table.create_item(Item={**item, "n": 2}) == item
    assert dict(watched.sent) == {"PutItem": 2}
    table.update_item(Key=KEY, **updating("SET n = :n", n=3))
    assert table.create_item(Item=item) == {**item, "n": 3}
    table.delete_item(Key=KEY)
    assert table.create_item(Item=item) is None
    assert len(stored(plain)) == 1


def test_create_item_whose_outcome_stays_unknown_fails_as_boto3_does(table, watched):
    watched.responds = lambda operation, body: LOST(body) if operation == "PutItem" else None
    with pytest.raises(ReadTimeoutError):
        table.create_item(Item=KEY)


def test_create_item_has_one_place_in_a_table_without_a_sort_key(create):
    table = ShardedTable(create("devices", "id"), shards=fixed(4))
    assert table.create_item(Item={"id": "a", "n": 1}) is None
    assert table.create_item(Item={"id": "a", "n": 2}) == {"id": "a", "n": 1}


class TestHashed:
    """Shards that are chosen by an attribute."""

    @pytest.fixture
    def table(self, open_table):
        return open_table(shards=fixed(SHARDS), hashed=by_attribute("device"))

    def test_an_update_that_creates_must_be_told_where(self, table, plain):
        """Where nothing would be created, nothing need tell where."""
        update = {"Key": KEY, **updating("SET device = :d", d="d1")}
        on_condition = {"UpdateExpression": "REMOVE n", "ConditionExpression": Attr("SK").not_exists()}
        with pytest.raises(InvalidRequestError, match="Hashed"):
            table.update_item(**update)
        with pytest.raises(InvalidRequestError, match="Hashed"):
            table.update_item(Key=KEY, **on_condition)
        with pytest.raises(InvalidRequestError, match="Hashed"):
            transact(("Update", update))(table)
        with pytest.raises(InvalidRequestError, match="device"):
            table.put_item(Item=KEY)
        with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
            table.update_item(
                Key=KEY,
                **updating("SET #n = :n", n=1, m=1),
                ConditionExpression="attribute_exists(PK) AND #m = :m",
                ExpressionAttributeNames={"#n": "n", "#m": "m"},
            )
        assert stored(plain) == {}
        table.update_item(**update, Hashed="d1")
        transact(("Update", {**update, "Key": IN_HALL, "Hashed": "d1"}))(table)
        shard = choose_shards("d1", SHARDS)[0]
        assert stored(plain) == {f"room#_{shard}": None, f"hall#_{shard}": None}

    def test_the_same_value_and_attributes_inside_others_are_no_change(self, table):
        """Another one is refused: the item would have to move."""
        table.put_item(Item={**KEY, "device": "d1", "info": {"device": 1}})
        same = updating("SET device = :same, info.device = :two, copied = device", same="d1", two=2)
        table.update_item(Key=KEY, Hashed="d1", **same)
        assert table.query(**ROOM)["Items"] == [{**KEY, "device": "d1", "info": {"device": 2}, "copied": "d1"}]

    def test_an_attribute_that_keys_tell_must_fit_them(self, open_table, plain):
        """Otherwise two items of one key could lie on two shards. An item need not have it then."""
        hashed = by_attribute("device", from_key=lambda key: key["SK"].split("#")[1])
        table = open_table(shards=fixed(SHARDS), hashed=hashed)
        table.put_item(Item={"PK": "room", "SK": "1#d1", "device": "d1"})
        with pytest.raises(InvalidRequestError, match="the item's key says 'd1'"):
            table.put_item(Item={"PK": "room", "SK": "1#d1", "device": "d2"})
        table.put_item(Item={"PK": "room", "SK": "2#d1"})
        assert [item["PK"] for item in plain.scan()["Items"]] == [f"room#_{choose_shards('d1', SHARDS)[0]}"] * 2

    @pytest.mark.parametrize("value", [True, ["a"], None])
    def test_a_filter_for_a_value_that_no_shard_is_chosen_by_finds_nothing(self, table, value):
        table.put_item(Item={**KEY, "device": "d1"})
        assert table.query(**ROOM, FilterExpression=Attr("device").eq(value))["Items"] == []


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ({"shards": fixed(4, choices=2)}, {"BatchWriteItem": 3, "BatchGetItem": 3}),
        ({"shards": fixed(4), "hashed": at_random(), "append_only": True}, {"BatchWriteItem": 3}),
    ],
    ids=["located", "append-only"],
)
def test_items_are_written_25_a_request(open_table, watched, options, requests):
    """Each batch is located with one request, or what takes no more than 100 keys."""
    table = open_table(**options)
    put_all(table, ({"PK": "room", "SK": f"{number:04}", "n": number} for number in range(60)))
    assert dict(watched.sent) == requests
    assert [found["n"] for found in table.query(**ROOM)["Items"]] == list(range(60))


@pytest.mark.parametrize("wrong", [{"PK": "", "SK": "1"}, {"PK": "room"}])
def test_what_is_wrong_in_a_batch_dynamodb_says(table, wrong):
    with pytest.raises(ClientError, match="ValidationException"), table.batch_writer() as batch:
        batch.put_item(Item=wrong)


@pytest.mark.parametrize("hashed", [at_random(), by_attribute("device")])
def test_two_puts_of_one_key_are_refused_as_boto3s(open_table, plain, hashed):
    """They may go to different shards, where DynamoDB would not see it."""
    batch = open_table(shards=fixed(64), hashed=hashed).batch_writer()
    for device in "abcdefgh":
        batch.put_item(Item={**KEY, "device": device})
    with pytest.raises(ClientError, match="duplicates"):
        batch.__exit__(None, None, None)
    assert plain.scan()["Items"] == []
