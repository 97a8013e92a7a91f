"""`table.meta.client` and a guarded resource: what they do to items of the table goes through its shards."""

from decimal import Decimal

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError, ParamValidationError

from hotpartition.table import ShardedTable, fixed, guard

from .conftest import updating

NAME = "readings"
KEYS = [{"PK": "room", "SK": f"{number:04}"} for number in range(5)]
ROOM = {"TableName": NAME, "KeyConditionExpression": Key("PK").eq("room")}


@pytest.fixture(params=["resource", "client"])
def table(plain, request) -> ShardedTable:
    if request.param == "client":
        table = ShardedTable.of_client(boto3.client("dynamodb"), NAME, shards=fixed(4))
    else:
        table = ShardedTable(plain, shards=fixed(4))
    for key in KEYS:
        table.put_item(Item={**key, "n": 1})
    return table


@pytest.fixture
def client(table):
    return table.meta.client


def test_batch_get_item_finds_what_is_stored(client, twin):
    """Of this table and of others, in one call."""
    twin.put_item(Item={"PK": "other", "SK": "1"})
    asked = {
        NAME: {"Keys": [*KEYS, {"PK": "room", "SK": "none"}], "ProjectionExpression": "SK"},
        "twin": {"Keys": [{"PK": "other", "SK": "1"}]},
    }
    response = client.batch_get_item(RequestItems=asked, ReturnConsumedCapacity="TOTAL")
    assert sorted(item["SK"] for item in response["Responses"][NAME]) == [key["SK"] for key in KEYS]
    assert all(item.keys() == {"SK"} for item in response["Responses"][NAME])
    assert response["Responses"]["twin"] == [{"PK": "other", "SK": "1"}]
    assert response["UnprocessedKeys"] == {}
    assert sorted(part["TableName"] for part in response["ConsumedCapacity"]) == [NAME, "twin"]


@pytest.mark.parametrize(
    "keys", [[], KEYS[:1] * 2, [{"PK": "room"}], [{"PK": "room", "SK": str(number)} for number in range(101)]]
)
def test_what_dynamodb_refuses_of_a_batch_is_refused(client, twin, keys):
    with pytest.raises((ClientError, ParamValidationError)) as expected:
        client.batch_get_item(RequestItems={"twin": {"Keys": keys}})
    with pytest.raises(type(expected.value)) as found:
        client.batch_get_item(RequestItems={NAME: {"Keys": keys}})
    assert str(found.value).replace(NAME, "twin") == str(expected.value)


def test_single_calls_find_and_change_items(client, plain):
    """By the table's name and by its ARN."""
    for name in (NAME, plain.table_arn):
        assert client.get_item(TableName=name, Key=KEYS[0])["Item"]["n"] == 1
    client.update_item(TableName=NAME, Key=KEYS[0], **updating("SET n = :n", n=2))
    client.put_item(TableName=NAME, Item={**KEYS[1], "n": 3})
    client.delete_item(TableName=NAME, Key=KEYS[2])
    assert [item["n"] for item in client.query(**ROOM)["Items"]] == [2, 3, 1, 1]
    assert len(client.scan(TableName=NAME)["Items"]) == len(plain.scan()["Items"]) == 4


def test_paginators_read_all_shards(client, twin):
    """Pages, and what boto3 builds of them."""
    paginator = client.get_paginator("query")
    pages = list(paginator.paginate(**ROOM, PaginationConfig={"PageSize": 2}))
    assert [item["SK"] for page in pages for item in page["Items"]] == [key["SK"] for key in KEYS]
    assert len(paginator.paginate(**ROOM, PaginationConfig={"MaxItems": 3}).build_full_result()["Items"]) == 3
    assert paginator.paginate(**{**ROOM, "TableName": "twin"}).build_full_result()["Count"] == 0
    assert len(list(client.get_paginator("scan").paginate(TableName=NAME).search("Items[].SK"))) == 5
    assert sorted(client.get_paginator("list_tables").paginate().build_full_result()["TableNames"]) == [NAME, "twin"]


