"""`table.meta.client`, a guarded client and a guarded resource, on moto: what they do to items goes through the shards.

The equivalence machine compares the table's own client; here is the rest, and what only moto knows: DynamoDB's words
for wrong batches, what an index projects, and statements.
"""

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError
from moto import mock_aws
from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.exceptions import PutError
from pynamodb.models import Model
from pynamodb.transactions import TransactWrite

from hotpartition.table import ShardedIndex, ShardedTable, by_attribute, fixed, guard
from support.tables import define_table

NAME = "readings"
KEYS = [{"PK": "room", "SK": f"{number:04}"} for number in range(5)]
STATEMENT = "readings: a PartiQL"
UNKNOWN = ("search_vectors", "start_bulk_put_items")
ROOM = {"KeyConditionExpression": "PK = :p", "ExpressionAttributeValues": {":p": {"S": "room"}}}


@pytest.fixture(scope="module")
def dynamodb(dynamodb):
    """A resource on moto, with the environment of the simulator's."""
    with mock_aws():
        yield boto3.resource("dynamodb", config=Config(retries={"total_max_attempts": 1}))


@pytest.fixture
def table(plain) -> ShardedTable:
    table = ShardedTable(plain, shards=fixed(4))
    for key in KEYS:
        table.put_item(Item={**key, "n": 1})
    return table


@pytest.fixture
def typed(dynamodb, table):
    """A guarded client, with DynamoDB's values."""
    return guard(boto3.client("dynamodb", config=dynamodb.meta.client.meta.config), table)


@pytest.fixture(params=["the table's", "guarded"])
def client(request, table, typed):
    """Either, for calls without values."""
    return typed if request.param == "guarded" else table.meta.client


def test_batches_read_and_write_what_is_stored(table, plain, twin):
    """Of this table and of others, in one call; of each item one copy is left."""
    client, puts = table.meta.client, [{"PutRequest": {"Item": {**key, "n": 7}}} for key in KEYS[:2]]
    writes = {NAME: [*puts, {"DeleteRequest": {"Key": KEYS[2]}}], "twin": puts[:1]}
    written = client.batch_write_item(RequestItems=writes, ReturnConsumedCapacity="TOTAL")
    assert written["UnprocessedItems"] == {}
    assert sorted(item["n"] for item in plain.scan()["Items"]) == [1, 1, 7, 7]
    asked = {NAME: {"Keys": KEYS, "ProjectionExpression": "SK"}, "twin": {"Keys": KEYS[:2]}}
    read = client.batch_get_item(RequestItems=asked, ReturnConsumedCapacity="TOTAL")
    expected = [{"SK": number} for number in ("0000", "0001", "0003", "0004")]
    assert sorted(read["Responses"][NAME], key=lambda item: item["SK"]) == expected
    assert (read["Responses"]["twin"], read["UnprocessedKeys"]) == ([{**KEYS[0], "n": 7}], {})
    for response in (read, written):
        assert sorted(part["TableName"] for part in response["ConsumedCapacity"]) == [NAME, "twin"]
    with pytest.raises(NotImplementedError, match="ReturnItemCollectionMetrics"):
        client.batch_write_item(RequestItems=writes, ReturnItemCollectionMetrics="SIZE")


def test_batches_of_one_table_have_the_metadata_of_a_response(table):
    """Code that is not the project's looks at it."""
    client = table.meta.client
    read = client.batch_get_item(RequestItems={NAME: {"Keys": KEYS[:1]}})
    written = client.batch_write_item(RequestItems={NAME: [{"DeleteRequest": {"Key": KEYS[0]}}]})
    assert [each["ResponseMetadata"]["HTTPStatusCode"] for each in (read, written)] == [200, 200]


@pytest.mark.parametrize(
    "keys", [[], KEYS[:1] * 2, [{"PK": "room"}], [{"PK": "room", "SK": str(number)} for number in range(101)]]
)
def test_what_dynamodb_refuses_of_a_batch_is_refused(table, twin, keys):
    with pytest.raises((ClientError, ParamValidationError)) as expected:
        table.meta.client.batch_get_item(RequestItems={"twin": {"Keys": keys}})
    with pytest.raises(type(expected.value)) as found:
        table.meta.client.batch_get_item(RequestItems={NAME: {"Keys": keys}})
    assert str(found.value).replace(NAME, "twin") == str(expected.value)


