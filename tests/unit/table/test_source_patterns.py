"""The three classes of the write-sharding article, as a few lines over a `ShardedTable`, and what they leave out.

Their behaviour: a random suffix with scatter-gather reads, a suffix calculated from the device, and a second view by
time. What the article leaves to its readers is here as well: pages, ranges across buckets, retries, and a larger N.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

import pytest
from boto3.dynamodb.conditions import Key

from hotpartition.core.backoff import Clock
from hotpartition.table import ShardedTable, TimeBuckets, at_random, by_attribute, fixed

KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"
START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
BASE = "SENSOR_READING#2026-11-21"


class TimeSeries:
    """The writer and the reader of the random suffix: a table whose items are only ever created."""

    def __init__(self, table, shards, **options):
        self.table = ShardedTable(table, shards=shards, hashed=at_random(), append_only=True, **options)
        self._numbers = count()

    def write_event(self, base_pk, at, payload):
        self.table.put_item(Item={"PK": base_pk, "SK": f"{at.isoformat()}#{next(self._numbers)}", "payload": payload})

    def get_events_for_range(self, base_pk, start, end, **page):
        between = Key("PK").eq(base_pk) & Key("SK").between(start.isoformat(), end.isoformat())
        pages = self.table.query_pages(KeyConditionExpression=between, **page)
        return [item for page in pages for item in page["Items"]]


class DeviceSeries:
    """The writer and the reader of the calculated suffix: the device decides the shard."""

    def __init__(self, table, shards):
        self.table = ShardedTable(table, shards=shards, hashed=by_attribute("device_id"))

    def write_event(self, base_pk, at, device, payload):
        key = {"PK": base_pk, "SK": f"{at.isoformat()}#{device}"}
        self.table.put_item(Item={**key, "device_id": device, "payload": payload})

    def get_events_for_key(self, base_pk, device, start, end):
        between = Key("PK").eq(base_pk) & Key("SK").between(start.isoformat(), end.isoformat())
        page = self.table.query(
            KeyConditionExpression=between,
            FilterExpression="device_id = :device",
            ExpressionAttributeValues={":device": device},
        )
        return page["Items"]

    def get_all_events_for_range(self, base_pk, start, end):
        between = Key("PK").eq(base_pk) & Key("SK").between(start.isoformat(), end.isoformat())
        return self.table.query(KeyConditionExpression=between)["Items"]


class TimeView:
    """The service with a second view by time: writes at random shards, ranges from an index with buckets."""

    def __init__(self, table, shards):
        self.table = ShardedTable(
            table,
            shards=shards,
            hashed=at_random(),
            append_only=True,
            time_buckets=TimeBuckets("hour", index="by-owner"),
        )

    def write_event(self, entity_id, at, payload):
        self.table.put_item(Item={"PK": entity_id, "SK": at.isoformat(), "payload": payload})

    def get_events_for_range(self, entity_id, start, end, **page):
        between = Key("PK").eq(entity_id) & Key("SK").between(start.isoformat(), end.isoformat())
        pages = self.table.query_pages(IndexName="by-owner", KeyConditionExpression=between, **page)
        return [item for found in pages for item in found["Items"]]


def minutes(number):
    return START + timedelta(minutes=number)


def numbers(events):
    return [int(event["payload"]["n"]) for event in events]


def stored_keys(plain):
    return {item["PK"] for item in plain.scan()["Items"]}


def fill(series, events=60, first=0):
    for number in range(first, first + events):
        series.write_event(BASE, minutes(number), {"n": number})


class TestRandomSuffix:
    def test_writes_spread_over_the_shards(self, plain):
        """As `ShardedTimeSeriesWriter`: under the keys `base#_0` to `base#_(N-1)`."""
        fill(TimeSeries(plain, fixed(4)))
        assert stored_keys(plain) == {f"{BASE}#_{shard}" for shard in range(4)}

    def test_a_range_is_gathered_and_sorted(self, plain):
        """As `ShardedTimeSeriesReader`: all shards, sorted; under the key that was written, not a shard's."""
        series = TimeSeries(plain, fixed(4))
        fill(series)
        events = series.get_events_for_range(BASE, minutes(10), minutes(49.5))
        assert numbers(events) == list(range(10, 50))
        assert {event["PK"] for event in events} == {BASE}

    def test_a_range_comes_in_pages(self, plain):
        """The article's reader stops at the first page of each shard; this one goes on, in both directions."""
        series = TimeSeries(plain, fixed(4))
        fill(series)
        assert numbers(series.get_events_for_range(BASE, minutes(0), minutes(60), Limit=7)) == list(range(60))
        newest = series.get_events_for_range(BASE, minutes(0), minutes(60), Limit=7, ScanIndexForward=False)
        assert numbers(newest) == list(reversed(range(60)))

    def test_a_larger_n_later_loses_nothing(self, plain):
        """Both numbers stand in the code, so all shards of both are read."""
        fill(TimeSeries(plain, fixed(4)))
        series = TimeSeries(plain, fixed(4, 16))
        fill(series, events=100, first=60)
        assert numbers(series.get_events_for_range(BASE, minutes(0), minutes(200))) == list(range(160))
        assert len(stored_keys(plain)) > 4

    def test_what_was_written_before_sharding_is_found(self, plain):
        """The article's readers do not look at the key without a suffix."""
        plain.put_item(Item={"PK": BASE, "SK": minutes(0).isoformat(), "payload": {"n": 0}})
        series = TimeSeries(plain, fixed(4))
        fill(series, events=5, first=1)
        assert numbers(series.get_events_for_range(BASE, minutes(0), minutes(10))) == list(range(6))


