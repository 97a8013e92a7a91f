"""Transactions over sharded tables: all or nothing, at the places where the items are."""

import pytest
from boto3.dynamodb.conditions import Attr

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, at_random, by_attribute, fixed, guard, in_band
from hotpartition.table.sharded_table import REAL_CLOCK
from tools.world.dynamodb import cancelled

from .conftest import fail_with, raise_key, updating

NAME = "readings"
KEYS = [{"PK": "room", "SK": f"{number:04}"} for number in range(4)]
IS_NEW = {"ConditionExpression": "attribute_not_exists(PK)"}


def put(key, table=NAME, **options):
    return {"Put": {"TableName": table, "Item": {**key, "n": 7}, **options}}


def add(key, **options):
    return {"Update": {"TableName": NAME, "Key": key, **updating("ADD n :one", one=1), **options}}


def delete(key, **options):
    return {"Delete": {"TableName": NAME, "Key": key, **options}}


def check(key, condition="attribute_exists(PK)", **options):
    return {"ConditionCheck": {"TableName": NAME, "Key": key, "ConditionExpression": condition, **options}}


def get(key, table=NAME, **options):
    return {"Get": {"TableName": table, "Key": key, **options}}


@pytest.fixture
def table(plain) -> ShardedTable:
    table = ShardedTable(plain, shards=fixed(4))
    for key in KEYS[:3]:
        table.put_item(Item={**key, "n": 1})
    return table


@pytest.fixture
def client(table):
    return table.meta.client


def numbers(table):
    return {item["SK"]: int(item["n"]) for item in table.scan()["Items"]}


def place_of(plain, sort_key):
    return next(item["PK"] for item in plain.scan()["Items"] if item["SK"] == sort_key)


def move(plain):
    """Move the first item to its base key, with another content."""
    plain.delete_item(Key={"PK": place_of(plain, "0000"), "SK": "0000"})
    plain.put_item(Item={**KEYS[0], "n": 5})


def test_a_condition_that_an_item_is_new_does_not_overwrite_it(client, table, plain):
    """Nothing is written, and the reasons are in the owner's words."""
    actions = [add(KEYS[0]), put(KEYS[1], **IS_NEW, ReturnValuesOnConditionCheckFailure="ALL_OLD")]
    with pytest.raises(client.exceptions.TransactionCanceledException) as caught:
        client.transact_write_items(TransactItems=actions)
    reasons = caught.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert reasons[1]["Item"] == {"PK": {"S": "room"}, "SK": {"S": "0001"}, "n": {"N": "1"}}
    assert numbers(table) == {"0000": 1, "0001": 1, "0002": 1}
    assert plain.scan()["Count"] == 3


def test_what_moved_meanwhile_is_located_anew(client, table, plain, watched):
    """An item that was deleted and created elsewhere has one copy afterwards, with both changes."""
    watched.once_before("TransactWriteItems", lambda: move(plain))
    client.transact_write_items(TransactItems=[add(KEYS[0]), add(KEYS[1])])
    assert numbers(table) == {"0000": 6, "0001": 2, "0002": 1}
    assert plain.scan()["Count"] == 3


def test_of_two_creations_one_sees_the_other(client, table, plain, watched):
    """They meet at one place, in whichever order they come."""
    watched.once_before("TransactWriteItems", lambda: table.put_item(Item={**KEYS[3], "n": 5}))
    with pytest.raises(client.exceptions.TransactionCanceledException):
        client.transact_write_items(TransactItems=[put(KEYS[3], **IS_NEW), add(KEYS[1])])
    assert numbers(table) == {"0000": 1, "0001": 1, "0002": 1, "0003": 5}
    watched.once_before("TransactWriteItems", lambda: table.delete_item(Key=KEYS[3]))
    with pytest.raises(client.exceptions.TransactionCanceledException):
        client.transact_write_items(TransactItems=[check(KEYS[3])])


def test_a_check_that_an_item_is_not_there_meets_its_creation(client, table, watched):
    """Two transactions that each create what the other demands not to be are not both done."""
    other = {"PK": "room", "SK": "0009"}

    def create_other():
        watched.refuses = lambda *_: None
        client.transact_write_items(TransactItems=[check(KEYS[3], "attribute_not_exists(PK)"), put(other)])

    watched.once_before("TransactWriteItems", create_other)
    with pytest.raises(client.exceptions.TransactionCanceledException):
        client.transact_write_items(TransactItems=[check(other, "attribute_not_exists(PK)"), put(KEYS[3])])
    assert "0003" not in numbers(table)


def test_a_second_copy_is_removed_first(client, table, plain):
    """The more often changed one is the item."""
    table.update_item(Key=KEYS[0], **updating("SET n = :n", n=2))
    plain.put_item(Item={**KEYS[0], "n": 1})
    client.transact_write_items(TransactItems=[add(KEYS[0])])
    assert numbers(table)["0000"] == 3
    assert plain.scan()["Count"] == 3


