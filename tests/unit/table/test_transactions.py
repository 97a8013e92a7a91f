"""Transactions over sharded tables: what they read, their reasons and refusals. What they write: `test_changing.py`."""

import pytest

from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, by_attribute, fixed, guard, in_band

from .conftest import put_all, raise_key, updating

NAME = "readings"
KEYS = [{"PK": "room", "SK": f"{number:04}"} for number in range(4)]


def put(key, table=NAME, **options):
    return {"Put": {"TableName": table, "Item": {**key, "n": 7}, **options}}


def add(key):
    return {"Update": {"TableName": NAME, "Key": key, **updating("ADD n :one", one=1)}}


def get(key, table=NAME):
    return {"Get": {"TableName": table, "Key": key}}


@pytest.fixture
def table(plain) -> ShardedTable:
    table = ShardedTable(plain, shards=fixed(4))
    put_all(table, ({**key, "n": 1} for key in KEYS[:3]))
    return table


def numbers(table):
    return {item["SK"]: int(item["n"]) for item in table.scan()["Items"]}


def test_nothing_is_written_and_the_reasons_are_in_the_owners_words(table):
    client = table.meta.client
    is_new = {"ConditionExpression": "attribute_not_exists(PK)", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    with pytest.raises(client.exceptions.TransactionCanceledException) as caught:
        client.transact_write_items(TransactItems=[add(KEYS[0]), put(KEYS[1], **is_new)])
    reasons = caught.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert reasons[1]["Item"] == {"PK": {"S": "room"}, "SK": {"S": "0001"}, "n": {"N": "1"}}
    assert numbers(table) == {"0000": 1, "0001": 1, "0002": 1}


def test_an_action_twice_on_one_item_is_refused(plain, twin):
    """In DynamoDB's words, also where the two would go to different shards."""
    client = ShardedTable(plain, shards=fixed(16), hashed=by_attribute("device")).meta.client
    assert len({choose_shards(device, 16, choices=1) for device in ("a", "b")}) == 2
    errors = []
    for name in (NAME, "twin"):
        actions = [put({**KEYS[0], "device": device}, name) for device in ("a", "b")]
        with pytest.raises(client.exceptions.ClientError) as caught:
            client.transact_write_items(TransactItems=actions)
        errors.append(caught.value.response["Error"])
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    "bad",
    [{"Put": {"TableName": NAME, "Item": {"PK": "room"}}}, {"ConditionCheck": {"TableName": NAME, "Key": KEYS[0]}}],
)
def test_what_dynamodb_refuses_is_refused(table, bad):
    with pytest.raises(Exception):  # noqa: B017, PT011 - boto3's, or the engine's
        table.meta.client.transact_write_items(TransactItems=[add(KEYS[0]), bad])
    assert numbers(table)["0000"] == 1


def test_what_moves_before_it_is_read_is_looked_for_again(table, plain, watched):
    def move():
        stored = next(item for item in plain.scan()["Items"] if item["SK"] == "0000")
        plain.delete_item(Key={"PK": stored["PK"], "SK": "0000"})
        plain.put_item(Item={**KEYS[0], "n": 5})

    watched.once_before("TransactGetItems", move)
    assert table.meta.client.transact_get_items(TransactItems=[get(KEYS[0])])["Responses"][0]["Item"]["n"] == 5


def test_a_raise_while_it_reads_hides_nothing(plain, watched):
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


def test_two_sharded_tables_are_changed_and_read_in_one(table, dynamodb, create):
    other = create("other", "PK", "SK")
    sharded = ShardedTable(other, shards=fixed(3))
    sharded.put_item(Item={**KEYS[0], "n": 1})
    client = guard(dynamodb, table, sharded).meta.client
    client.transact_write_items(TransactItems=[add(KEYS[0]), put(KEYS[0], "other"), put(KEYS[1], "other")])
    assert (numbers(table)["0000"], numbers(sharded)) == (2, {"0000": 7, "0001": 7})
    assert other.scan()["Count"] == 2
    read = client.transact_get_items(TransactItems=[get(KEYS[0]), get(KEYS[0], "other")])["Responses"]
    assert [response["Item"]["n"] for response in read] == [2, 7]