class TestRetries:
    """`# Implement retry logic with exponential backoff and jitter here`, says the article."""

    @pytest.fixture
    def waits(self):
        return []

    @pytest.fixture
    def clock(self, waits):
        now = [0.0]

        def sleep(seconds):
            waits.append(seconds)
            now[0] += 1_000 * seconds

        return Clock(now_ms=lambda: int(now[0]), sleep=sleep, random=Random(1).random)

    def test_a_refused_write_is_repeated_with_jitter(self, plain, watched, clock, waits):
        """It waits longer and longer at most, by chance less, and stores the event once."""
        series = TimeSeries(plain, fixed(4), clock=clock)
        refusals = iter([KEY_RANGE] * 3)
        watched.refuses = lambda operation, body: next(refusals, None) if operation == "PutItem" else None
        series.write_event(BASE, START, {"n": 1})
        assert watched.sent["PutItem"] == 4
        assert len(set(waits)) == len(waits) == 3
        assert all(wait <= limit for wait, limit in zip(waits, (0.02, 0.04, 0.08), strict=True))
        assert numbers(series.get_events_for_range(BASE, START, minutes(1))) == [1]

    def test_it_gives_up_after_its_budget(self, plain, watched, clock, waits):
        """With an error, never with a `False` that a caller can overlook."""
        series = TimeSeries(plain, fixed(4), clock=clock, budget_ms=200)
        watched.refuses = lambda operation, body: KEY_RANGE if operation == "PutItem" else None
        with pytest.raises(plain.meta.client.exceptions.ProvisionedThroughputExceededException):
            series.write_event(BASE, START, {"n": 1})
        assert sum(waits) < 0.2


@pytest.fixture(scope="class")
def series(kept):
    """A reading a minute, from six devices in turn."""
    series = DeviceSeries(kept, fixed(8))
    for number in range(60):
        series.write_event(BASE, minutes(number), f"dev-{number % 6}", {"n": number})
    return series


class TestCalculatedSuffix:
    def test_one_device_lies_on_one_shard(self, series, kept):
        """As `CalculatedShardedWriter`."""
        shards = {}
        for item in kept.scan()["Items"]:
            shards.setdefault(item["device_id"], set()).add(item["PK"])
        assert all(len(keys) == 1 for keys in shards.values())
        assert len(set.union(*shards.values())) > 1

    def test_a_read_of_one_device_asks_its_shard_and_the_base_key(self, series, watched):
        """As `CalculatedShardedReader`; the base key holds what was written before sharding."""
        events = series.get_events_for_key(BASE, "dev-2", minutes(0), minutes(60))
        assert numbers(events) == list(range(2, 60, 6))
        assert len(watched.queried) == 2

    def test_without_the_device_all_shards_are_read(self, series, watched):
        """What the article leaves as `pass`."""
        assert numbers(series.get_all_events_for_range(BASE, minutes(0), minutes(60))) == list(range(60))
        assert len(watched.queried) == 9

    def test_a_larger_n_later_finds_a_device_everywhere(self, plain, watched):
        """Where N is simply changed in the article, a device's older events are lost to its reader."""
        smaller, larger = DeviceSeries(plain, fixed(8)), DeviceSeries(plain, fixed(8, 13))
        for number in range(48):
            series = smaller if number < 24 else larger
            series.write_event(BASE, minutes(number), f"dev-{number % 6}", {"n": number})
        events = larger.get_events_for_key(BASE, "dev-2", minutes(0), minutes(90))
        assert numbers(events) == list(range(2, 48, 6))
        assert len(watched.queried) <= 3


@pytest.fixture(scope="class")
def service(kept):
    """150 minutes of events."""
    service = TimeView(kept, fixed(4))
    fill(service, events=150)
    return service


class TestTimeBuckets:
    def test_a_range_within_one_bucket(self, service):
        """As `GsiShardedService`."""
        events = service.get_events_for_range(BASE, minutes(5), minutes(25))
        assert numbers(events) == list(range(5, 26))
        assert {event["PK"] for event in events} == {BASE}

    @pytest.mark.parametrize("newest_first", [False, True])
    def test_a_range_across_buckets(self, service, newest_first):
        """`A production implementation must handle ranges spanning multiple buckets`: in pages, in both directions."""
        events = service.get_events_for_range(
            BASE, minutes(10), minutes(140), Limit=17, ScanIndexForward=not newest_first
        )
        expected = list(range(10, 141))
        assert numbers(events) == (expected[::-1] if newest_first else expected)

    def test_no_index_key_gets_all_writes_of_an_hour(self, service, kept):
        """In the article every write of an entity and hour goes to one key of the index, which refuses them then."""
        writes = {}
        for item in kept.scan()["Items"]:
            writes[item["owner"]] = writes.get(item["owner"], 0) + 1
        assert len(writes) == 3 * 4
        assert max(writes.values()) < 40