def test_a_transaction_reads_items_where_they_are(table, twin):
    """Of several tables, in the order of its actions, with what each consumed. A table is known by its ARN as well."""
    twin.put_item(Item=KEYS[0])
    gets = [(NAME, KEYS[1], {"ProjectionExpression": "n"}), ("twin", KEYS[0], {}), (NAME, {"PK": "x", "SK": "y"}, {})]
    actions = [{"Get": {"TableName": name, "Key": key, **more}} for name, key, more in gets]
    response = table.meta.client.transact_get_items(TransactItems=actions, ReturnConsumedCapacity="TOTAL")
    assert response["Responses"] == [{"Item": {"n": 1}}, {"Item": KEYS[0]}, {}]
    assert {part["TableName"] for part in response["ConsumedCapacity"]} == {NAME, "twin"}
    assert table.meta.client.get_item(TableName=table.table_arn, Key=KEYS[1])["Item"]["n"] == 1


def test_paginators_read_all_shards(typed, twin):
    """Pages, and what boto3 builds of them."""
    paginator = typed.get_paginator("query")
    first = paginator.paginate(
        TableName=NAME, **ROOM, PaginationConfig={"PageSize": 2, "MaxItems": 3}
    ).build_full_result()
    assert [item["SK"]["S"] for item in first["Items"]] == [key["SK"] for key in KEYS[:3]]
    assert paginator.paginate(TableName="twin", **ROOM).build_full_result()["Count"] == 0
    assert len(list(typed.get_paginator("scan").paginate(TableName=NAME).search("Items[].SK"))) == 5
    assert sorted(typed.get_paginator("list_tables").paginate().build_full_result()["TableNames"]) == [NAME, "twin"]


@pytest.mark.parametrize(
    ("method", "request_", "words"),
    [
        ("execute_statement", {"Statement": 'SELECT * FROM "readings"."by-owner"'}, STATEMENT),
        ("batch_execute_statement", {"Statements": [{"Statement": "DELETE FROM READINGS WHERE PK = 'a'"}]}, STATEMENT),
        ("execute_transaction", {"TransactStatements": [{"Statement": 'SELECT * FROM "readings"'}]}, STATEMENT),
        *((method, {"TableName": NAME}, f"{method}.*readings") for method in UNKNOWN),
    ],
)
def test_what_the_library_does_not_know_about_items_is_refused(client, method, request_, words):
    """Statements, and calls that botocore's own model says are about items: next year's too."""
    with pytest.raises(NotImplementedError, match=words):
        getattr(client, method)(**request_)


def test_everything_else_passes_through(client, twin):
    """Other tables, whatever the call, statements about them, and what is not about items."""
    for method in UNKNOWN:
        with pytest.raises((ClientError, ParamValidationError)):
            getattr(client, method)(TableName="twin")
    twin.put_item(Item={"PK": "other", "SK": "1"})
    assert client.scan(TableName="twin")["Count"] == 1
    assert client.describe_table(TableName=NAME)["Table"]["TableName"] == NAME
    assert client.exceptions.ConditionalCheckFailedException is not None
    assert client.meta.region_name == "eu-central-1"
    assert {"batch_get_item", "describe_table"} <= set(dir(client))
    assert len(client.execute_statement(Statement='SELECT * FROM "twin"')["Items"]) == 1


