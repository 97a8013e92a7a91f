"""Items are created once and changed in place, alone and in batches, whatever refuses and whoever else is at work."""

from contextlib import nullcontext

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError, ReadTimeoutError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, at_random, by_attribute, fixed, in_band
from support.fakes import FakeClock
from tools.world.dynamodb import throttled

from .conftest import KEY_RANGE, fail_with, put_all, updating, writes_to

ROOM = {"KeyConditionExpression": Key("PK").eq("room"), "ConsistentRead": True}
SHARDS = 5
FIRST, SECOND, THIRD = (f"room#_{shard}" for shard in choose_shards("0001", SHARDS))
KEY = {"PK": "room", "SK": "0001"}
ADD = {"Key": KEY, **updating("ADD n :n", n=5)}
IS_NEW = {"ConditionExpression": "attribute_not_exists(SK)"}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def open_table(plain, clock):
    """Opens the table in another way than with three choices of five shards."""
    return lambda **options: ShardedTable(
        plain, **{"shards": fixed(SHARDS, choices=3), "clock": clock.as_clock(), **options}
    )


@pytest.fixture
def table(open_table):
    return open_table()


def refuse(watched, *partition_keys, reason=KEY_RANGE):
    """Throttle writes of single items to some partition keys."""
    watched.refuses = lambda operation, body: reason if writes_to(operation, body) in partition_keys else None


def stored(plain):
    """List the partition key of each stored item, and its number."""
    return [(item["PK"], item.get("n")) for item in plain.scan()["Items"] if item["SK"] != "r#"]


class TestRefusals:
    @pytest.mark.parametrize(
        "put_new", [lambda table: table.put_item(Item=KEY, **IS_NEW), lambda table: table.update_item(**ADD)]
    )
    def test_creations_that_must_see_each_other_meet_at_one_place(self, table, watched, put_new):
        """Of two that demand that there is no such item, one must fail; two that add must not make two items."""
        refuse(watched, FIRST)
        with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
            put_new(table)
        assert {FIRST} == {place for _, place in watched.places}

    def test_creations_at_random_meet_there_too(self, open_table, watched):
        texts = iter("abcdefgh")
        table = open_table(shards=fixed(64), hashed=at_random(lambda: next(texts)))
        watched.once_before("UpdateItem", lambda: table.update_item(**ADD))
        table.update_item(**ADD)
        assert table.get_item(Key=KEY, ConsistentRead=True)["Item"]["n"] == 10

    def test_when_all_choices_refuse_boto3s_error_comes_after_the_budget(self, table, watched, clock):
        """Callers catch what they caught before."""
        refuse(watched, FIRST, SECOND, THIRD)
        with pytest.raises(table.meta.client.exceptions.ProvisionedThroughputExceededException) as caught:
            table.put_item(Item=KEY)
        assert caught.value.response["ThrottlingReasons"][0]["reason"] == KEY_RANGE
        assert {FIRST, SECOND, THIRD} == {place for _, place in watched.places}
        assert 0.5 < sum(clock.slept) <= 1.0

    def test_a_change_waits_where_its_item_is(self, table, watched, clock):
        """There is no other place for it."""
        table.put_item(Item=KEY)
        refuse(watched, FIRST)
        clock.on_sleep = lambda: refuse(watched)
        watched.places.clear()
        table.delete_item(Key=KEY)
        assert watched.places == [("DeleteItem", FIRST), ("DeleteItem", FIRST)]


