"""Items are created once and changed in place, alone, in batches and in transactions, whatever happens meanwhile.

A case is one refusal or one change by another process, right before one chosen request, and where the item lies then; a
case that goes takes its moment with it.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ReadTimeoutError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, at_random, by_attribute, fixed, guard, in_band
from support.fakes import FakeClock
from tools.world.dynamodb import cancelled, throttled

from .conftest import KEY_RANGE, fail_with, put_all, raise_key, updating, writes_to

NAME = "readings"
ROOM = {"KeyConditionExpression": Key("PK").eq("room"), "ConsistentRead": True}
SHARDS = 5
BASE = "room"
FIRST, SECOND, THIRD = (f"room#_{shard}" for shard in choose_shards("0001", SHARDS))
FIRST_OF_TWO = f"room#_{choose_shards('0001', 2)[0]}"
D1 = f"room#_{choose_shards('d1', SHARDS)[0]}"
KEY = {"PK": "room", "SK": "0001"}
ITEM = {**KEY, "n": 9}
IN_HALL = {"PK": "hall", "SK": "0001"}
HALL = FIRST.replace("room", "hall")
"""Where an item of another partition key is created, whose sort key is the same."""
IS_NEW = {"ConditionExpression": "attribute_not_exists(SK)"}
IF_ITS_N_IS_1 = {"ConditionExpression": "attribute_exists(PK) AND n = :m"}
THROTTLED, FAILED, CANCELED = (
    f"{name}Exception" for name in ("ProvisionedThroughputExceeded", "ConditionalCheckFailed", "TransactionCanceled")
)
INVALID = "ValidationException"


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


def call(method, **request):
    """Build a call of a method of the table."""
    return lambda table: getattr(table, method)(**request)


def transact(*actions):
    """Build a call of one transaction, whose actions are about the table."""
    named = [{kind: {"TableName": NAME, **request}} for kind, request in actions]
    return lambda table: table.meta.client.transact_write_items(TransactItems=named)


def batch_of(*items):
    """Build a call that puts items by a batch writer."""
    return lambda table: put_all(table, items)


def DELETE_IN_BATCH(table):  # noqa: N802 - one of the calls
    with table.batch_writer() as batch:
        batch.delete_item(Key=KEY)


ADDING = {"Key": KEY, **updating("ADD n :n", n=5)}
OF_DEVICE = updating("SET device = :d", d="d1")
PUT, PUT_IN_BATCH = call("put_item", Item=ITEM), batch_of(ITEM)
PUT_NEW, CREATE = call("put_item", Item=ITEM, **IS_NEW), call("create_item", Item=ITEM)
ADD, DELETE = call("update_item", **ADDING), call("delete_item", Key=KEY)
# Actions of transactions.
ADD_ONE, NEW = ("Update", ADDING), ("Put", {"Item": ITEM, **IS_NEW})
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
LEFT = lambda body: {"UnprocessedItems": body["RequestItems"]}  # noqa: E731


@dataclass(frozen=True)
class Case:
    """A call, what the table holds before, and what happens; then what it holds, and the code of the error."""

    call: Callable[[Any], Any]
    holds: Mapping[str, int] = field(default_factory=dict)
    happens: Callable[[Any, Any], None] = lambda watched, plain: None
    left: Mapping[str, int | None] = field(default_factory=dict)
    error: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


AT_RANDOM = {"hashed": at_random(cycle("ce").__next__)}
"""Two shards in turn; neither is the sort key's."""
BY_DEVICE = {"hashed": by_attribute("device")}
SHOWN_BY_KEYS = {"hashed": by_attribute("device", from_key=lambda _: "d1")}
APPENDED = [{"shards": fixed(2, *more), "append_only": True} for more in ((7,), (7, 64))]

