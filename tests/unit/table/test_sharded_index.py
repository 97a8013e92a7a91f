"""An index with few values: what is written for it, and pages over its shards that read like those of a plain one."""

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.table import ShardedIndex, ShardedTable, fixed
from support.tables import define_table

from .conftest import updating

INDEX = "by-status"
SHARD = "status_shard"
BY_STATUS = ShardedIndex(INDEX, hash="status", shards=fixed(4))
KEY = {"PK": "room", "SK": "0001"}


@pytest.fixture
def plain(create):
    return create("indexed", "PK", "SK", indexes={INDEX: (SHARD, "at")})


def open_table(plain, shards=None, index=BY_STATUS):
    return ShardedTable(plain, shards=shards or fixed(0), indexes=[index])


def item(number, status="OPEN", at=None):
    return {"PK": f"room-{number % 3}", "SK": f"{number:04}", "status": status, "at": at or f"{number:04}", "n": number}


def of_status(status="OPEN", **request):
    return {"IndexName": INDEX, "KeyConditionExpression": Key("status").eq(status), **request}


def numbers(pages):
    return [int(found["n"]) for page in pages for found in page["Items"]]


def stored_shard(plain):
    """The index's hash key of the only item."""
    (stored,) = plain.scan()["Items"]
    return stored.get(SHARD)


class TestWhatIsWritten:
    def test_the_shard_is_chosen_by_the_items_own_key(self, plain):
        """A storage contract: the value, and a shard by collection and sort key."""
        table = open_table(plain)
        for number in range(4):
            table.put_item(Item=item(number))
        assert {found["SK"]: found[SHARD] for found in plain.scan()["Items"]} == GOLDEN

    @pytest.mark.parametrize("shards", [fixed(0), fixed(3), fixed(3, only_shards=True)])
    def test_every_change_of_the_value_moves_the_item(self, plain, shards):
        """And back to the very same shard; other changes leave it where it is."""
        table = open_table(plain, shards)
        set_status = {"UpdateExpression": "SET #s = :s, n = :n", "ExpressionAttributeNames": {"#s": "status"}}
        table.put_item(Item={**KEY, "status": "OPEN"})
        first = stored_shard(plain)
        table.update_item(Key=KEY, **set_status, ExpressionAttributeValues={":s": "DONE", ":n": 1})
        assert stored_shard(plain) == first.replace("OPEN", "DONE")
        table.update_item(Key=KEY, **updating("ADD n :n", n=1))
        assert stored_shard(plain) == first.replace("OPEN", "DONE")
        table.put_item(Item={**KEY, "status": "OPEN"})
        assert stored_shard(plain) == first
        changed = table.update_item(
            Key=KEY,
            UpdateExpression="remove a, #s",
            ExpressionAttributeNames={"#s": "status"},
            ReturnValues="ALL_NEW",
        )
        assert (stored_shard(plain), changed["Attributes"]) == (None, KEY)
        with table.batch_writer() as batch:
            batch.put_item(Item={**KEY, "status": "OPEN"})
        assert stored_shard(plain) == first
        table.put_item(Item=KEY)
        assert stored_shard(plain) is None

    @pytest.mark.parametrize(
        "change", ["SET #s = if_not_exists(#s, :s)", "SET #s = a", "SET #s = :n + :n", "SET #s = :n", "ADD #s :n"]
    )
    def test_what_cannot_be_read_is_refused_by_name(self, plain, watched, change):
        table = open_table(plain)
        request = {**updating(change, s="OPEN", n=1), "ExpressionAttributeNames": {"#s": "status"}}
        with pytest.raises(InvalidRequestError, match="status"):
            table.update_item(Key=KEY, **request)
        assert not watched.sent["UpdateItem"]

    @pytest.mark.parametrize("value", [1, "", None, {"a"}])
    def test_a_value_that_is_no_text_is_refused(self, plain, value):
        """As DynamoDB refuses it for the key of an index."""
        with pytest.raises(InvalidRequestError, match="should be a text"):
            open_table(plain).put_item(Item={**KEY, "status": value})
        with pytest.raises(InvalidRequestError, match="should be a text"), open_table(plain).batch_writer() as batch:
            batch.put_item(Item={**KEY, "status": value})

    def test_the_librarys_attribute_is_reserved(self, plain):
        """An owner who wrote it would take the item out of its place."""
        with pytest.raises(InvalidRequestError, match=SHARD):
            open_table(plain).put_item(Item={**KEY, SHARD: "OPEN#_1"})
        update = {"UpdateExpression": f"SET {SHARD} = :s", "ExpressionAttributeValues": {":s": "OPEN#_1"}}
        with pytest.raises(InvalidRequestError, match=SHARD):
            open_table(plain).update_item(Key=KEY, **update)


GOLDEN = {"0000": "OPEN#_1", "0001": "OPEN#_1", "0002": "OPEN#_0", "0003": "OPEN#_2"}


@pytest.fixture(scope="class", params=["at", None, "rank"], ids=["different", "none", "equal"])
def filled(request, dynamodb):
    """40 open items and 3 done ones; with `rank`, the range keys have three values."""
    keys = define_table("PK", "SK", indexes={INDEX: (SHARD, "at") if request.param else (SHARD,)})
    plain = dynamodb.create_table(TableName="filled", **keys)
    table = open_table(plain, fixed(2))
    for number in range(40):
        table.put_item(Item=item(number, at=f"{number % 3}" if request.param == "rank" else None))
    for number in range(40, 43):
        table.put_item(Item=item(number, "DONE"))
    yield request.param, table
    plain.delete()


