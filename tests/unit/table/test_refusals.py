"""What is refused by name, with what to write instead: arguments, tables, and calls, of which nothing is sent."""

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ParamValidationError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.dynamodb.table import LOAD_PREFIX
from hotpartition.table import (
    ReadCache,
    ShardedCounter,
    ShardedIndex,
    ShardedTable,
    TimeBuckets,
    adaptive,
    at_random,
    by_attribute,
    by_sort_key,
    curl,
    fixed,
    guard,
    in_band,
)

from .conftest import updating

KEY = {"PK": "room", "SK": "0001"}
FIXED = fixed(4)
BUCKETS = TimeBuckets("hour", index="by-owner")
SHARDED = ShardedIndex("by-owner", hash="status", shards=fixed(2))
BY_HAND = fixed(10, only_shards=True, suffix="#SHARD#")
CLOSING = in_band(closing=True)


@pytest.mark.parametrize(
    ("build", "error", "instead"),
    [
        (lambda plain: ShardedTable(plain, shards=8), TypeError, r"fixed\(8\), in_band\(\) or adaptive\(\)"),
        (lambda plain: ShardedTable(plain, shards=fixed), TypeError, r"fixed\(n\)"),
        (lambda plain: ShardedTable(plain, shards=FIXED, hashed="device"), TypeError, r"by_attribute\('device'\)"),
        (lambda plain: ShardedTable(plain, shards=FIXED, hashed=by_sort_key), TypeError, r"by_sort_key\(\)"),
        (lambda plain: ShardedTable(plain, shards=FIXED, position=7), TypeError, "a function"),
        (lambda plain: ShardedTable(plain, shards=CLOSING), TypeError, r"Write position=\.\.\., a function"),
        (lambda plain: ShardedTable(plain, shards=BY_HAND), TypeError, r"#SHARD#.*at_random\(\)"),
        (lambda plain: ShardedTable(plain, shards=FIXED, cache=5), TypeError, r"for instance ReadCache\("),
        (lambda plain: ShardedTable(plain, shards=FIXED, cache=ReadCache), TypeError, "cache=.*should be a ReadCache"),
        (lambda plain: ShardedTable(plain, shards=FIXED, indexes=["by-owner"]), TypeError, "a list of ShardedIndex"),
        (lambda plain: ShardedTable(plain, shards=FIXED, transport="curl"), TypeError, r"should be curl\(\)"),
        (lambda plain: ShardedTable(plain, shards=FIXED, transport=curl), TypeError, r"should be curl\(\)"),
        (lambda plain: ShardedTable(plain, shards=FIXED, budget_ms="1000"), TypeError, "should be milliseconds"),
        (lambda plain: ShardedTable(plain, shards=FIXED, budget_ms=-1), TypeError, "at least 0"),
        (lambda plain: ShardedCounter(plain, 4), TypeError, r"fixed\(4\), in_band\(\) or adaptive\(\)"),
        (lambda plain: ShardedCounter(plain, FIXED, transport="curl"), TypeError, r"should be curl\(\)"),
        (lambda plain: guard(plain.meta.client, plain), TypeError, "should be a ShardedTable"),
        (lambda plain: guard(plain.meta.client, ShardedTable), TypeError, "should be a ShardedTable"),
        (lambda plain: guard(boto3.client("s3"), ShardedTable(plain, shards=FIXED)), TypeError, "dynamodb"),
        # What is no table: a name, a resource, a client; and a table that is sharded already.
        (lambda _: ShardedTable("readings", shards=FIXED), TypeError, r'\.Table\("readings"\)'),
        (lambda _: ShardedTable(boto3.resource("dynamodb"), shards=FIXED), TypeError, r'\.Table\("readings"\)'),
        (lambda _: ShardedTable(boto3.client("dynamodb"), shards=FIXED), TypeError, r"guard\(client, table\)"),
        (lambda plain: ShardedTable(ShardedTable(plain, shards=FIXED), shards=FIXED), TypeError, "is sharded already"),
        (lambda _: fixed(), ValueError, "needs the number"),
        (lambda _: fixed("4"), ValueError, "'4' shards: should be a whole number from 0 to 1024"),
        (lambda _: fixed(True), ValueError, "True shards"),
        (lambda _: fixed(-1), ValueError, "from 0 to 1024"),
        (lambda _: fixed(2000), ValueError, "from 0 to 1024"),
        (lambda _: fixed((4, 100)), ValueError, "from 0 to 1024"),
        (lambda _: fixed(4, readable=5000), ValueError, "from 0 to 1024"),
        (lambda _: fixed(0, 4, only_shards=True), ValueError, "at their base key"),
        (lambda _: fixed(16, 4), ValueError, "only raised"),
        (lambda _: fixed(4, suffix="#SHARD#"), ValueError, "only_shards=True"),
        (lambda _: fixed(4, suffix="", only_shards=True), ValueError, "a text"),
        (lambda _: fixed(4, choices=4), ValueError, "choices"),
        (lambda _: adaptive(choices=0), ValueError, "should be from 1 to 3"),
        (lambda _: adaptive(choices=4), ValueError, "should be from 1 to 3"),
        # An item has one place in an index.
        (lambda _: ShardedIndex("by-owner", hash="status", shards=fixed(0)), ValueError, "should be fixed"),
        (lambda _: ShardedIndex("by-owner", hash="status", shards=fixed(4, choices=2)), ValueError, "should be fixed"),
        (lambda _: ShardedIndex("by-owner", hash="status", shards=8), ValueError, "should be fixed"),
        (lambda _: TimeBuckets("week", index="by-owner"), ValueError, "minute, hour, day"),
        (lambda _: ReadCache(seconds=-1), ValueError, "seconds is -1, and must be at least 0"),
        (lambda _: ReadCache(seconds=float("nan")), ValueError, "seconds is nan, and must be at least 0"),
        (lambda _: ReadCache(seconds=float("inf")), ValueError, "seconds is inf, and must be at least 0"),
        (lambda _: ReadCache(stale_seconds=float("inf")), ValueError, "stale_seconds is inf"),
        (lambda _: ReadCache(seconds=2, stale_seconds=4, max_bytes=0), ValueError, "max_entries and max_bytes must be"),
        (lambda _: ReadCache(seconds=2, stale_seconds=3), ValueError, "stale_seconds is 3, .* twice seconds, 4"),
        (lambda _: ReadCache(max_entries=0), ValueError, "max_entries and max_bytes must be at least 1"),
        (lambda _: ReadCache(redis="localhost"), ValueError, "redis= is the address of a Redis cluster"),
    ],
)
def test_wrong_arguments(plain, build, error, instead):
    """At once, not with the first call."""
    with pytest.raises(error, match=instead):
        build(plain)


