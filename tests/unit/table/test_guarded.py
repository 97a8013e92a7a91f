"""`table.meta.client`, a guarded client and a guarded resource: what they do to items goes through the shards."""

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError

from hotpartition.dynamodb.python_values import convert_values, dump, load
from hotpartition.table import ShardedTable, fixed, guard

from .conftest import updating

NAME = "readings"
KEYS = [{"PK": "room", "SK": f"{number:04}"} for number in range(5)]
ROOM = {
    "TableName": NAME,
    "KeyConditionExpression": "PK = :p",
    "ExpressionAttributeValues": {":p": "room"},
}


class Pythonic:
    """A client of typed values, called with Python's."""

    def __init__(self, client):
        self._client = client

    def __dir__(self):
        return dir(self._client)

    def __getattr__(self, name):
        found = getattr(self._client, name)
        if name not in self._client.meta.method_to_api_mapping:
            return found
        return lambda **request: convert_values(found(**convert_values(request, dump)), load)


@pytest.fixture
def table(plain) -> ShardedTable:
    table = ShardedTable(plain, shards=fixed(4))
    for key in KEYS:
        table.put_item(Item={**key, "n": 1})
    return table


@pytest.fixture(scope="module")
def boto3_client(dynamodb):
    """A client of one's own, with DynamoDB's values."""
    return boto3.client("dynamodb", config=dynamodb.meta.client.meta.config)


@pytest.fixture(params=["resource", "client"])
def client(request, table, boto3_client):
    """The table's own client, and a guarded one."""
    if request.param == "resource":
        return table.meta.client
    return Pythonic(guard(boto3_client, table))


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


@pytest.mark.parametrize("is_typed", [False, True])
def test_paginators_read_all_shards(table, boto3_client, twin, is_typed):
    """Pages, and what boto3 builds of them, in either form of values."""
    client = guard(boto3_client, table) if is_typed else table.meta.client
    paginator = client.get_paginator("query")
    room = {**ROOM, "ExpressionAttributeValues": {":p": {"S": "room"}}} if is_typed else ROOM
    pages = list(paginator.paginate(**room, PaginationConfig={"PageSize": 2}))
    expected = [{"S": key["SK"]} if is_typed else key["SK"] for key in KEYS]
    assert [item["SK"] for page in pages for item in page["Items"]] == expected
    assert len(paginator.paginate(**room, PaginationConfig={"MaxItems": 3}).build_full_result()["Items"]) == 3
    assert paginator.paginate(**{**room, "TableName": "twin"}).build_full_result()["Count"] == 0
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


def test_a_guarded_client_keeps_its_own_values_and_errors(table, boto3_client):
    """Typed ones, bytes among them; its exceptions; and what is inside it."""
    typed = guard(boto3_client, table)
    item = {"PK": {"S": "room"}, "SK": {"S": "9"}, "b": {"B": b"\x00"}, "n": {"N": "1.5"}, "l": {"L": [{"NULL": True}]}}
    typed.put_item(TableName=NAME, Item=item)
    key = {"PK": item["PK"], "SK": item["SK"]}
    assert typed.get_item(TableName=NAME, Key=key)["Item"] == item
    with pytest.raises(typed.exceptions.ConditionalCheckFailedException) as caught:
        typed.put_item(
            TableName=NAME,
            Item=item,
            ConditionExpression="attribute_not_exists(PK)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert caught.value.response["Item"] == item
    with pytest.raises((ClientError, ParamValidationError)):
        typed.put_item(TableName=NAME, Item={**item, "n": {"N": "no number"}})
    assert typed._endpoint is boto3_client._endpoint
    assert typed._make_api_call("GetItem", {"TableName": NAME, "Key": key})["Item"] == item
    assert repr(typed).endswith("tables=['readings'])")


def test_batches_have_the_metadata_of_a_response(client):
    """Code that is not the project's looks at it."""
    for response in (
        client.batch_get_item(RequestItems={NAME: {"Keys": KEYS[:1]}}),
        client.batch_write_item(RequestItems={NAME: [{"DeleteRequest": {"Key": KEYS[0]}}]}),
    ):
        assert response["ResponseMetadata"]["HTTPStatusCode"] == 200


@pytest.mark.parametrize("method", ["search_vectors", "start_bulk_put_items"])
def test_a_call_about_items_that_the_library_does_not_know_is_refused(client, watched, method):
    """By botocore's own model: next year's too. About other tables it is passed on."""
    client.get_item(TableName=NAME, Key=KEYS[0])
    watched.sent.clear()
    with pytest.raises(NotImplementedError, match=f"{method}.*readings"):
        getattr(client, method)(TableName=NAME)
    assert not watched.sent
    with pytest.raises((ClientError, ParamValidationError)):
        getattr(client, method)(TableName="twin")


def test_a_guarded_resource_leads_to_the_shards(table, plain, dynamodb, twin):
    """Its batches, its client and its tables; the others are boto3's."""
    guarded = guard(dynamodb, table)
    assert len(guarded.batch_get_item(RequestItems={NAME: {"Keys": KEYS}})["Responses"][NAME]) == 5
    guarded.batch_write_item(RequestItems={NAME: [{"DeleteRequest": {"Key": KEYS[0]}}]})
    assert "Item" not in guarded.meta.client.get_item(TableName=NAME, Key=KEYS[0])
    assert guarded.Table(NAME) is table
    assert guarded.Table("twin").name == "twin"
    assert [each.name for each in guarded.tables.all()] == [NAME, "twin"]
    for other in (dynamodb.meta.client, plain, "readings"):
        with pytest.raises(TypeError, match=r"boto3\.resource"):
            guard(other, table)