class TestPages:
    @pytest.mark.parametrize("limit", [None, 1, 7])
    @pytest.mark.parametrize("newest_first", [False, True])
    def test_every_item_comes_once_and_in_order(self, filled, limit, newest_first):
        """Whatever the page's size, and however many range keys are equal."""
        sort, table = filled
        options = {} if limit is None else {"Limit": limit}
        pages = list(table.query_pages(**of_status(), ScanIndexForward=not newest_first, **options))
        found = [each for page in pages for each in page["Items"]]
        assert sorted(int(each["n"]) for each in found) == list(range(40))
        if sort is not None:
            ranges = [each["at"] for each in found]
            assert ranges == sorted(ranges, reverse=newest_first)
        assert all(limit is None or len(page["Items"]) <= limit for page in pages)
        assert sum(page["Count"] for page in table.query_pages(**of_status(), Select="COUNT", **options)) == 40
        assert found[0] == {name: found[0][name] for name in ("PK", "SK", "status", "at", "n")}

    def test_a_projection_shows_what_it_names(self, filled):
        """The value itself only where it is named."""
        _, table = filled
        pages = table.query_pages(**of_status(), ProjectionExpression="n", Limit=9)
        assert {frozenset(each) for page in pages for each in page["Items"]} == {frozenset({"n"})}
        named = {"ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "status"}}
        assert table.query(**of_status(), **named, Limit=1)["Items"] == [{"status": "OPEN"}]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Key("at").eq("0005"), range(5, 6)),
        (Key("at").between("0005", "0009"), range(5, 10)),
        (Key("at").begins_with("000"), range(10)),
    ],
)
def test_conditions_on_the_range_key_hold(plain, condition, expected):
    """As those of a query of the table."""
    table = open_table(plain)
    for number in range(12):
        table.put_item(Item=item(number))
    keys = Key("status").eq("OPEN") & condition
    found = table.query_pages(IndexName=INDEX, KeyConditionExpression=keys, ScanIndexForward=False, Limit=2)
    assert numbers(found) == sorted(expected, reverse=True)


def test_only_the_indexs_shards_are_asked(plain, watched):
    """No base key, and no journal."""
    table = open_table(plain, fixed(16))
    table.put_item(Item=item(1))
    watched.sent.clear()
    watched.queried.clear()
    table.query(**of_status())
    assert sorted(watched.queried) == [f"OPEN#_{shard}" for shard in range(4)]
    assert dict(watched.sent) == {"Query": 4}


def test_after_a_raise_old_items_are_found(plain):
    """Under both numbers; those whose value is set anew move."""
    smaller = open_table(plain, index=ShardedIndex(INDEX, hash="status", shards=fixed(2)))
    larger = open_table(plain, index=ShardedIndex(INDEX, hash="status", shards=fixed(2, 9)))
    for number in range(20):
        (smaller if number < 10 else larger).put_item(Item=item(number))
    assert numbers(larger.query_pages(**of_status(), Limit=6)) == list(range(20))


class TestWhatIsRefused:
    def test_a_table_without_a_sort_key_keeps_no_index(self, create):
        """It is passed through, and would leave the items out."""
        plain = create("no-sort-key", "PK", indexes={INDEX: (SHARD,)})
        with pytest.raises(NotImplementedError, match="no index is kept"):
            open_table(plain).put_item(Item={"PK": "room", "status": "OPEN"})

    def test_what_dynamodb_refuses_it_refuses_itself(self, plain):
        """A condition on no value is none."""
        for request in (
            {**of_status(), "KeyConditionExpression": Key("at").eq("1")},
            {**of_status(), "KeyConditionExpression": Key("status").gt("A")},
        ):
            with pytest.raises(ClientError, match="ValidationException"):
                open_table(plain).query(**request)

    @pytest.mark.parametrize("start", [{"status": "OPEN"}, KEY, {"status": "DONE", SHARD: {}}])
    def test_another_querys_cursor_is_refused(self, plain, start):
        with pytest.raises(ValueError, match="LastEvaluatedKey"):
            open_table(plain).query(**of_status(), ExclusiveStartKey=start)

    @pytest.mark.parametrize("shards", [fixed(0), fixed(4, choices=2), 8])
    def test_its_number_is_a_fixed_one(self, shards):
        """An item has one place in the index."""
        with pytest.raises(ValueError, match="should be fixed"):
            ShardedIndex(INDEX, hash="status", shards=shards)

    @pytest.mark.parametrize(
        ("hash_key", "index", "message"),
        [
            ("status", BY_STATUS, "status_shard"),
            (SHARD, ShardedIndex(INDEX, hash="PK", shards=fixed(2)), "a key already"),
            (SHARD, ShardedIndex("nope", hash="status", shards=fixed(2)), INDEX),
        ],
    )
    def test_an_index_that_cannot_be_kept_is_named(self, create, hash_key, index, message):
        plain = create("wrong", "PK", "SK", indexes={INDEX: (hash_key, "at")})
        with pytest.raises(ValueError, match=message):
            open_table(plain, index=index).get_item(Key=KEY)
