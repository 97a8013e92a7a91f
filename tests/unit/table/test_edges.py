"""What callers may well write, and a shard's key, a second copy or a raise could make wrong."""

from decimal import Decimal, localcontext

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.table import ShardedTable, at_random, by_attribute, fixed
from hotpartition.table.schema import text_of
from tools.world.dynamodb import throttled

from .conftest import KEY_RANGE, fail_with, updating

ROOM = {"KeyConditionExpression": Key("PK").eq("room"), "ConsistentRead": True}
ITEM = {"PK": "room", "SK": "0001"}


@pytest.mark.parametrize(
    "condition", [Attr("PK").eq("room"), "PK <> :pk", "attribute_exists(SK) AND begins_with(#p, :pk)"]
)
def test_a_condition_on_the_partition_keys_value_is_refused(table, condition):
    """It would be judged by the shard's key."""
    table.put_item(Item=ITEM)
    request = {"ConditionExpression": condition}
    if isinstance(condition, str):
        request |= {"ExpressionAttributeValues": {":pk": "room"}}
        request |= {"ExpressionAttributeNames": {"#p": "PK"}} if "#p" in condition else {}
    with pytest.raises(NotImplementedError, match="PK"):
        table.put_item(Item=ITEM, **request)
    with pytest.raises(NotImplementedError, match="PK"):
        table.delete_item(Key=ITEM, **request)


@pytest.mark.parametrize(
    "condition",
    ["attribute_exists(PK)", "attribute_exists( #p ) AND NOT attribute_not_exists(PK)", Attr("PK").exists()],
)
def test_a_condition_that_the_item_exists_is_understood(table, condition):
    """That is the same on every shard."""
    table.put_item(Item=ITEM)
    names = {"ExpressionAttributeNames": {"#p": "PK"}} if "#p" in str(condition) else {}
    table.put_item(Item={**ITEM, "n": 1}, ConditionExpression=condition, **names)


def test_an_update_does_not_copy_a_shards_key(table):
    """The owner would find it in an attribute."""
    table.put_item(Item=ITEM)
    with pytest.raises(NotImplementedError, match="PK"):
        table.update_item(Key=ITEM, UpdateExpression="SET copied = PK")


@pytest.mark.parametrize("placeholder", ["#hpp", "#hp0", "#hpn1", "#hpc"])
def test_placeholders_of_ours_do_not_replace_the_owners(table, placeholder):
    table.put_item(Item={**ITEM, "colour": "red"})
    names = {"ExpressionAttributeNames": {placeholder: "colour"}}
    with pytest.raises(InvalidRequestError, match=placeholder):
        table.query(**ROOM, ProjectionExpression=placeholder, **names)
    with pytest.raises(InvalidRequestError, match=placeholder):
        table.update_item(Key=ITEM, UpdateExpression=f"REMOVE {placeholder}", **names)


def test_an_update_with_add_right_before_a_placeholder(table):
    """DynamoDB takes it."""
    table.update_item(
        Key=ITEM, UpdateExpression="ADD#n :n", ExpressionAttributeNames={"#n": "n"}, ExpressionAttributeValues={":n": 2}
    )
    assert table.get_item(Key=ITEM)["Item"]["n"] == 2


def test_an_update_on_condition_that_the_item_exists_fails_as_boto3s_where_nothing_tells_the_shard(plain):
    """Nothing would be created, so nothing need tell where."""
    table = ShardedTable(plain, shards=fixed(5), hashed=by_attribute("device"))
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
        table.update_item(
            Key=ITEM,
            **updating("SET #n = :n", n=1, m=1),
            ConditionExpression="attribute_exists(PK) AND #m = :m",
            ExpressionAttributeNames={"#n": "n", "#m": "m"},
        )
    with pytest.raises(InvalidRequestError, match="Hashed"):
        table.update_item(Key=ITEM, UpdateExpression="REMOVE n", ConditionExpression=Attr("SK").not_exists())
    assert plain.scan()["Items"] == []


