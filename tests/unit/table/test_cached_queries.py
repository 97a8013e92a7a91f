"""`query(cache=True)`: newest pages of what is read-hot, as boto3 gives them; everything else is read."""

import copy
from decimal import Decimal
from itertools import count

import pytest
from boto3.dynamodb.conditions import Attr, Key
from boto3.dynamodb.types import Binary

from hotpartition.core.errors import MalformedPageError
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.table import ShardedTable, fixed
from hotpartition.table.cached_queries import QueryCodec
from support.adaptive import AdaptiveShards
from support.page_store import FakePageStore

PLACE = JournalPlace("readings", "PK", "SK", "~route")
NEWEST = {"KeyConditionExpression": Key("PK").eq("room"), "ScanIndexForward": False, "Limit": 3}
OF_ALL_KINDS = {
    "number": Decimal("1.50"),
    "text": "ü",
    "flag": True,
    "nothing": None,
    "bytes": Binary(b"\x00\xff"),
    "texts": {"a", "b"},
    "numbers": {Decimal(1), Decimal("2.5")},
    "many": {Binary(b"x")},
    "list": [Decimal(1), "a", {"base64": "no bytes"}],
    "map": {"base64": {"base64": "no bytes either"}},
}


class Fleet(AdaptiveShards):
    """Processes that share a Redis, and one table."""

    def __init__(self, plain):
        super().__init__(PLACE, route_cache_seconds=60.0, sampling_distance_wcu=1000.0)
        self.plain = plain
        self.store = FakePageStore(lambda: self.clock.now_ms)
        self.ids = count()

    def process(self):
        return ShardedTable(self.plain, shards=self, clock=self.clock.as_clock(), append_only=True)

    def build_routes(self, table, schema, clock, budget_ms):
        process_id = f"p{next(self.ids)}"
        return super().build_routes(table, schema, clock, budget_ms, process_id=process_id, page_store=self.store)


@pytest.fixture
def fleet(plain):
    """With five items of a key that is read-hot."""
    fleet = Fleet(plain)
    fleet.registry.mark_read_hot("room")
    table = fleet.process()
    for number in range(5):
        table.put_item(Item={"PK": "room", "SK": f"{number}", **OF_ALL_KINDS})
    fleet.reports.sent.clear()
    return fleet


def without_metadata(page):
    return {name: value for name, value in page.items() if name != "ResponseMetadata"}


def test_a_cached_page_is_the_page_that_was_read(fleet, watched):
    """In every process: items of all types, counts, and the key to go on from; with its age, like HTTP's."""
    first, second = fleet.process(), fleet.process()
    read = first.query(**NEWEST)
    expected = without_metadata(read)
    assert [item["SK"] for item in read["Items"]] == ["4", "3", "2"]
    assert read["Items"][0] == {"PK": "room", "SK": "4", **OF_ALL_KINDS}
    watched.sent.clear()
    assert without_metadata(first.query(**NEWEST, cache=True)) == expected
    assert watched.sent["Query"] == 1
    fleet.clock.now_ms += 200
    for process in (first, second, second):
        page = process.query(**NEWEST, cache=True)
        assert without_metadata(page) == expected
        assert page["ResponseMetadata"]["HTTPHeaders"] == {"age": "1"}
    assert watched.sent["Query"] == 1
    rest = second.query(**NEWEST, cache=True, ExclusiveStartKey=page["LastEvaluatedKey"])
    assert [item["SK"] for item in rest["Items"]] == ["1", "0"]


def test_a_last_page_has_no_key_to_go_on_from(fleet):
    table = fleet.process()
    pages = [table.query(**{**NEWEST, "Limit": 9}, cache=True) for _ in range(2)]
    assert [len(page["Items"]) for page in pages] == [5, 5]
    assert not any("LastEvaluatedKey" in page for page in pages)


def test_who_changes_a_page_changes_no_other(fleet):
    """What is cached is nobody's."""
    table = fleet.process()
    first = table.query(**NEWEST, cache=True)
    expected = copy.deepcopy(without_metadata(first))
    for page in (first, table.query(**NEWEST, cache=True)):
        page["Items"][0]["map"]["base64"].clear()
        page["Items"].clear()
        page["LastEvaluatedKey"].clear()
    assert without_metadata(table.query(**NEWEST, cache=True)) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"ConsistentRead": True},
        {"ScanIndexForward": True},
        {"Limit": None},
        {"FilterExpression": Attr("flag").eq(True)},
        {"KeyConditionExpression": Key("PK").eq("room") & Key("SK").gt("0")},
        {"ExclusiveStartKey": {"PK": "room", "SK": "3"}},
        {"ReturnConsumedCapacity": "TOTAL"},
        {"Select": "COUNT"},
        {"IndexName": "by-status"},
        {"cache": False},
    ],
)
def test_everything_else_is_read(fleet, watched, change):
    table = fleet.process()
    request = {name: value for name, value in {**NEWEST, "cache": True, **change}.items() if value is not None}
    table.query(**request)
    sent = watched.sent["Query"]
    table.query(**request)
    assert watched.sent["Query"] == 2 * sent
    assert fleet.store.calls == []


def test_each_limit_and_projection_is_a_page_of_its_own(fleet):
    """Nobody gets another's attributes."""
    table = fleet.process()
    names = {"ProjectionExpression": "#s, PK", "ExpressionAttributeNames": {"#s": "SK"}}
    pages = [table.query(**NEWEST, **options, cache=True) for options in ({}, names, {}, names)]
    assert [len(page["Items"][0]) for page in pages] == [12, 2, 12, 2]
    assert len(fleet.store.pages) == 6


def test_what_is_not_read_hot_is_read_and_counted(fleet, watched):
    """Without a call more: that is how it is found."""
    table = fleet.process()
    for number in range(3):
        table.put_item(Item={"PK": "cold", "SK": f"{number}"})
    fleet.reports.sent.clear()
    request = {**NEWEST, "KeyConditionExpression": Key("PK").eq("cold")}
    table.query(**request)
    reads = fleet.registry.reads
    watched.sent.clear()
    for _ in range(3):
        table.query(**request, cache=True)
    assert (watched.sent, fleet.registry.reads, fleet.store.calls) == ({"Query": 3}, reads, [])
    assert {report.collection for report in fleet.reports.sent} == {"cold"}


def test_a_refused_read_shows_the_last_page(fleet, watched):
    """Within the bound; then boto3's own error."""
    table = fleet.process()
    expected = without_metadata(table.query(**NEWEST, cache=True))
    watched.refuses = lambda operation, _: "TableReadKeyRangeThroughputExceeded" if operation == "Query" else None
    fleet.clock.now_ms += 1_500
    assert without_metadata(table.query(**NEWEST, cache=True)) == expected
    fleet.clock.now_ms += 1_500
    with pytest.raises(table.meta.client.exceptions.ProvisionedThroughputExceededException):
        table.query(**NEWEST, cache=True)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"Items": [], "LastEvaluatedKey": null}', '{"Items": [{"X": 1}], "Count": 1}'],
)
def test_what_is_no_response_is_said_to_be_none(text):
    """Of another version, or not ours."""
    with pytest.raises(MalformedPageError):
        QueryCodec().decode(text)


def test_fixed_shards_refuse_it(plain):
    """Nobody finds out what is read-hot; the error says what to do."""
    table = ShardedTable(plain, shards=fixed(4))
    with pytest.raises(NotImplementedError, match=r"query\(cache=True\): only adaptive\(\).*Leave it out"):
        table.query(**NEWEST, cache=True)