CASES = {
    "a put tries all choices": Case(PUT, {}, refuse(FIRST, SECOND), {THIRD: 9}),
    "when all choices refuse, the error is boto3's": Case(PUT, {}, refuse(FIRST, SECOND, THIRD), {}, THROTTLED),
    "two puts that demand that there is no such item must meet": Case(PUT_NEW, {}, refuse(FIRST), {}, THROTTLED),
    "two that add must not make two items": Case(ADD, {}, refuse(FIRST), {}, THROTTLED),
    "a change waits where its item is": Case(DELETE, {FIRST: 1}, once("DeleteItem", REFUSED)),
    # Of two copies, the one that was changed more often is the item.
    "an update removes a late copy": Case(ADD, {FIRST: 2, BASE: 1}, left={FIRST: 7}),
    "also one at a choice before the item's": Case(ADD, {SECOND: 2, FIRST: 1}, left={SECOND: 7}),
    "so does a put": Case(PUT, {FIRST: 1, BASE: 1}, left={BASE: 9}),
    "and a put in a batch": Case(PUT_IN_BATCH, {FIRST: 1, BASE: 1}, left={BASE: 9}),
    "a deletion removes both": Case(DELETE, {FIRST: 1, BASE: 1}),
    "and a deletion in a batch": Case(DELETE_IN_BATCH, {FIRST: 1, BASE: 1}),
    "a transaction removes it first": Case(transact(ADD_ONE), {FIRST: 2, BASE: 1}, left={FIRST: 7}),
    "a copy that was changed meanwhile may be the item": Case(
        ADD, {FIRST: 3, BASE: 1}, before("TransactWriteItems", {FIRST: 3, BASE: 7}), {BASE: 12}
    ),
    # A change demands its item where it was found: or there would be two, or a deletion would be lost.
    "an update of what has moved": Case(ADD, {FIRST: 1}, before("UpdateItem", {BASE: 4}), {BASE: 9}),
    "an update of what was deleted creates it": Case(ADD, {FIRST: 1}, before("UpdateItem", {}), {FIRST: 5}),
    "a put over what has moved": Case(PUT, {FIRST: 1}, before("PutItem", {BASE: 4}), {BASE: 9}),
    "a deletion of what has moved": Case(DELETE, {FIRST: 1}, before("DeleteItem", {BASE: 4})),
    "a creation becomes a change": Case(ADD, {}, before("UpdateItem", {FIRST: 4}), {FIRST: 9}),
    "also at random": Case(ADD, {}, before("UpdateItem", {FIRST: 4}), {FIRST: 9}, options=AT_RANDOM),
    "on condition, it fails": Case(PUT_NEW, {}, before("PutItem", {FIRST: 4}), {FIRST: 4}, FAILED),
    "a transaction on what has moved": Case(
        transact(ADD_ONE, PUT_IN_HALL), {FIRST: 1}, before("TransactWriteItems", {BASE: 4}), {BASE: 9, HALL: 9}
    ),
    "two creations, of which one is in a transaction": Case(
        transact(NEW, PUT_IN_HALL), {}, before("TransactWriteItems", {FIRST: 4}), {FIRST: 4}, CANCELED
    ),
    "and at random": Case(
        transact(NEW, PUT_IN_HALL), {}, before("TransactWriteItems", {FIRST: 4}), {FIRST: 4}, CANCELED, AT_RANDOM
    ),
    "a check of what is deleted": Case(
        transact(IS_THERE), {FIRST: 1}, before("TransactWriteItems", {}), error=CANCELED
    ),
    "a check that there is no item meets its creation": Case(
        transact(NONE_IN_HALL, NEW), {}, before("TransactWriteItems", {HALL: 4}), {HALL: 4}, CANCELED
    ),
    "create_item goes to the next choice": Case(CREATE, {}, refuse(FIRST), {SECOND: 9}),
    "unless an earlier call has stored it anywhere": Case(CREATE, {THIRD: 4}, refuse(FIRST), {THIRD: 4}),
    "a lost response of create_item": Case(CREATE, {}, once("PutItem", LOST), {FIRST: 9}),
    "create_item refused everywhere": Case(CREATE, {}, refuse(FIRST, SECOND, THIRD), {}, THROTTLED),
    # DynamoDB gives no reasons for what it leaves of a batch: the place may be hot, and another one is as good.
    "what is left of a batch": Case(PUT_IN_BATCH, {}, once("BatchWriteItem", LEFT), {SECOND: 9}),
    "what is left over two copies is put once": Case(
        PUT_IN_BATCH, {FIRST: 1, BASE: 1}, once("BatchWriteItem", LEFT), {BASE: 9}
    ),
    "a throttled batch": Case(PUT_IN_BATCH, {}, once("BatchWriteItem", REFUSED), {FIRST: 9}),
    "a throttled transaction, behind which new items avoid the place": Case(
        lambda table: (transact(ADD_ONE)(table), DELETE(table), PUT_IN_BATCH(table)),
        {FIRST: 1},
        once("TransactWriteItems", fail_with(cancelled([{"Code": "ThrottlingError"}]))),
        {SECOND: 9},
    ),
    # A condition is a question whether the item is there already, wherever it was written.
    "an append-only put on condition, after a raise": Case(
        PUT_NEW, {FIRST_OF_TWO: 1}, left={FIRST_OF_TWO: 1}, error=FAILED, options=APPENDED[0]
    ),
    "and after another": Case(
        PUT_NEW, {FIRST_OF_TWO: 1}, left={FIRST_OF_TWO: 1}, error=FAILED, options=APPENDED[1]
    ),
    "an update that names what the shard is chosen by": Case(
        call("update_item", Key=KEY, **OF_DEVICE, Hashed="d1"), left={D1: None}, options=BY_DEVICE
    ),
    "so does an action": Case(
        transact(("Update", {"Key": KEY, **OF_DEVICE, "Hashed": "d1"})), left={D1: None}, options=BY_DEVICE
    ),
    # Nothing would be created.
    "an update whose condition fails need not name it": Case(
        call("update_item", Key=KEY, **updating("SET n = :n", n=1, m=1), **IF_ITS_N_IS_1),
        error=FAILED, options=BY_DEVICE,
    ),
    "keys that show it": Case(PUT, left={D1: 9}, options=SHOWN_BY_KEYS),
    # On different shards, as those of devices `a` and `c`, DynamoDB would not see it.
    "two puts of one key in a batch": Case(
        batch_of(*({**KEY, "device": device} for device in "abcdefgh")), error=INVALID, options=BY_DEVICE
    ),
    "two puts at random in a batch": Case(
        batch_of(*({**KEY, "n": n} for n in range(8))), error=INVALID, options=AT_RANDOM
    ),
    "two actions on one item": Case(
        transact(*(("Put", {"Item": {**KEY, "device": device}}) for device in "ac")), error=INVALID, options=BY_DEVICE
    ),
    # DynamoDB says what is wrong, and nothing is done.
    "an empty key in a batch": Case(batch_of({"PK": "", "SK": "1"}), error=INVALID),
    "half a key in a batch": Case(batch_of({"PK": "room"}), error=INVALID),
    "half a key in a transaction": Case(
        transact(ADD_ONE, ("Put", {"Item": {"PK": "room"}})), {FIRST: 1}, left={FIRST: 1}, error=INVALID
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_item_lies_in_one_place_afterwards(open_table, watched, plain, clock, name):
    """Callers catch what they caught before, and wait for a second at most."""
    case = CASES[name]
    table = open_table(**case.options)
    store(plain, case.holds)
    case.happens(watched, plain)
    kind = table.meta.client.exceptions.from_code(case.error)
    with pytest.raises(kind, match=case.error) if case.error else nullcontext() as caught:
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
    PUT(table)
    assert [(item["n"], item["hp_changes"]) for item in plain.scan()["Items"]] == [(9, 4)]


def test_an_item_that_an_update_creates_says_under_which_number(plain, open_table):
    """A number that is raised later shows where it lies; a later change leaves that as it is."""
    ADD(open_table(shards=fixed(3, SHARDS)))
    ADD(open_table(shards=fixed(3, SHARDS, 7)))
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


def test_an_update_whose_condition_holds_must_name_where_to_create(open_table):
    with pytest.raises(InvalidRequestError, match="Hashed"):
        open_table(**BY_DEVICE).update_item(Key=KEY, UpdateExpression="REMOVE n", **IS_NEW)


def test_create_item_whose_outcome_stays_unknown_fails_as_boto3_does(table, watched):
    watched.responds = lambda operation, body: LOST(body) if operation == "PutItem" else None
    with pytest.raises(ReadTimeoutError):
        table.create_item(Item=KEY)


def test_the_same_value_and_attributes_inside_others_are_no_change(open_table):
    """Of what the shard is chosen by. Another one is refused: the item would have to move."""
    table = open_table(**BY_DEVICE)
    table.put_item(Item={**KEY, "device": "d1", "info": {"device": 1}})
    same = updating("SET device = :same, info.device = :two, copied = device", same="d1", two=2)
    table.update_item(Key=KEY, Hashed="d1", **same)
    assert table.query(**ROOM)["Items"] == [{**KEY, "device": "d1", "info": {"device": 2}, "copied": "d1"}]
    for value in (True, ["a"], None):  # no shard is chosen by it
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


def read_in_transaction(client, *named):
    """Return the numbers of the items of some keys, each with its table's name."""
    actions = [{"Get": {"TableName": name, "Key": key}} for name, key in named]
    return [found["Item"]["n"] for found in client.transact_get_items(TransactItems=actions)["Responses"]]


def test_what_moves_before_a_transaction_reads_it_is_looked_for_again(table, plain, watched):
    store(plain, {FIRST: 1})
    watched.once_before("TransactGetItems", lambda: store(plain, {BASE: 5}))
    assert read_in_transaction(table.meta.client, (NAME, KEY)) == [5]


def test_a_raise_while_a_transaction_reads_hides_nothing(plain, watched):
    """What is created under it is seen, if another item of the same transaction is."""
    reader = ShardedTable(plain, shards=in_band(environ={}))
    items = [{**ITEM, "SK": f"{number}"} for number in range(4)]

    def raise_and_create():
        raise_key(plain, "room", 8)
        transact(*(("Put", {"Item": item}) for item in items))(ShardedTable(plain, shards=in_band(environ={})))

    watched.once_before("TransactGetItems", raise_and_create)
    named = [(NAME, {"PK": "room", "SK": item["SK"]}) for item in items]
    assert read_in_transaction(reader.meta.client, *named) == [9] * 4
    assert stored(plain).keys() != {"room"}


def test_two_sharded_tables_are_changed_and_read_in_one_transaction(table, dynamodb, create):
    other = ShardedTable(create("other", "PK", "SK"), shards=fixed(3))
    PUT(table)
    client = guard(dynamodb, table, other).meta.client
    put = {"Put": {"TableName": "other", "Item": {**KEY, "n": 7}}}
    client.transact_write_items(TransactItems=[{"Update": {"TableName": NAME, **ADDING}}, put])
    assert read_in_transaction(client, (NAME, KEY), ("other", KEY)) == [14, 7]
