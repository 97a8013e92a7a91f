"""`ShardedTable.of_client`: over a boto3 client instead of a `Table`."""

from decimal import Decimal

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key

from hotpartition.table import ShardedTable, fixed

from .conftest import updating


@pytest.fixture
def client(plain):
    return boto3.client("dynamodb")


def test_values_are_pythons_and_the_clients_own_stay_typed(client):
    """Whoever shares the client sees DynamoDB's form, as before."""
    table = ShardedTable.of_client(client, "readings", shards=fixed(4))
    for number in range(10):
        table.put_item(Item={"PK": "room", "SK": f"{number:04}", "n": Decimal(number)})
    table.update_item(Key={"PK": "room", "SK": "0003"}, **updating("SET n = :n", n=33))
    with table.batch_writer() as batch:
        batch.delete_item(Key={"PK": "room", "SK": "0004"})
    page = table.query(KeyConditionExpression=Key("PK").eq("room"), FilterExpression=Attr("n").gt(5), Limit=5)
    assert [item["n"] for item in page["Items"]] == [33]
    assert table.get_item(Key={"PK": "room", "SK": "0003"})["Item"] == {"PK": "room", "SK": "0003", "n": 33}
    assert len(table.scan()["Items"]) == 9
    assert all(set(item["PK"]) == {"S"} for item in client.scan(TableName="readings")["Items"])


def test_what_is_not_about_items_is_the_clients(client):
    table = ShardedTable.of_client(client, "readings", shards=fixed(4))
    assert table.name == "readings"
    assert table.table_status == "ACTIVE"
    assert table.meta.client.exceptions.ConditionalCheckFailedException is not None
    with pytest.raises(AttributeError):
        _ = table.nothing
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
        table.put_item(Item={"PK": "room", "SK": "1"}, ConditionExpression=Attr("PK").exists())
