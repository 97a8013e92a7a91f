"""What a collection costs that was never raised: boto3's own requests, and the journal where it must be asked."""

import pytest
from boto3.dynamodb.conditions import Attr, Key

from .conftest import KEY_RANGE, updating
from .test_adaptive import EIGHT, IN_COLLECTION, Stage

KEY = {"PK": "room", "SK": "0001"}
ROOM = {"KeyConditionExpression": Key("PK").eq("room")}


@pytest.fixture
def stage(plain) -> Stage:
    """A table with an item at its base key; its routing items would lie in the collections."""
    plain.put_item(Item={**KEY, "n": 1})
    stage = Stage(plain, IN_COLLECTION)
    stage.table.get_item(Key={"PK": "other", "SK": "1"})  # looks at the table's keys
    return stage


@pytest.fixture
def sent(plain, stage):
    """All requests from here on: operation and body."""
    requests = []

    def note(params, model, **_):
        body = {name: value for name, value in params.items() if name not in {"TableName", "ReturnConsumedCapacity"}}
        requests.append((model.name, body))

    events = plain.meta.client.meta.events
    events.register("provide-client-params.dynamodb.*", note)
    yield requests
    events.unregister("provide-client-params.dynamodb.*", note)


def journal_only(request) -> bool:
    """Say whether a request reads the routing item and nothing else."""
    operation, body = request
    if operation == "GetItem":
        return body["Key"] == {"PK": "room", "SK": "~route"}
    return operation == "BatchGetItem" and [part["Keys"] for part in body["RequestItems"].values()] == [
        [{"PK": "room", "SK": "~route"}]
    ]


CHANGES = {
    "put": ("put_item", {"Item": {**KEY, "n": 2}}),
    "conditional put": ("put_item", {"Item": {**KEY, "n": 2}, "ConditionExpression": Attr("n").lt(9)}),
    "delete": ("delete_item", {"Key": KEY, "ReturnValues": "ALL_OLD"}),
}


@pytest.mark.parametrize(("method", "request_"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_boto3s_after_a_look_at_the_journal(stage, plain, sent, method, request_):
    """Not a byte more is written, and the item is not read."""
    getattr(stage.table, method)(**request_)
    look, change = sent
    assert journal_only(look)
    sent.clear()
    getattr(plain, method)(**request_)
    assert change == sent[0]


def test_an_update_counts_itself_besides(stage, sent):
    """It costs what boto3's does, for some bytes more."""
    stage.table.update_item(Key=KEY, **updating("SET n = :n", n=2))
    look, (operation, body) = sent
    assert journal_only(look)
    assert operation == "UpdateItem"
    assert "ConditionExpression" not in body
    assert body["UpdateExpression"] == "SET n = :n ADD #hpn0 :hpn0"


def test_a_point_read_reads_the_journal_in_the_same_request(stage, sent):
    """One item more."""
    stage.table.get_item(Key=KEY)
    ((operation, body),) = sent
    assert operation == "BatchGetItem"
    assert body["RequestItems"]["readings"]["Keys"] == [KEY, {"PK": "room", "SK": "~route"}]


@pytest.mark.parametrize("limit", [{}, {"Limit": 1}, {"Limit": 20}])
def test_the_newest_page_is_one_query(stage, sent, limit):
    """The routing item would be on its way."""
    assert stage.table.query(**ROOM, ScanIndexForward=False, **limit)["Count"] == 1
    ((operation, body),) = sent
    assert operation == "Query"
    assert body.get("Limit") == limit.get("Limit")


@pytest.mark.parametrize(
    "query",
    [
        ROOM,
        {**ROOM, "Limit": 5},
        {**ROOM, "FilterExpression": Attr("n").gt(0), "Limit": 5},
        {"KeyConditionExpression": Key("PK").eq("room") & Key("SK").lt("5"), "ScanIndexForward": False},
    ],
)
def test_other_pages_are_one_query_beside_a_look_at_the_journal(stage, sent, query):
    """Both at the same time."""
    assert stage.table.query(**query)["Count"] == 1
    assert sorted(operation for operation, _ in sent) == ["GetItem", "Query"]
    ((_, body),) = [request for request in sent if request[0] == "Query"]
    assert body.get("Limit") == query.get("Limit")


def test_append_only_puts_and_batches_are_boto3s(plain, stage, sent):
    table = Stage(plain, IN_COLLECTION, append_only=True).table
    item = {**KEY, "SK": "0002", "n": 2}
    table.put_item(Item=item)
    with table.batch_writer() as batch:
        batch.put_item(Item=item)
    assert [(operation, body) for operation, body in sent if operation != "DescribeTable"] == [
        ("PutItem", {"Item": item}),
        ("BatchWriteItem", {"RequestItems": {"readings": [{"PutRequest": {"Item": item}}]}}),
    ]


def test_a_put_that_its_base_key_refuses_goes_where_the_raise_says(stage, watched):
    """It is located anew, waits, and takes the route again."""
    watched.refuses = lambda operation, body: KEY_RANGE if operation == "PutItem" else None
    stage.clock.on_sleep = lambda: (setattr(watched, "refuses", lambda operation, body: None), stage.raise_all())
    stage.table.put_item(Item={**KEY, "SK": "0007"})
    assert stage.places()["0007"].startswith("room#_")
    assert EIGHT in stage.registry.get("room").generations
