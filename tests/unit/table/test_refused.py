"""What cannot be honoured is refused by name."""

import pytest

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
        ("get_item", {"Key": {}, "AttributesToGet": ["n"]}, "ProjectionExpression"),
        ("put_item", {"Item": {}, "Expected": {}}, "ConditionExpression"),
        ("update_item", {"Key": {}, "AttributeUpdates": {}}, "UpdateExpression"),
        ("delete_item", {"Key": {}, "ConditionalOperator": "AND"}, "expressions"),
    ],
)
def test_parameters_are_refused_with_what_to_use_instead(table, watched, method, request_, instead):
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


def test_a_table_that_cannot_be_sharded_is_refused(create):
    """With the first call, which looks at its keys."""
    with pytest.raises(NotImplementedError, match="no string"):
        ShardedTable(create("other", "PK", "SK", types={"PK": "N"}), shards=fixed(4)).scan()
