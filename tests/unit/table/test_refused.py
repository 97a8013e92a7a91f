"""What cannot be honoured is refused by name."""

from __future__ import annotations

import pytest
from boto3.dynamodb.conditions import Attr

from hotpartition.table import ShardedTable, fixed


@pytest.fixture
def table(plain) -> ShardedTable:
    return ShardedTable(plain, shards=fixed(4))


@pytest.mark.parametrize(
    ("method", "request_", "instead"),
    [
        ("query", {"KeyConditions": {}}, "KeyConditionExpression"),
        ("query", {"QueryFilter": {}}, "FilterExpression"),
        ("scan", {"ScanFilter": {}}, "FilterExpression"),
        ("scan", {"Segment": 0, "TotalSegments": 2}, "without segments"),
        ("scan", {"FilterExpression": Attr("PK").eq("room")}, "Use query of the table"),
        ("get_item", {"Key": {}, "AttributesToGet": ["n"]}, "ProjectionExpression"),
        ("put_item", {"Item": {}, "Expected": {}}, "ConditionExpression"),
        ("update_item", {"Key": {}, "AttributeUpdates": {}}, "UpdateExpression"),
        ("delete_item", {"Key": {}, "ConditionalOperator": "AND"}, "expressions"),
    ],
)
def test_parameters_are_refused_with_what_to_use_instead(table, watched, method, request_, instead):
    """And nothing is sent."""
    with pytest.raises(NotImplementedError, match=instead):
        getattr(table, method)(**request_)
    assert not watched.sent


@pytest.mark.parametrize(
    "method",
    ["transact_write_items", "transact_get_items", "execute_statement", "batch_get_item", "batch_write_item"],
)
def test_methods_are_refused_with_what_to_use_instead(table, method):
    """Clients have them, tables do not: whoever looks for them here learns why."""
    with pytest.raises(NotImplementedError, match="Use"):
        getattr(table, method)
    assert not hasattr(table, method)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([("PK", "S", "HASH")], "no sort key"),
        ([("PK", "N", "HASH"), ("SK", "S", "RANGE")], "no string"),
    ],
)
def test_tables_that_cannot_be_sharded_are_refused(dynamodb, keys, message):
    """With the first call, which looks at their keys."""
    table = dynamodb.create_table(
        TableName="other",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind, _ in keys],
        KeySchema=[{"AttributeName": name, "KeyType": role} for name, _, role in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    try:
        with pytest.raises(NotImplementedError, match=message):
            ShardedTable(table, shards=fixed(4)).scan()
    finally:
        table.delete()