class TestCopies:
    def test_of_two_copies_the_more_often_changed_one_is_the_item_everywhere(self, table, plain):
        """A late copy of the original loses in pages and point reads, and is removed by a change."""
        table.put_item(Item={**KEY, "n": 1})
        table.update_item(Key=KEY, **updating("SET n = :n", n=2))
        plain.put_item(Item={**KEY, "n": 1})  # the copy, on the base key
        expected = {**KEY, "n": 2}
        assert table.query(**ROOM)["Items"] == [expected]
        assert table.query(**ROOM, Select="COUNT")["Count"] == 1
        assert table.get_item(Key=KEY)["Item"] == expected
        assert table.update_item(**ADD, ReturnValues="ALL_NEW")["Attributes"]["n"] == 7
        assert stored(plain) == [(FIRST, 7)]

    def test_a_late_copy_at_the_first_choice_does_not_hide_the_item_at_another(self, table, watched, plain):
        """A first attempt that DynamoDB took for long may land when the item was created, and changed, elsewhere."""
        refuse(watched, FIRST)
        table.put_item(Item={**KEY, "n": 1})
        refuse(watched)
        table.update_item(Key=KEY, **updating("SET n = :n", n=2))
        plain.put_item(Item={**KEY, "PK": FIRST, "n": 1})
        assert table.get_item(Key=KEY, ConsistentRead=True)["Item"]["n"] == 2
        table.update_item(**ADD)
        assert stored(plain) == [(SECOND, 7)]

    @pytest.mark.parametrize("is_put", [True, False])
    @pytest.mark.parametrize("is_batch", [True, False])
    def test_every_change_leaves_one_copy_at_most(self, table, plain, is_put, is_batch):
        """Deleting removes both; nothing comes back."""
        for each in (table, plain):
            each.put_item(Item={**KEY, "n": 1})
        with table.batch_writer() if is_batch else nullcontext(table) as writer:
            if is_put:
                writer.put_item(Item={**KEY, "n": 5})
            else:
                writer.delete_item(Key=KEY)
        assert [n for _, n in stored(plain)] == ([5] if is_put else [])

    def test_a_copy_that_was_changed_meanwhile_is_not_removed(self, table, plain, watched):
        """It may be the item by now."""
        table.put_item(Item={**KEY, "n": 1})
        for _ in range(2):
            table.update_item(Key=KEY, **updating("ADD n :n", n=1))
        plain.put_item(Item={**KEY, "n": 1, "hp_changes": 1})
        watched.once_before("TransactWriteItems", lambda: plain.put_item(Item={**KEY, "n": 7, "hp_changes": 3}))
        table.update_item(Key=KEY, **updating("ADD n :n", n=1))
        assert stored(plain) == [("room", 8)]


class TestRaces:
    """What happens between the look for an item and its change."""

    @pytest.mark.parametrize(
        ("operation", "change", "moved", "left"),
        [
            ("UpdateItem", lambda table: table.update_item(**ADD), [{**KEY, "n": 4}], [("room", 9)]),
            ("UpdateItem", lambda table: table.update_item(**ADD), [], [(FIRST, 5)]),
            ("PutItem", lambda table: table.put_item(Item={**KEY, "n": 7}), [{**KEY, "n": 4}], [("room", 7)]),
            ("DeleteItem", lambda table: table.delete_item(Key=KEY), [{**KEY, "n": 4}], []),
        ],
        ids=["updated", "updated and gone", "put", "deleted"],
    )
    def test_a_change_of_what_moved_or_went_meanwhile_begins_anew(
        self, table, watched, plain, operation, change, moved, left
    ):
        """It demands its item where it was: or there would be two, or an acknowledged deletion would be lost.

        An update of what was just deleted creates it, as boto3's would.
        """
        table.put_item(Item={**KEY, "n": 1})

        def move():
            plain.delete_item(Key={"PK": FIRST, "SK": "0001"})
            put_all(plain, moved)

        watched.once_before(operation, move)
        change(table)
        assert stored(plain) == left

    def test_a_creation_becomes_a_change_of_what_came_meanwhile(self, table, watched, plain):
        """On condition, it fails: judged is what is stored, not what was located."""
        came = {"PK": FIRST, "SK": "0001", "n": 4}
        watched.once_before("UpdateItem", lambda: plain.put_item(Item=came))
        table.update_item(**ADD)
        (found,) = plain.scan()["Items"]
        assert (found["PK"], found["n"], found["hp_changes"]) == (FIRST, 9, 1)
        plain.delete_item(Key={"PK": FIRST, "SK": "0001"})
        watched.once_before(
            "PutItem",
            lambda: plain.meta.client.batch_write_item(RequestItems={plain.name: [{"PutRequest": {"Item": came}}]}),
        )
        with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
            table.put_item(Item=KEY, **IS_NEW)
        assert stored(plain) == [(FIRST, 4)]

    def test_an_append_only_put_on_condition_sees_what_was_written_before_a_raise(self, open_table):
        """It is a question whether the item is there already."""
        open_table(shards=fixed(2), append_only=True).put_item(Item=KEY, **IS_NEW)
        for shards in (fixed(2, 7), fixed(2, 7, 64)):
            with pytest.raises(ClientError, match="ConditionalCheckFailed"):
                open_table(shards=shards, append_only=True).put_item(Item=KEY, **IS_NEW)