def test_a_guarded_client_keeps_its_own_values_and_errors(typed):
    """Typed ones, bytes among them; its exceptions; and what is inside it."""
    item = {"PK": {"S": "room"}, "SK": {"S": "9"}, "b": {"B": b"\x00"}, "n": {"N": "1.5"}, "l": {"L": [{"NULL": True}]}}
    typed.put_item(TableName=NAME, Item=item)
    key = {"PK": item["PK"], "SK": item["SK"]}
    typed.put_item(TableName=NAME, Item={**item, "b": {"B": "\0"}})  # botocore takes text, too
    assert typed.get_item(TableName=NAME, Key=key)["Item"] == item
    for number in ("1" + "0" * 40, "0E-200"):
        with pytest.raises(NotImplementedError, match="not understood"):  # and nothing is sent
            typed.put_item(TableName=NAME, Item={**item, "n": {"N": number}})
    assert "Item" not in typed._subject.get_item(TableName=NAME, Key=key)
    is_new = {"ConditionExpression": "attribute_not_exists(PK)", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    with pytest.raises(typed.exceptions.ConditionalCheckFailedException) as caught:
        typed.put_item(TableName=NAME, Item=item, **is_new)
    assert caught.value.response["Item"] == item
    with pytest.raises((ClientError, ParamValidationError)):
        typed.put_item(TableName=NAME, Item={**item, "n": {"N": "no number"}})
    assert typed._endpoint is typed._subject._endpoint
    assert typed._make_api_call("GetItem", {"TableName": NAME, "Key": key})["Item"] == item
    assert repr(typed).endswith("tables=['readings'])")


def test_the_value_that_chooses_a_shard_is_dynamodbs_own_too(plain):
    table = ShardedTable(plain, shards=fixed(4), hashed=by_attribute("device"))
    client, key = guard(boto3.client("dynamodb"), table), {"PK": {"S": "x"}, "SK": {"S": "1"}}
    client.update_item(TableName=NAME, Key=key, Hashed={"N": "7"})
    assert table.get_item(Key={"PK": "x", "SK": "1"}, Hashed=7)["Item"] == {"PK": "x", "SK": "1"}


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


class Reading(Model):
    """A model of PynamoDB's."""

    class Meta:
        """Of that model."""

        table_name = "readings"
        region = "eu-central-1"

    plant = UnicodeAttribute(hash_key=True, attr_name="PK")
    at = UnicodeAttribute(range_key=True, attr_name="SK")
    celsius = NumberAttribute(default=20)


def test_pynamodb_works_by_one_line(plain):
    """Puts, pages, counts, conditions, batches and transactions of it go through the shards."""
    table = ShardedTable(plain, shards=fixed(4))
    connection = Reading._get_connection().connection
    connection._client = guard(connection.client, table)
    for hour in range(12):
        Reading("plant-1", f"{hour:02}").save(Reading.plant.does_not_exist())
    with pytest.raises(PutError, match="conditional"):
        Reading("plant-1", "00").save(Reading.plant.does_not_exist())
    Reading.get("plant-1", "03").update(actions=[Reading.celsius.set(25)])
    assert [each.at for each in Reading.query("plant-1", filter_condition=Reading.celsius > 20)] == ["03"]
    newest = Reading.query("plant-1", scan_index_forward=False, limit=5, page_size=2)
    assert [each.at for each in newest] == ["11", "10", "09", "08", "07"]
    assert Reading.count("plant-1") == 12
    with Reading.batch_write() as batch:
        batch.delete(Reading("plant-1", "00"))
        batch.save(Reading("plant-1", "12"))
    with TransactWrite(connection=connection) as transaction:
        transaction.save(Reading("plant-1", "13"))
        transaction.delete(Reading("plant-1", "01"))
    assert [each.at for each in Reading.query("plant-1")] == [f"{hour:02}" for hour in range(2, 14)]
    assert len([*Reading.batch_get([("plant-1", "03"), ("plant-1", "04")])]) == 2
    assert len([item for item in plain.scan()["Items"] if item["PK"].startswith("plant-1#_")]) > 6


def test_an_index_that_holds_keys_only_shows_the_value(dynamodb):
    """As a plain one does, whose key it is. It is never read consistently, as DynamoDB says."""
    keys = define_table("PK", "SK", indexes={"by-status": ("status_shard", "at")})
    keys["GlobalSecondaryIndexes"][0]["Projection"] = {"ProjectionType": "KEYS_ONLY"}
    plain = dynamodb.create_table(TableName="keys-only", **keys)
    by_status = ShardedIndex("by-status", hash="status", shards=fixed(4))
    table = ShardedTable(plain, shards=fixed(0), indexes=[by_status])
    item = {"PK": "room", "SK": "1", "status": "OPEN", "at": "1"}
    table.put_item(Item={**item, "n": 1})
    of_open = {"IndexName": "by-status", "KeyConditionExpression": Key("status").eq("OPEN")}
    assert table.query(**of_open)["Items"] == table.scan(IndexName="by-status")["Items"] == [item]
    assert table.scan(IndexName="by-status", ProjectionExpression="SK")["Items"] == [{"SK": "1"}]
    named = {"ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "status"}}
    assert table.scan(IndexName="by-status", **named)["Items"] == [{"status": "OPEN"}]
    with pytest.raises(ClientError, match="ValidationException"):
        table.query(**of_open, ConsistentRead=True)
    plain.delete()


def test_a_table_is_known_anew_after_each_call(plain):
    """As boto3's `Table` is."""
    table = ShardedTable(plain, shards=fixed(4))
    assert table.item_count == 0
    table.put_item(Item=KEYS[0])
    table.scan()
    assert table.item_count == 1