def test_an_action_twice_on_one_item_is_refused(plain, twin):
    """In DynamoDB's words, also where the two would go to different shards."""
    table = ShardedTable(plain, shards=fixed(16), hashed=by_attribute("device"))
    client = table.meta.client
    actions = [put({**KEYS[0], "device": device}) for device in ("a", "b")]
    assert len({choose_shards(device, 16, choices=1) for device in ("a", "b")}) == 2
    with pytest.raises(client.exceptions.ClientError) as found:
        client.transact_write_items(TransactItems=actions)
    for action in actions:
        action["Put"]["TableName"] = "twin"
    with pytest.raises(client.exceptions.ClientError) as expected:
        client.transact_write_items(TransactItems=actions)
    assert found.value.response["Error"] == expected.value.response["Error"]


def test_where_nothing_tells_the_shard_a_new_item_is_refused(plain):
    """`Hashed` tells it, as in single calls."""
    table = ShardedTable(plain, shards=fixed(4), hashed=by_attribute("device"))
    client = table.meta.client
    with pytest.raises(InvalidRequestError, match="Hashed"):
        client.transact_write_items(TransactItems=[add(KEYS[0])])
    client.transact_write_items(TransactItems=[add(KEYS[0], Hashed="dev-1")])
    assert numbers(table) == {"0000": 1}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"TransactItems": [put(KEYS[0])], "ClientRequestToken": "t"}, "ClientRequestToken"),
        ({"TransactItems": [put(KEYS[0])], "ReturnItemCollectionMetrics": "SIZE"}, "ReturnItemCollectionMetrics"),
        ({"TransactItems": [check(KEYS[0], Attr("PK").eq("room"))]}, "value of PK"),
    ],
)
def test_what_cannot_be_promised_is_refused_by_name(client, watched, request_, message):
    client.scan(TableName=NAME)
    watched.sent.clear()
    with pytest.raises(NotImplementedError, match=message):
        client.transact_write_items(**request_)
    assert not watched.sent


@pytest.mark.parametrize(
    "bad",
    [{"Put": {"TableName": NAME, "Item": {"PK": "room"}}}, {"ConditionCheck": {"TableName": NAME, "Key": KEYS[0]}}],
)
def test_what_dynamodb_refuses_is_refused(client, table, bad):
    with pytest.raises(Exception):  # noqa: B017, PT011 - boto3's, or the engine's
        client.transact_write_items(TransactItems=[add(KEYS[0]), bad])
    assert numbers(table)["0000"] == 1


def test_throttled_transactions_are_tried_again(client, table, plain, watched):
    """Within the budget, as single changes. New items avoid the shard that refused."""
    writer = table._open("PutItem").items.sharding.routes.writer
    place = place_of(plain, "0000")
    watched.respond_once("TransactWriteItems", fail_with(cancelled([{"Code": "ThrottlingError"}, {"Code": "None"}])))
    client.transact_write_items(TransactItems=[add(KEYS[0]), add(KEYS[1])])
    assert numbers(table) == {"0000": 2, "0001": 2, "0002": 1}
    assert watched.sent["TransactWriteItems"] == 2
    assert writer._refusals.has(place, REAL_CLOCK.now_ms())


class TestReading:
    def test_what_moved_meanwhile_is_looked_for_again(self, client, plain, watched):
        watched.once_before("TransactGetItems", lambda: move(plain))
        assert client.transact_get_items(TransactItems=[get(KEYS[0])])["Responses"][0]["Item"]["n"] == 5

    def test_a_raise_meanwhile_hides_nothing(self, plain, watched):
        """What is created under it is seen, if another item of the same transaction is."""
        reader = ShardedTable(plain, shards=in_band(environ={}))

        def raise_and_create():
            raise_key(plain, "room", 8)
            writer = ShardedTable(plain, shards=in_band(environ={})).meta.client
            writer.transact_write_items(TransactItems=[put(key) for key in KEYS])

        watched.once_before("TransactGetItems", raise_and_create)
        found = reader.meta.client.transact_get_items(TransactItems=[get(key) for key in KEYS])["Responses"]
        assert [response["Item"]["n"] for response in found] == [7] * 4
        assert {item["PK"] for item in plain.scan()["Items"] if item["SK"] != "r#"} != {"room"}

    def test_more_places_than_a_transaction_reads_are_refused(self, plain):
        """By name: one after the other would be no transaction."""
        client = ShardedTable(plain, shards=fixed(60), hashed=at_random()).meta.client
        with pytest.raises(NotImplementedError, match="122 places"):
            client.transact_get_items(TransactItems=[get(KEYS[0]), get(KEYS[1])])


def test_two_sharded_tables_are_changed_in_one(table, dynamodb, create):
    other = create("other", "PK", "SK")
    sharded = ShardedTable(other, shards=fixed(3))
    sharded.put_item(Item={**KEYS[0], "n": 1})
    client = guard(dynamodb, table, sharded).meta.client
    client.transact_write_items(TransactItems=[add(KEYS[0]), put(KEYS[0], "other"), put(KEYS[1], "other")])
    assert (numbers(table)["0000"], numbers(sharded)) == (2, {"0000": 7, "0001": 7})
    assert other.scan()["Count"] == 2
    read = client.transact_get_items(TransactItems=[get(KEYS[0]), get(KEYS[0], "other")])["Responses"]
    assert [response["Item"]["n"] for response in read] == [2, 7]
