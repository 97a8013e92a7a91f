"""`create_item`: put if absent, at the item's choices."""

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, at_random, fixed, in_band
from support.fakes import FakeClock

from .conftest import KEY_RANGE, updating

ITEM = {"PK": "room", "SK": "0001", "n": 1}
KEY = {"PK": "room", "SK": "0001"}
FIRST, SECOND = (f"room#_{shard}" for shard in choose_shards("0001", 4)[:2])


def open_table(plain, **options):
    return ShardedTable(plain, **{"shards": fixed(4, choices=3), "clock": FakeClock().as_clock(), **options})


@pytest.mark.parametrize(
    "options", [{}, {"hashed": at_random()}, {"shards": in_band(environ={})}, {"shards": fixed(4, only_shards=True)}]
)
def test_a_repetition_finds_what_the_first_call_stored(plain, watched, options):
    """Unchanged, as its owner knows it, in one request each."""
    table = open_table(plain, **options)
    table.scan()
    watched.sent.clear()
    assert table.create_item(Item=ITEM) is None
    assert table.create_item(Item={**ITEM, "n": 2}) == ITEM
    assert dict(watched.sent) == {"PutItem": 2}
    table.update_item(Key=KEY, **updating("SET n = :n", n=3))
    assert table.create_item(Item=ITEM) == {**ITEM, "n": 3}
    table.delete_item(Key=KEY)
    assert table.create_item(Item=ITEM) is None
    assert len([item for item in plain.scan()["Items"] if item["SK"] != "r#"]) == 1


def test_a_refused_one_goes_to_its_next_choice_unless_it_is_there(plain, watched):
    """A look at the other choices comes first: an earlier call may have stored it there."""
    table = open_table(plain)
    watched.refuses = lambda operation, body: KEY_RANGE if FIRST in str(body) and operation == "PutItem" else None
    assert table.create_item(Item=ITEM) is None
    assert [item["PK"] for item in plain.scan()["Items"]] == [SECOND]
    assert table.create_item(Item={**ITEM, "n": 2}) == ITEM
    assert len(plain.scan()["Items"]) == 1


def test_an_unknown_outcome_is_tried_again_in_the_same_place(plain, watched):
    """What the lost attempt stored is found; where none gets through, the error is boto3's."""
    table, lost = open_table(plain), []

    def lose(operation, body):
        if operation == "PutItem" and not lost:
            lost.append(body)
            raise ReadTimeoutError(endpoint_url="test")

    watched.refuses = lose
    assert table.create_item(Item=ITEM) is None
    assert [item["PK"] for item in plain.scan()["Items"]] == [FIRST]

    def lose_all(operation, _):
        if operation == "PutItem":
            raise ReadTimeoutError(endpoint_url="test")

    watched.refuses = lose_all
    with pytest.raises(ReadTimeoutError):
        table.create_item(Item={**ITEM, "SK": "0002"})
    watched.refuses = lambda *_: KEY_RANGE
    with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
        table.create_item(Item={**ITEM, "SK": "0003"})


def test_what_cannot_be_stored_is_refused(plain):
    """Naming what is wrong."""
    table = open_table(plain)
    for item, message in (
        ({"PK": "room"}, "PK and SK"),
        ({**ITEM, "PK": "room#_1"}, "PK"),
        ({**ITEM, "hp_changes": 1}, "hp_"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            table.create_item(Item=item)


def test_a_table_without_a_sort_key_has_one_place(create):
    table = ShardedTable(create("devices", "id"), shards=fixed(4))
    assert table.create_item(Item={"id": "a", "n": 1}) is None
    assert table.create_item(Item={"id": "a", "n": 2}) == {"id": "a", "n": 1}