class TestHashed:
    """Shards that are chosen by an attribute."""

    @pytest.fixture
    def table(self, open_table):
        return open_table(shards=fixed(SHARDS), hashed=by_attribute("device"))

    def test_an_update_that_creates_must_be_told_where(self, table, plain):
        """Where nothing would be created, nothing need tell where."""
        update = {"Key": KEY, **updating("SET device = :d", d="d1")}
        with pytest.raises(InvalidRequestError, match="Hashed"):
            table.update_item(**update)
        with pytest.raises(InvalidRequestError, match="Hashed"):
            table.update_item(Key=KEY, UpdateExpression="REMOVE n", ConditionExpression=Attr("SK").not_exists())
        with pytest.raises(InvalidRequestError, match="device"):
            table.put_item(Item={"PK": "room", "SK": "0002"})
        with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException):
            table.update_item(
                Key=KEY,
                **updating("SET #n = :n", n=1, m=1),
                ConditionExpression="attribute_exists(PK) AND #m = :m",
                ExpressionAttributeNames={"#n": "n", "#m": "m"},
            )
        assert stored(plain) == []
        table.update_item(**update, Hashed="d1")
        assert stored(plain) == [(f"room#_{choose_shards('d1', SHARDS)[0]}", None)]

    @pytest.mark.parametrize(
        ("expression", "values"),
        [
            ("SET device = :new", {":new": "d2"}),
            ("SET n = :new, device = :new", {":new": "d2"}),
            ("SET device = n", None),
            ("REMOVE device", None),
            ("ADD n :one, device :one", {":one": 1}),
            ("SET device = :old + :one", {":old": 1, ":one": 1}),
        ],
    )
    def test_what_the_shard_is_chosen_by_is_not_changed(self, table, expression, values):
        """The item would have to move; the same value, and attributes inside others, are no change."""
        table.put_item(Item={**KEY, "device": "d1", "info": {"device": 1}})
        request = {"UpdateExpression": expression, **({"ExpressionAttributeValues": values} if values else {})}
        with pytest.raises(InvalidRequestError, match="put it anew"):
            table.update_item(Key=KEY, Hashed="d1", **request)
        same = updating("SET device = :same, info.device = :two, copied = device", same="d1", two=2)
        table.update_item(Key=KEY, Hashed="d1", **same)
        assert table.query(**ROOM)["Items"] == [{**KEY, "device": "d1", "info": {"device": 2}, "copied": "d1"}]

    def test_an_attribute_that_keys_tell_must_fit_them(self, open_table, plain):
        """Otherwise two items of one key could lie on two shards. An item need not have it then."""
        hashed = by_attribute("device", from_key=lambda key: key["SK"].split("#")[1])
        table = open_table(shards=fixed(SHARDS), hashed=hashed)
        table.put_item(Item={"PK": "room", "SK": "1#d1", "device": "d1"})
        with pytest.raises(InvalidRequestError, match="the item's key says 'd1'"):
            table.put_item(Item={"PK": "room", "SK": "1#d1", "device": "d2"})
        table.put_item(Item={"PK": "room", "SK": "2#d1"})
        assert stored(plain) == [(f"room#_{choose_shards('d1', SHARDS)[0]}", None)] * 2

    @pytest.mark.parametrize("value", [True, ["a"], None])
    def test_a_filter_for_a_value_that_no_shard_is_chosen_by_finds_nothing(self, table, value):
        table.put_item(Item={**KEY, "device": "d1"})
        assert table.query(**ROOM, FilterExpression=Attr("device").eq(value))["Items"] == []