def test_an_append_only_put_on_condition_sees_what_was_written_before_a_raise(plain):
    """It is a question whether the item is there already."""
    create = {"Item": ITEM, "ConditionExpression": Attr("PK").not_exists()}
    ShardedTable(plain, shards=fixed(2), append_only=True).put_item(**create)
    for shards in (fixed(2, 7), fixed(2, 7, 64)):
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            ShardedTable(plain, shards=shards, append_only=True).put_item(**create)


def test_creations_at_random_meet_where_they_must_see_each_other(plain, watched):
    """Two at the same time that each add 1, or demand that there is no such item."""
    texts = iter("abcdefgh")
    table = ShardedTable(plain, shards=fixed(64), hashed=at_random(lambda: next(texts)))
    add = {"Key": ITEM, **updating("ADD n :one", one=1)}
    watched.once_before("UpdateItem", lambda: table.update_item(**add))
    table.update_item(**add)
    assert table.get_item(Key=ITEM, ConsistentRead=True)["Item"]["n"] == 2


@pytest.mark.parametrize("hashed", [at_random(), by_attribute("device")])
def test_one_batch_with_two_puts_of_one_key_is_refused_as_boto3s(plain, hashed):
    """They may go to different shards, where DynamoDB would not see it."""
    table = ShardedTable(plain, shards=fixed(64), hashed=hashed)
    batch = table.batch_writer()
    for device in "abcdefgh":
        batch.put_item(Item={**ITEM, "device": device})
    with pytest.raises(ClientError, match="duplicates"):
        batch.__exit__(None, None, None)
    assert plain.scan()["Items"] == []


def test_a_batch_put_over_two_copies_is_repeated_once(table, plain, watched):
    """Though both of its writes were left unprocessed."""
    table.put_item(Item={**ITEM, "n": 1})
    plain.put_item(Item={**ITEM, "n": 1})
    watched.respond_once("BatchWriteItem", lambda body: {"UnprocessedItems": body["RequestItems"]})
    with table.batch_writer() as batch:
        batch.put_item(Item={**ITEM, "n": 2})
    assert [stored["n"] for stored in plain.scan()["Items"]] == [2]


def test_a_throttled_batch_is_tried_again(table, watched):
    watched.respond_once("BatchWriteItem", fail_with(throttled(KEY_RANGE)))
    with table.batch_writer() as batch:
        batch.put_item(Item=ITEM)
    assert table.get_item(Key=ITEM)["Item"] == ITEM


@pytest.mark.parametrize("value", [True, ["a"], None])
def test_a_filter_for_a_value_that_no_shard_is_chosen_by_finds_nothing(plain, value):
    table = ShardedTable(plain, shards=fixed(5), hashed=by_attribute("device"))
    table.put_item(Item={**ITEM, "device": "d1"})
    assert table.query(**ROOM, FilterExpression=Attr("device").eq(value))["Items"] == []


def test_equal_numbers_have_one_text_whatever_the_precision_around():
    long = Decimal("1234567890.12345678901234567890")
    with localcontext() as context:
        context.prec = 5
        assert text_of(long) == "1234567890.1234567890123456789"
    assert text_of(Decimal("-0")) == text_of(0) == "0"
    assert text_of(Decimal("1E+2")) == text_of(100) == "100"


def test_an_index_that_is_sorted_by_the_partition_key_is_not_searched_for_one(create):
    """It holds the shards' keys, so it would find nothing."""
    inverted = ShardedTable(create("inverted", "PK", "SK", indexes={"by-sort-key": ("SK", "PK")}), shards=fixed(5))
    inverted.put_item(Item=ITEM)
    by_sort_key = {"IndexName": "by-sort-key"}
    assert inverted.query(**by_sort_key, KeyConditionExpression=Key("SK").eq("0001"))["Items"] == [ITEM]
    with pytest.raises(NotImplementedError, match="PK"):
        inverted.query(**by_sort_key, KeyConditionExpression=Key("SK").eq("0001") & Key("PK").eq("room"))
    with pytest.raises(NotImplementedError, match="PK"):
        inverted.query(
            **by_sort_key, KeyConditionExpression=Key("SK").eq("0001"), FilterExpression=Attr("PK").eq("room")
        )