def test_batch_write_item_leaves_one_copy_of_each_item(client, plain, twin):
    puts = [{"PutRequest": {"Item": {**key, "n": 7}}} for key in KEYS[:2]]
    writes = {NAME: [*puts, {"DeleteRequest": {"Key": KEYS[2]}}], "twin": puts}
    response = client.batch_write_item(RequestItems=writes, ReturnConsumedCapacity="TOTAL")
    assert response["UnprocessedItems"] == {}
    assert sorted(item["n"] for item in plain.scan()["Items"]) == [1, 1, 7, 7]
    assert twin.scan()["Count"] == 2
    with pytest.raises(NotImplementedError, match="ReturnItemCollectionMetrics"):
        client.batch_write_item(RequestItems=writes, ReturnItemCollectionMetrics="SIZE")


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("execute_statement", {"Statement": 'SELECT * FROM "readings"."by-owner"'}),
        ("batch_execute_statement", {"Statements": [{"Statement": "DELETE FROM READINGS WHERE PK = 'a'"}]}),
        ("execute_transaction", {"TransactStatements": [{"Statement": 'SELECT * FROM "readings"'}]}),
    ],
)
def test_statements_about_the_table_are_refused(client, watched, method, request_):
    client.get_item(TableName=NAME, Key=KEYS[0])
    watched.sent.clear()
    with pytest.raises(NotImplementedError, match="readings: a PartiQL"):
        getattr(client, method)(**request_)
    assert not watched.sent


def test_everything_else_passes_through(client, twin):
    """Other tables, statements about them, and what is not about items."""
    twin.put_item(Item={"PK": "other", "SK": "1"})
    assert client.get_item(TableName="twin", Key={"PK": "other", "SK": "1"})["Item"]["SK"] == "1"
    assert client.describe_table(TableName=NAME)["Table"]["TableName"] == NAME
    assert client.exceptions.ConditionalCheckFailedException is not None
    assert client.meta.region_name == "eu-central-1"
    assert {"batch_get_item", "describe_table"} <= set(dir(client))
    assert len(client.execute_statement(Statement='SELECT * FROM "twin"')["Items"]) == 1


def test_a_clients_own_values_stay_typed_and_its_other_methods_are_there(plain):
    """Whoever shares the client sees DynamoDB's form, as before."""
    client = boto3.client("dynamodb")
    table = ShardedTable.of_client(client, NAME, shards=fixed(4))
    table.put_item(Item={**KEYS[0], "n": Decimal(1)})
    with table.batch_writer() as batch:
        batch.put_item(Item={**KEYS[1], "n": Decimal(7)})
    page = table.query(KeyConditionExpression=Key("PK").eq("room"), FilterExpression=Attr("n").gt(5), Limit=5)
    assert page["Items"] == [{**KEYS[1], "n": 7}]
    assert [item["PK"].keys() for item in client.scan(TableName=NAME)["Items"]] == [{"S"}] * 2
    assert (table.name, table.table_status) == (NAME, "ACTIVE")
    with pytest.raises(AttributeError):
        _ = table.nothing
    with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
        table.put_item(Item=KEYS[2], ConditionExpression=Attr("PK").exists())


def test_a_guarded_resource_leads_to_the_shards(table, dynamodb, twin):
    """Its batches, its client and its tables; the others are boto3's."""
    guarded = guard(dynamodb, table)
    assert len(guarded.batch_get_item(RequestItems={NAME: {"Keys": KEYS}})["Responses"][NAME]) == 5
    guarded.batch_write_item(RequestItems={NAME: [{"DeleteRequest": {"Key": KEYS[0]}}]})
    assert "Item" not in guarded.meta.client.get_item(TableName=NAME, Key=KEYS[0])
    assert guarded.Table(NAME) is table
    assert guarded.Table("twin").name == "twin"
    assert [each.name for each in guarded.tables.all()] == [NAME, "twin"]
    with pytest.raises(TypeError, match=r"boto3\.resource"):
        guard(dynamodb.meta.client, table)