class TestExpressions:
    """What a shard's key would make wrong."""

    @pytest.mark.parametrize(
        "condition", [Attr("PK").eq("room"), "PK <> :pk", "attribute_exists(SK) AND begins_with(#p, :pk)"]
    )
    def test_a_condition_on_the_partition_keys_value_is_refused(self, table, condition):
        """It would be judged by the shard's key."""
        request = {"ConditionExpression": condition}
        if isinstance(condition, str):
            request |= {"ExpressionAttributeValues": {":pk": "room"}}
            request |= {"ExpressionAttributeNames": {"#p": "PK"}} if "#p" in condition else {}
        for call in (lambda: table.put_item(Item=KEY, **request), lambda: table.delete_item(Key=KEY, **request)):
            with pytest.raises(NotImplementedError, match="PK"):
                call()

    def test_an_update_does_not_copy_a_shards_key(self, table):
        """The owner would find it in an attribute."""
        with pytest.raises(NotImplementedError, match="PK"):
            table.update_item(Key=KEY, UpdateExpression="SET copied = PK")

    def test_an_update_with_add_right_before_a_placeholder(self, table):
        """DynamoDB takes it."""
        names = {"ExpressionAttributeNames": {"#n": "n"}, "ExpressionAttributeValues": {":n": 2}}
        table.update_item(Key=KEY, UpdateExpression="ADD#n :n", **names)
        assert table.get_item(Key=KEY)["Item"]["n"] == 2

    @pytest.mark.parametrize("name", ["#hpp", "#hp0", "#hpn1", "#hpc", "hp_changes", "hp_shards", "hp_noted"])
    def test_names_of_the_library_are_refused(self, table, name):
        """Its placeholders would replace the owner's, its attributes be taken for counts."""
        names = {"ExpressionAttributeNames": {name if "#" in name else "#a": name if "_" in name else "colour"}}
        (placeholder,) = names["ExpressionAttributeNames"]
        with pytest.raises(InvalidRequestError, match=name):
            table.update_item(Key=KEY, UpdateExpression=f"REMOVE {placeholder}", **names)
        put, page = {"Item": {**KEY, name: 1}}, {**ROOM, "ProjectionExpression": placeholder, **names}
        method, request = ("query", page) if "#" in name else ("put_item", put)
        with pytest.raises(InvalidRequestError, match=name):
            getattr(table, method)(**request)

    def test_an_index_that_is_sorted_by_the_partition_key_is_not_searched_for_one(self, create):
        """It holds the shards' keys, so it would find nothing."""
        inverted = ShardedTable(create("inverted", "PK", "SK", indexes={"by-sort-key": ("SK", "PK")}), shards=fixed(5))
        inverted.put_item(Item=KEY)
        sort_key, is_room = Key("SK").eq("0001"), {"FilterExpression": Attr("PK").eq("room")}
        assert inverted.query(IndexName="by-sort-key", KeyConditionExpression=sort_key)["Items"] == [KEY]
        for condition, more in ((sort_key & Key("PK").eq("room"), {}), (sort_key, is_room)):
            with pytest.raises(NotImplementedError, match="PK"):
                inverted.query(IndexName="by-sort-key", KeyConditionExpression=condition, **more)


class TestCreateItem:
    """Put if absent, at the item's choices."""

    @pytest.mark.parametrize(
        "options",
        [{}, {"hashed": at_random()}, {"shards": in_band(environ={})}, {"shards": fixed(4, only_shards=True)}],
    )
    def test_a_repetition_finds_what_the_first_call_stored(self, open_table, plain, watched, options):
        """Unchanged, as its owner knows it, in one request each."""
        table, item = open_table(**options), {**KEY, "n": 1}
        table.scan()
        watched.sent.clear()
        assert table.create_item(Item=item) is None
        assert table.create_item(Item={**item, "n": 2}) == item
        assert dict(watched.sent) == {"PutItem": 2}
        table.update_item(Key=KEY, **updating("SET n = :n", n=3))
        assert table.create_item(Item=item) == {**item, "n": 3}
        table.delete_item(Key=KEY)
        assert table.create_item(Item=item) is None
        assert len(stored(plain)) == 1

    def test_a_refused_one_goes_to_its_next_choice_unless_it_is_there(self, table, plain, watched):
        """A look at the other choices comes first: an earlier call may have stored it there."""
        refuse(watched, FIRST)
        assert table.create_item(Item={**KEY, "n": 1}) is None
        assert table.create_item(Item={**KEY, "n": 2}) == {**KEY, "n": 1}
        assert stored(plain) == [(SECOND, 1)]

    def test_an_unknown_outcome_is_tried_again_in_the_same_place(self, table, plain, watched):
        """What the lost attempt stored is found; where none gets through, the error is boto3's."""
        lose = fail_with(ReadTimeoutError(endpoint_url="test"))
        watched.respond_once("PutItem", lose)
        assert table.create_item(Item=KEY) is None
        assert stored(plain) == [(FIRST, None)]
        watched.responds = lambda operation, body: lose(body) if operation == "PutItem" else None
        with pytest.raises(ReadTimeoutError):
            table.create_item(Item={**KEY, "SK": "0002"})
        watched.forget()
        watched.refuses = lambda *_: KEY_RANGE
        with pytest.raises(ClientError, match="ProvisionedThroughputExceeded"):
            table.create_item(Item={**KEY, "SK": "0003"})

    @pytest.mark.parametrize(
        ("item", "message"),
        [({"PK": "room"}, "PK and SK"), ({**KEY, "PK": "room#_1"}, "PK"), ({**KEY, "hp_changes": 1}, "hp_")],
    )
    def test_what_cannot_be_stored_is_refused(self, table, item, message):
        with pytest.raises(InvalidRequestError, match=message):
            table.create_item(Item=item)

    def test_a_table_without_a_sort_key_has_one_place(self, create):
        table = ShardedTable(create("devices", "id"), shards=fixed(4))
        assert table.create_item(Item={"id": "a", "n": 1}) is None
        assert table.create_item(Item={"id": "a", "n": 2}) == {"id": "a", "n": 1}


