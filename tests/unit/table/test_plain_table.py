"""A table without a sort key is used as it is, so that an application may wrap all its tables alike."""

import pytest
from boto3.dynamodb.conditions import Attr, Key

from .conftest import put_all, updating


@pytest.fixture
def plain(create):
    return create("devices", "id", indexes={"by-site": ("site", "id")})


def test_every_call_is_passed_on(table, plain):
    """Nothing is added to an item or its key."""
    table.put_item(Item={"id": "dev-1", "site": "a"}, ConditionExpression=Attr("id").not_exists())
    table.update_item(Key={"id": "dev-1"}, **updating("SET n = :n", n=1))
    with table.batch_writer() as batch:
        batch.put_item(Item={"id": "dev-2", "site": "a"})
    expected = [{"id": "dev-1", "site": "a", "n": 1}, {"id": "dev-2", "site": "a"}]
    assert sorted(plain.scan()["Items"], key=lambda item: item["id"]) == expected
    assert table.get_item(Key={"id": "dev-1"}, Hashed="x")["Item"] == expected[0]
    assert table.query(KeyConditionExpression=Key("id").eq("dev-1"))["Items"] == expected[:1]
    assert table.query(IndexName="by-site", KeyConditionExpression=Key("site").eq("a"))["Items"] == expected
    assert [page["Count"] for page in table.scan_pages(FilterExpression=Attr("id").eq("dev-2"))] == [1]
    client = table.meta.client
    client.transact_write_items(TransactItems=[{"Delete": {"TableName": "devices", "Key": {"id": "dev-1"}}}])
    found = client.batch_get_item(RequestItems={"devices": {"Keys": [{"id": "dev-1"}, {"id": "dev-2"}]}})
    assert found["Responses"]["devices"] == expected[1:]
    table.delete_item(Key={"id": "dev-2"})
    assert plain.scan()["Count"] == 0


@pytest.mark.parametrize("projection", [{}, {"ProjectionExpression": "n"}, {"ProjectionExpression": "n, id"}])
def test_items_are_read_in_the_order_of_their_keys(table, watched, projection):
    """As of a sharded one; what DynamoDB leaves unprocessed is asked for again."""
    put_all(table, ({"id": str(number), "n": number} for number in range(130)))
    nothing = {"Responses": {"devices": []}}
    watched.respond_once("BatchGetItem", lambda body: {**nothing, "UnprocessedKeys": body["RequestItems"]})
    found = table.get_items([{"id": "129"}, {"id": "none"}, {"id": "3"}], **projection)
    names = {"id", "n"} if not projection else set(projection["ProjectionExpression"].split(", "))
    assert found == [
        {name: value for name, value in {"id": "129", "n": 129}.items() if name in names},
        None,
        {name: value for name, value in {"id": "3", "n": 3}.items() if name in names},
    ]
    assert len(table.get_items([{"id": str(number)} for number in range(130)])) == 130