INDEXED, ALONE = {"by-status": ("status_shard", "at")}, {"by-status": ("status_shard",)}
NO_TABLE, TWISTED = (in_band(environ={}, journal_table_name=name) for name in ("routes", "twisted"))


def indexed(name="by-status", hash_="status"):
    """Build the options of a table with a sharded index."""
    return {"indexes": [ShardedIndex(name, hash=hash_, shards=fixed(4))]}


@pytest.mark.parametrize(
    ("keys", "more", "options", "error", "words"),
    [
        (("PK", "SK"), {"types": {"PK": "N"}}, {}, NotImplementedError, "no string"),
        (("PK", "updated_at"), {}, {"shards": in_band(environ={})}, NotImplementedError, "updated_at"),
        (("PK", "generations"), {}, {"shards": in_band(environ={})}, NotImplementedError, "generations"),
        (("PK", "SK"), {"indexes": {"by-status": ("status", "at")}}, indexed(), ValueError, "status_shard"),
        (("PK", "SK"), {"indexes": INDEXED}, indexed(hash_="PK"), ValueError, "a key already"),
        (("PK", "SK"), {"indexes": INDEXED}, indexed("nope"), ValueError, "by-status"),
        (("PK", "SK"), {"indexes": INDEXED}, {"indexes": [TimeBuckets("hour", index="nope")]}, ValueError, "by-status"),
        (("PK",), {"indexes": ALONE}, indexed(), NotImplementedError, "no index is kept"),
        (("PK", "SK"), {}, {"shards": NO_TABLE}, ValueError, "routes.*no such table.*called pk, a string"),
        (("PK", "SK"), {}, {"shards": TWISTED}, ValueError, "twisted.*its keys are.*called pk, a string"),
    ],
)
def test_a_table_that_cannot_be_served(create, keys, more, options, error, words):
    """With the first call, which looks at its keys, and at those of a table that is named for routing items."""
    create("twisted", "pk", "sk")
    table = ShardedTable(create("other", *keys, **more), **{"shards": FIXED, **options})
    with pytest.raises(error, match=words):
        table.put_item(Item={"PK": "room", "SK": "1"} | dict.fromkeys(keys, "1"))