class TestBatches:
    @pytest.mark.parametrize(
        ("options", "requests"),
        [
            ({"shards": fixed(4, choices=2)}, {"BatchWriteItem": 3, "BatchGetItem": 3}),
            ({"shards": fixed(4), "hashed": at_random(), "append_only": True}, {"BatchWriteItem": 3}),
        ],
        ids=["located", "append-only"],
    )
    def test_items_are_written_25_a_request(self, open_table, watched, options, requests):
        """Each batch is located with one request, or what takes no more than 100 keys."""
        table = open_table(**options)
        put_all(table, ({"PK": "room", "SK": f"{number:04}", "n": number} for number in range(60)))
        assert dict(watched.sent) == requests
        assert [found["n"] for found in table.query(**ROOM)["Items"]] == list(range(60))

    @pytest.mark.parametrize("wrong", [{"PK": "", "SK": "1"}, {"PK": "room"}])
    def test_what_is_wrong_dynamodb_says(self, table, wrong):
        with pytest.raises(ClientError, match="ValidationException"), table.batch_writer() as batch:
            batch.put_item(Item=wrong)

    def test_what_is_left_unprocessed_is_repeated_at_the_next_choice(self, table, plain, watched):
        """DynamoDB gives no reasons for a batch: the place may be hot, and another one is as good."""
        watched.respond_once("BatchWriteItem", lambda body: {"UnprocessedItems": body["RequestItems"]})
        put_all(table, [KEY])
        assert watched.sent["BatchWriteItem"] == 2
        assert stored(plain) == [(SECOND, None)]

    def test_a_put_over_two_copies_is_repeated_once(self, table, plain, watched):
        """Though both of its writes were left unprocessed."""
        for each in (table, plain):
            each.put_item(Item={**KEY, "n": 1})
        watched.respond_once("BatchWriteItem", lambda body: {"UnprocessedItems": body["RequestItems"]})
        put_all(table, [{**KEY, "n": 2}])
        assert [n for _, n in stored(plain)] == [2]

    def test_a_throttled_batch_is_tried_again(self, table, watched):
        watched.respond_once("BatchWriteItem", fail_with(throttled(KEY_RANGE)))
        put_all(table, [KEY])
        assert table.get_item(Key=KEY)["Item"] == KEY

    @pytest.mark.parametrize("hashed", [at_random(), by_attribute("device")])
    def test_two_puts_of_one_key_are_refused_as_boto3s(self, open_table, plain, hashed):
        """They may go to different shards, where DynamoDB would not see it."""
        batch = open_table(shards=fixed(64), hashed=hashed).batch_writer()
        for device in "abcdefgh":
            batch.put_item(Item={**KEY, "device": device})
        with pytest.raises(ClientError, match="duplicates"):
            batch.__exit__(None, None, None)
        assert plain.scan()["Items"] == []


def test_an_item_that_an_update_creates_says_under_which_number(plain, open_table):
    """A number that is raised later shows where it lies; a later change leaves that as it is."""
    open_table(shards=fixed(3, SHARDS)).update_item(**ADD)
    open_table(shards=fixed(3, SHARDS, 7)).update_item(**ADD)
    assert [(item["n"], item["hp_shards"]) for item in plain.scan()["Items"]] == [(10, SHARDS)]
