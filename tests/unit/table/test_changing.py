"""Items are created once and changed in place, whatever refuses and whoever else is at work."""

from contextlib import nullcontext

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, by_attribute, fixed
from support.fakes import FakeClock

from .conftest import KEY_RANGE, updating, writes_to

EVERYTHING = {"KeyConditionExpression": Key("PK").eq("room"), "ConsistentRead": True}
SHARDS = 5
FIRST, SECOND, THIRD = (f"room#_{shard}" for shard in choose_shards("0001", SHARDS))
KEY = {"PK": "room", "SK": "0001"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def table(plain, clock) -> ShardedTable:
    return ShardedTable(plain, shards=fixed(SHARDS, choices=3), clock=clock.as_clock())


def refuse(watched, *partition_keys: str, reason: str = KEY_RANGE) -> None:
    """Throttle writes of single items to some partition keys."""
    watched.refuses = lambda operation, body: reason if writes_to(operation, body) in partition_keys else None


@pytest.mark.parametrize(
    "put_new",
    [
        lambda table: table.put_item(Item=KEY, ConditionExpression=Attr("PK").not_exists()),
        lambda table: table.update_item(Key=KEY, **updating("ADD n :n", n=1)),
    ],
    ids=["on condition", "by an update"],
)
def test_creations_that_must_see_each_other_meet_at_one_place(table, watched, put_new):
    """Of two that demand that there is no such item, one must fail; two that add 1 must not make two items."""
    refuse(watched, FIRST)
    with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
        put_new(table)
    assert {FIRST} == {place for _, place in watched.places}


def test_when_all_choices_refuse_boto3s_error_comes_after_the_budget(table, watched, clock):
    """Callers catch what they caught before."""
    refuse(watched, FIRST, SECOND, THIRD)
    with pytest.raises(table.meta.client.exceptions.ProvisionedThroughputExceededException) as caught:
        table.put_item(Item=KEY)
    assert caught.value.response["ThrottlingReasons"][0]["reason"] == KEY_RANGE
    assert {FIRST, SECOND, THIRD} == {place for _, place in watched.places}
    assert 0.5 < sum(clock.slept) <= 1.0


def test_a_change_waits_where_its_item_is(table, watched, clock):
    """There is no other place for it."""
    table.put_item(Item=KEY)
    refuse(watched, FIRST)
    clock.on_sleep = lambda: refuse(watched)
    watched.places.clear()
    table.delete_item(Key=KEY)
    assert watched.places == [("DeleteItem", FIRST), ("DeleteItem", FIRST)]


def test_of_two_copies_the_more_often_changed_one_is_the_item_everywhere(table, plain):
    """A late copy of the original loses in pages and point reads, and is removed by a change."""
    table.put_item(Item={**KEY, "n": 1})
    table.update_item(Key=KEY, **updating("SET n = :n", n=2))
    plain.put_item(Item={**KEY, "n": 1})  # the copy, on the base key
    expected = {**KEY, "n": 2}
    assert [expected] == table.query(**EVERYTHING)["Items"]
    assert table.query(**EVERYTHING, Select="COUNT")["Count"] == 1
    assert expected == table.get_item(Key=KEY)["Item"]
    response = table.update_item(Key=KEY, **updating("SET n = n + :n", n=1), ReturnValues="ALL_NEW")
    assert response["Attributes"]["n"] == 3
    assert [stored["PK"] for stored in plain.scan()["Items"]] == [FIRST]


def test_a_late_copy_at_the_first_choice_does_not_hide_the_item_at_another(table, watched, plain):
    """A first attempt that DynamoDB took for long may land when the item was created, and changed, elsewhere."""
    refuse(watched, FIRST)
    table.put_item(Item={**KEY, "n": 1})
    refuse(watched)
    table.update_item(Key=KEY, **updating("SET n = :n", n=2))
    plain.put_item(Item={**KEY, "PK": FIRST, "n": 1})
    assert table.get_item(Key=KEY, ConsistentRead=True)["Item"]["n"] == 2
    table.update_item(Key=KEY, **updating("ADD n :n", n=5))
    assert [(stored["PK"], stored["n"]) for stored in plain.scan()["Items"]] == [(SECOND, 7)]


@pytest.mark.parametrize("is_put", [True, False])
@pytest.mark.parametrize("is_batch", [True, False])
def test_every_change_leaves_one_copy_at_most(table, plain, is_put, is_batch):
    """Deleting removes both; nothing comes back."""
    for each in (table, plain):
        each.put_item(Item={**KEY, "n": 1})
    with table.batch_writer() if is_batch else nullcontext(table) as writer:
        if is_put:
            writer.put_item(Item={**KEY, "n": 5})
        else:
            writer.delete_item(Key=KEY)
    assert [stored["n"] for stored in plain.scan()["Items"]] == ([5] if is_put else [])


def test_a_copy_that_was_changed_meanwhile_is_not_removed(table, plain, watched):
    """It may be the item by now."""
    key = {"PK": "room", "SK": "0001"}
    table.put_item(Item={**key, "n": 1})
    for _ in range(2):
        table.update_item(Key=key, UpdateExpression="ADD n :n", ExpressionAttributeValues={":n": 1})
    plain.put_item(Item={**key, "n": 1, "hp_changes": 1})
    watched.once_before("TransactWriteItems", lambda: plain.put_item(Item={**key, "n": 7, "hp_changes": 3}))
    table.update_item(Key=key, UpdateExpression="ADD n :n", ExpressionAttributeValues={":n": 1})
    assert [(stored["PK"], stored["n"]) for stored in plain.scan()["Items"]] == [("room", 8)]


def test_a_change_begins_anew_when_its_item_went_meanwhile(table, watched, plain):
    """An update of what was just deleted creates it, as boto3's would; it loses nothing."""
    table.put_item(Item={**KEY, "n": 1})
    watched.once_before("UpdateItem", lambda: plain.delete_item(Key={"PK": FIRST, "SK": "0001"}))
    response = table.update_item(Key=KEY, **updating("ADD n :n", n=5), ReturnValues="ALL_NEW")
    assert response["Attributes"] == {**KEY, "n": 5}


@pytest.mark.parametrize(
    ("operation", "change", "left"),
    [
        ("UpdateItem", lambda table: table.update_item(Key=KEY, **updating("ADD n :n", n=5)), [("room", 9)]),
        ("PutItem", lambda table: table.put_item(Item={**KEY, "n": 7}), [("room", 7)]),
        ("DeleteItem", lambda table: table.delete_item(Key=KEY), []),
    ],
)
def test_a_change_of_what_moved_meanwhile_finds_it(table, watched, plain, operation, change, left):
    """It demands its item where it was: without that, there would be two, or an acknowledged deletion would be lost."""
    table.put_item(Item={**KEY, "n": 1})

    def move():
        plain.meta.client.delete_item(TableName=plain.name, Key={"PK": FIRST, "SK": "0001"})
        plain.meta.client.transact_write_items(
            TransactItems=[{"Put": {"TableName": plain.name, "Item": {**KEY, "n": 4}}}]
        )

    watched.once_before(operation, move)
    change(table)
    assert [(stored["PK"], stored["n"]) for stored in plain.scan()["Items"]] == left


def test_a_creation_begins_anew_when_the_item_came_meanwhile(table, watched, plain):
    """It becomes a change of that item."""
    watched.once_before("UpdateItem", lambda: plain.put_item(Item={"PK": FIRST, "SK": "0001", "n": 4}))
    table.update_item(Key=KEY, **updating("ADD n :n", n=5))
    (stored,) = plain.scan()["Items"]
    assert (stored["PK"], stored["n"], stored["hp_changes"]) == (FIRST, 9, 1)


def test_a_creation_on_condition_fails_when_the_item_came_meanwhile(table, watched, plain):
    """The condition is judged by what is stored, not by what was located."""
    came = {"Put": {"TableName": plain.name, "Item": {"PK": FIRST, "SK": "0001", "n": 4}}}
    watched.once_before("PutItem", lambda: plain.meta.client.transact_write_items(TransactItems=[came]))
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
        table.put_item(Item=KEY, ConditionExpression="attribute_not_exists(SK)")
    assert [stored["n"] for stored in plain.scan()["Items"]] == [4]


def test_an_update_that_creates_must_be_told_where(plain):
    """Where shards are chosen by an attribute that an update need not name."""
    table = ShardedTable(plain, shards=fixed(SHARDS), hashed=by_attribute("device"))
    update = {
        "Key": KEY,
        **updating("SET device = :d", d="d1"),
    }
    with pytest.raises(InvalidRequestError, match="Hashed"):
        table.update_item(**update)
    table.update_item(**update, Hashed="d1")
    assert [f"room#_{choose_shards('d1', SHARDS)[0]}"] == [stored["PK"] for stored in plain.scan()["Items"]]
    with pytest.raises(InvalidRequestError, match="device"):
        table.put_item(Item={"PK": "room", "SK": "0002"})


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("SET device = :new", {":new": "d2"}),
        ("SET n = :new, device = :new", {":new": "d2"}),
        ("SET device = n", None),
        ("REMOVE device", None),
        ("ADD n :one, device :one", {":one": 1}),
        ("SET device = :old + :one", {":old": 1, ":one": 1}),
    ],
)
def test_what_the_shard_is_chosen_by_is_not_changed(plain, expression, values):
    """The item would have to move; the same value, and attributes inside others, are no change."""
    table = ShardedTable(plain, shards=fixed(SHARDS), hashed=by_attribute("device"))
    table.put_item(Item={**KEY, "device": "d1", "info": {"device": 1}})
    update = {"Key": KEY, "Hashed": "d1"}
    with pytest.raises(InvalidRequestError, match="put it anew"):
        table.update_item(
            **update, UpdateExpression=expression, **({"ExpressionAttributeValues": values} if values else {})
        )
    table.update_item(
        **update,
        **updating("SET device = :same, info.device = :two, copied = device", same="d1", two=2),
    )
    (item,) = table.query(**EVERYTHING)["Items"]
    assert item == {**KEY, "device": "d1", "info": {"device": 2}, "copied": "d1"}


def test_an_attribute_that_keys_tell_must_fit_them(plain):
    """Otherwise two items of one key could lie on two shards."""
    hashed = by_attribute("device", from_key=lambda key: key["SK"].split("#")[1])
    table = ShardedTable(plain, shards=fixed(SHARDS), hashed=hashed)
    table.put_item(Item={"PK": "room", "SK": "1#d1", "device": "d1"})
    with pytest.raises(InvalidRequestError, match="the item's key says 'd1'"):
        table.put_item(Item={"PK": "room", "SK": "1#d1", "device": "d2"})


@pytest.mark.parametrize("name", ["hp_changes", "hp_shards", "hp_noted"])
def test_attributes_of_ours_are_refused(table, name):
    """They would be taken for counts."""
    with pytest.raises(InvalidRequestError, match="reserved"):
        table.put_item(Item={**KEY, name: 1})
    with pytest.raises(InvalidRequestError, match="reserved"):
        table.update_item(Key=KEY, **updating("SET #a = :n", n=1), ExpressionAttributeNames={"#a": name})