def of(name, values=None, **request):
    """Write a request with names and values of its expression."""
    names = {"ExpressionAttributeNames": {"#a": name}} if name else {}
    return {**request, **names, **({"ExpressionAttributeValues": values} if values else {})}


def between(first, last):
    return {"IndexName": "by-owner", "KeyConditionExpression": Key("PK").eq("a") & Key("SK").between(first, last)}


OF_STATUS = {"IndexName": "by-owner", "KeyConditionExpression": Key("status").eq("OPEN")}
ROOM = {"KeyConditionExpression": Key("PK").eq("room")}
IS_ROOM = Attr("PK").eq("room")
INVERTED = {"IndexName": "inverted", "KeyConditionExpression": Key("SK").eq("1")}
ROUTING_ITEM = {"PK": "room", "SK": "r#"}
IN_TABLE = {"TableName": "readings"}
OLD_KEYS = {"Keys": [KEY], "AttributesToGet": ["n"]}
PUT = {"Put": {**IN_TABLE, "Item": KEY}}
GET, GET_ANOTHER = ({"Get": {**IN_TABLE, "Key": {**KEY, "SK": sort_key}}} for sort_key in "12")
CHECK = {"ConditionCheck": {**IN_TABLE, "Key": KEY, "ConditionExpression": IS_ROOM}}
CHECK_OF_NOTHING = {"ConditionCheck": {**IN_TABLE, "Key": {**KEY, "SK": "1"}}}
OF_DEVICE = updating("SET device = :d", d="d1")
UPDATE = {"Update": {**IN_TABLE, "Key": KEY, **OF_DEVICE}}
SHOWN_BY_KEYS = by_attribute("device", from_key=lambda _: "d1")
REFUSED = {
    "parameters": ({}, NotImplementedError, [
        ("query", {"KeyConditions": {}}, "KeyConditionExpression"),
        ("query", {"QueryFilter": {}}, "FilterExpression"),
        ("scan", {"ScanFilter": {}}, "FilterExpression"),
        ("get_item", {"Key": {}, "AttributesToGet": ["n"]}, "ProjectionExpression"),
        ("get_items", {"keys": [KEY], "AttributesToGet": ["n"]}, "ProjectionExpression"),
        ("client.batch_get_item", {"RequestItems": {"readings": OLD_KEYS}}, "ProjectionExpression"),
        ("put_item", {"Item": {}, "Expected": {}}, "ConditionExpression"),
        ("update_item", {"Key": {}, "AttributeUpdates": {}}, "UpdateExpression"),
        ("delete_item", {"Key": {}, "ConditionalOperator": "AND"}, "expressions"),
        ("client.transact_write_items", {"TransactItems": [PUT], "ClientRequestToken": "t"}, "ClientRequestToken"),
        (
            "client.transact_write_items", {"TransactItems": [PUT], "ReturnItemCollectionMetrics": "SIZE"},
            "ReturnItemCollectionMetrics",
        ),
    ]),
    "the partition key's value, which differs on shards": ({}, NotImplementedError, [
        ("put_item", {"Item": KEY, "ConditionExpression": IS_ROOM}, "PK"),
        ("put_item", of(None, {":a": "r"}, Item=KEY, ConditionExpression="PK <> :a"), "PK"),
        ("delete_item", of("PK", {":a": "r"}, Key=KEY, ConditionExpression="n = :a AND begins_with(#a, :a)"), "PK"),
        ("update_item", {"Key": KEY, "UpdateExpression": "SET copied = PK"}, "PK"),
        ("scan", {"FilterExpression": IS_ROOM | Attr("n").gt(3)}, "it looks at PK"),
        ("scan", {"FilterExpression": Attr("PK").size().gt(3)}, "it looks at PK"),
        ("scan", of(None, {":a": "r"}, FilterExpression="n > :a AND PK = :a"), "it looks at PK"),
        ("client.transact_write_items", {"TransactItems": [CHECK]}, "value of PK"),
    ]),
    "the partition key in an index that holds the shards' keys": ({}, NotImplementedError, [
        ("query", {**INVERTED, "KeyConditionExpression": Key("SK").eq("1") & Key("PK").eq("room")}, "PK"),
        ("query", {**INVERTED, "FilterExpression": IS_ROOM}, "PK"),
    ]),
    # By boto3 itself: a condition of the library's own must not take the place of the owner's.
    "a check without a condition": ({}, ParamValidationError, [
        ("client.transact_write_items", {"TransactItems": [PUT, CHECK_OF_NOTHING]}, "ConditionExpression"),
    ]),
    "what boto3 refuses": ({}, ParamValidationError, [
        ("put_item", {"Item": KEY, "ConditionExpression": None}, "ConditionExpression"),
        ("delete_item", {"Key": KEY, "ConditionExpression": 7}, "ConditionExpression"),
        ("update_item", {"Key": KEY, "UpdateExpression": None}, "UpdateExpression"),
        ("query", {**ROOM, "ExclusiveStartKey": "x"}, "ExclusiveStartKey"),
        *(
            ("client.transact_write_items", {"TransactItems": [action]}, words)
            for action, words in (({"Update": {**IN_TABLE, "Key": KEY}}, "UpdateExpression"), ({"Put": None}, "Put"))
        ),
        *(
            (method, {**request, "Other": 1}, "Unknown parameter in input: .Other")
            for method, request in (
                ("client.batch_write_item", {"RequestItems": {"readings": [{"PutRequest": {"Item": KEY}}]}}),
                ("client.transact_write_items", {"TransactItems": [PUT]}),
                ("client.transact_get_items", {"TransactItems": [GET]}),
            )
        ),
        *(
            ("client.batch_write_item", {"RequestItems": {"readings": writes}}, "readings")
            for writes in (None, ["x"], [{"PutRequest": None}], [{"Foo": {"Item": KEY}}])
        ),
    ]),
    # One after the other would be no transaction.
    "more places than a transaction reads": ({"shards": fixed(60), "hashed": at_random()}, NotImplementedError, [
        ("client.transact_get_items", {"TransactItems": [GET, GET_ANOTHER]}, "122 places"),
    ]),
    "a key that says something else": ({"hashed": SHOWN_BY_KEYS}, InvalidRequestError, [
        ("put_item", {"Item": {**KEY, "device": "d2"}}, "the item's key says 'd1'"),
        ("get_item", {"Key": KEY, "Hashed": "d2"}, "the item's key says 'd1'"),
    ]),
    # Another shard would be asked, or changed, than the item's.
    "a value of nothing": ({}, InvalidRequestError, [
        (method, {**request, "Hashed": "x"}, r"Hashed: .*hashed=by_attribute")
        for method, request in (
            ("get_item", {"Key": KEY}), ("update_item", {"Key": KEY}), ("delete_item", {"Key": KEY}), ("query", ROOM),
        )
    ]),
    "what the shard is chosen by": ({"hashed": by_attribute("device")}, InvalidRequestError, [
        ("put_item", {"Item": KEY}, "device"),
        ("update_item", {"Key": KEY, **OF_DEVICE}, "Hashed"),
        ("client.transact_write_items", {"TransactItems": [UPDATE]}, "Hashed"),
        *(
            ("update_item", of(None, values, Key=KEY, Hashed="d1", UpdateExpression=change), "put it anew")
            for change, values in (
                ("SET device = :new", {":new": "d2"}),
                ("SET n = :new, device = :new", {":new": "d2"}),
                ("SET device = n", None),
                ("REMOVE device", None),
                ("ADD n :one, device :one", {":one": 1}),
                ("SET device = :old + :one", {":old": 1, ":one": 1}),
            )
        ),
    ]),
    "what is no position": ({"position": lambda _: 1.5}, TypeError, [
        ("put_item", {"Item": KEY}, r"position\('0001'\) is 1\.5: should be a whole number, or None"),
    ]),
    "placeholders of the library": ({}, InvalidRequestError, [
        (method, {**request, parameter: f"{before}{name}", "ExpressionAttributeNames": {name: "colour"}}, name)
        for name in ("#hpp", "#hp0", "#hpn1", "#hpc")
        for method, request, parameter, before in (
            ("update_item", {"Key": KEY}, "UpdateExpression", "REMOVE "), ("query", ROOM, "ProjectionExpression", ""),
        )
    ]),
    "attributes of the library": ({}, InvalidRequestError, [
        (method, request, name)
        for name in ("hp_changes", "hp_shards", "hp_noted")
        for method, request in (
            ("update_item", of(name, Key=KEY, UpdateExpression="REMOVE #a")),
            ("put_item", {"Item": {**KEY, name: 1}}),
            ("create_item", {"Item": {**KEY, name: 1}}),
        )
    ]),
    "keys": ({}, InvalidRequestError, [
        ("create_item", {"Item": {"PK": "room"}}, "PK and SK"),
        ("create_item", {"Item": {**KEY, "PK": "room#_1"}}, "PK"),
        # It could not be told from a shard of `room`.
        ("put_item", {"Item": {"PK": "room#_0", "SK": "1"}}, "do not end like a shard key"),
        ("get_item", {"Key": {"PK": "room#_7", "SK": "1"}}, "do not end like a shard key"),
        ("query", {"KeyConditionExpression": Key("PK").eq("a#_12")}, "do not end like a shard key"),
    ]),
    # Whoever changes a routing item hides items, or keeps all reads from working.
    "keys beside a journal": ({"shards": in_band(environ={})}, InvalidRequestError, [
        ("get_item", {"Key": ROUTING_ITEM}, "reserved"),
        ("update_item", {"Key": ROUTING_ITEM}, "reserved"),
        ("delete_item", {"Key": ROUTING_ITEM}, "reserved"),
        ("batch.delete_item", {"Key": ROUTING_ITEM}, "reserved"),
        ("put_item", {"Item": {"PK": LOAD_PREFIX + "room", "SK": "1"}}, "reserved"),
    ]),
    "time buckets": ({"indexes": [BUCKETS]}, (InvalidRequestError, NotImplementedError, ValueError), [
        ("put_item", {"Item": {"PK": "a", "SK": "2026-11-21T09", "owner": "ann"}}, "owner"),
        ("put_item", {"Item": {"PK": "a", "SK": "not a time"}}, "isoformat"),
        ("query", {**between("2026-11-21", "2026-11-22"), "ConsistentRead": True}, "Query the table"),
        ("query", {**between("2026-11-21", "2026-11-22"), "ExclusiveStartKey": "x"}, "as LastEvaluatedKey"),
        ("query", {"IndexName": "by-owner", **ROOM}, "both ends"),
        ("query", {**between("1", "2"), "KeyConditionExpression": Key("PK").eq("a") & Key("SK").gt("2")}, "both ends"),
        ("query", between("2026-01-01", "2026-11-21"), "larger buckets"),
    ]),
    "a sharded index": ({"indexes": [SHARDED]}, InvalidRequestError, [
        *(("put_item", {"Item": {**KEY, "status": value}}, "should be a text") for value in (1, "", None, {"a"})),
        ("batch.put_item", {"Item": {**KEY, "status": 1}}, "should be a text"),
        ("put_item", {"Item": {**KEY, "status": "OPEN#_3"}}, "like a shard key"),  # no query could name it
        ("put_item", {"Item": {**KEY, "owner": "OPEN#_1"}}, "owner"),
        ("update_item", {"Key": KEY, **updating("SET owner = :s", s="OPEN#_1")}, "owner"),
        *(
            ("update_item", of("status", {":s": "OPEN", ":n": 1}, Key=KEY, UpdateExpression=change), "status")
            for change in (
                "SET #a = if_not_exists(#a, :s)", "SET #a = a", "SET #a = :n + :n", "SET #a = :n", "ADD #a :n",
            )
        ),
    ]),
    "another query's cursor": ({"indexes": [SHARDED]}, ValueError, [
        ("query", {**OF_STATUS, "ExclusiveStartKey": start}, "LastEvaluatedKey")
        for start in ({"status": "OPEN"}, KEY, {"status": "DONE", "owner": {}})
    ]),
    "what cannot be cached": ({"cache": ReadCache()}, (NotImplementedError, TypeError), [
        (method, {**request, **options}, rf"{method}\(cache=.*{words}")
        for method, request in (("get_item", {"Key": KEY}), ("get_items", {"keys": [KEY]}), ("query", ROOM))
        for options, words in (
            ({"cache": True, "ConsistentRead": True}, r"ConsistentRead=True\): a cached"),
            ({"cache": ReadCache()}, r"ReadCache.*: should be True or False"),
        )
    ]),
    # By boto3 itself: a guarded client takes what boto3's takes.
    "the cache of a client": ({"cache": ReadCache()}, ParamValidationError, [
        (f"client.{method}", {**IN_TABLE, **request, "cache": cache}, "cache")
        for method, request in (("get_item", {"Key": KEY}), ("query", ROOM))
        for cache in (True, False)
    ]),
    "another table": ({}, TypeError, [
        (method, {**request, "TableName": "twin"}, "TableName")
        for method, request in (
            ("put_item", {"Item": KEY}), ("update_item", {"Key": KEY}), ("delete_item", {"Key": KEY}),
        )
    ]),
    "a cache that the table has not": ({}, NotImplementedError, [
        (method, {**request, "cache": True}, rf"{method}\(cache=True\): this table has no cache\. Write .*seconds=1")
        for method, request in (("get_item", {"Key": KEY}), ("get_items", {"keys": [KEY]}), ("query", ROOM))
    ]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "error", "method", "request_", "words"),
    [
        pytest.param(options, error, *row, id=f"{name}: {row[0]} {row[2]}")
        for name, (options, error, rows) in REFUSED.items()
        for row in rows
    ],
)
def test_a_call(plain, watched, options, error, method, request_, words):
    """Nothing is written, and no page is read."""
    table = ShardedTable(plain, **{"shards": FIXED, **options})
    of_what, _, name = method.rpartition(".")
    with pytest.raises(error, match=words), table.batch_writer() as batch:
        getattr({"": table, "client": table.meta.client, "batch": batch}[of_what], name)(**request_)
    assert watched.sent.keys() <= {"DescribeTable", "BatchGetItem"}


@pytest.mark.parametrize(
    "method",
    ["transact_write_items", "transact_get_items", "execute_statement", "batch_get_item", "batch_write_item"],
)
def test_methods_of_clients(plain, method):
    """Tables do not have them: whoever looks for them here learns why."""
    table = ShardedTable(plain, shards=FIXED)
    with pytest.raises(NotImplementedError, match="Use"):
        getattr(table, method)
    assert not hasattr(table, method)
