"""The limits, with numbers worked out by hand or taken from AWS's pages."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from tools.limits import (
    REASONS,
    Demand,
    Kind,
    OnDemand,
    Partitions,
    Resource,
    Table,
    TableConfig,
    admit,
    position_of,
)

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/t"


def build(**changes):
    return Table(TableConfig(**{"arn": ARN, **changes}))


def admitted(table, keys, *, per_second, seconds, start=0.0):
    """Offer single writes of 1 WCU to the keys in turn, from the start to the end; count those that were admitted."""
    turns = itertools.cycle(keys)
    return sum(
        table.write(next(turns), 1, start + number / per_second) is None for number in range(per_second * seconds + 1)
    )


def test_one_key_takes_1000_wcu_and_3000_rcu_a_second():
    """Ten seconds of twice the limits: ten seconds' worth, and the second's worth that was saved."""
    table = build()
    assert admitted(table, ["hot"], per_second=2000, seconds=10) == 11_000
    reads = sum(table.read("hot", 1, number / 6000) is None for number in range(60_001))
    assert reads == 33_000


def test_key_range_and_account_throttles_tell_themselves_apart():
    """A table of 64 partitions: one key meets its partition's limit, even traffic the account's 40,000 a second."""
    table = build(throughput=OnDemand(warm_wcu=64_000))
    assert table.write_many("hot", 5000, 1.0, 1.0).throttle.reason == "TableWriteKeyRangeThroughputExceeded"
    table = build(throughput=OnDemand(warm_wcu=64_000))
    first = table.write_evenly(64_000, 1.0, 1.0)
    assert (first.units, first.throttle) == (64_000, None), "one second's worth was saved"
    taken = sum(table.write_evenly(64_000, second, 1.0).units for second in range(2, 12))
    assert taken == pytest.approx(40_000 * 10 + (80_000 - 64_000))
    assert table.throttled == {"TableWriteAccountLimitExceeded": 10}


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("is_index", [False, True])
@pytest.mark.parametrize(
    ("limit", "throughput"),
    [("AccountLimitExceeded", OnDemand(quota_wcu=10, quota_rcu=10)), ("KeyRangeThroughputExceeded", OnDemand())],
)
def test_each_reason_is_met(kind, is_index, limit, throughput):
    """Table and index, reads and writes, both limits; the resource is an ARN and never the key."""
    assert len(REASONS) == 16
    arn = f"{ARN}/index/i" if is_index else ARN
    resource = Resource(arn, throughput, Partitions(count=1), is_index=is_index)
    ask = partial(resource.read if kind is Kind.READ else resource.write, "secret", 1, 0.0)
    throttle = next(response for response in iter(ask, "never") if response is not None)
    assert throttle.reason == f"{'Index' if is_index else 'Table'}{kind}{limit}"
    assert throttle.reason in REASONS
    assert throttle.resource == arn
    assert "secret" not in repr(throttle)


def test_a_throttled_index_refuses_its_tables_write_and_leaves_the_table_untouched():
    """Even keys, but an index keyed by one status: 1,000 writes, then the index's reason; the table loses nothing."""
    table, index = build(), Resource(f"{ARN}/index/by-status", OnDemand(), Partitions(), is_index=True)
    entry = Demand(index, Kind.WRITE, "open", 1)
    refusals = [admit([Demand(table, Kind.WRITE, f"k{n}", 1), entry], 0.0) for n in range(1500)]
    assert refusals.count(None) == 1000
    assert refusals[-1].demand == entry
    assert refusals[-1].throttle.reason == "IndexWriteKeyRangeThroughputExceeded"
    assert refusals[-1].throttle.resource == f"{ARN}/index/by-status"
    assert table.consumed(Kind.WRITE) == index.consumed(Kind.WRITE) == 1000
    assert index.throttled == {"IndexWriteKeyRangeThroughputExceeded": 500}


def test_what_one_partition_is_asked_for_is_one_demand():
    """600 units out of one key and 600 into another on the same partition are 1,200, which it does not have."""
    table = build(partitions=Partitions(count=1))
    moved = [Demand(table, Kind.WRITE, key, 600) for key in ("old", "new")]
    assert admit(moved[:1], 0.0) is None
    assert admit(moved, 0.0).throttle.reason == "TableWriteKeyRangeThroughputExceeded"
    assert admit(moved, 0.8) is None, "a full bucket admits a request of more than a second's worth"
    assert admit(moved[:1], 1.5) is not None, "and is in debt then"


def test_a_read_of_unknown_cost_is_admitted_while_anything_is_left():
    """Its cost is charged afterwards, may leave a debt, and a negative charge gives back."""
    table = build()
    assert table.refuses(Kind.READ, "a", 0.0) is None
    table.charge(Kind.READ, "a", 4500, 0.0)
    assert table.refuses(Kind.READ, "a", 0.4).reason == "TableReadKeyRangeThroughputExceeded"
    assert table.refuses(Kind.READ, "a", 0.51) is None
    table.charge(Kind.READ, "a", -4500, 0.51)
    assert table.read("a", 3000, 0.51) is None


def test_where_keys_lie_is_pinned():
    """The same on every machine."""
    assert position_of("") == 0xE4A6A0577479B2B4
    assert position_of("room-1#0") == 0x43899AFC8DE3245C
    assert [build().partition_index(f"party#{shard}") for shard in range(4)] == [0, 0, 3, 1]
    assert [build().partition_index(f"news#{shard}") for shard in range(4)] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("throughput", "partitions"),
    [
        (OnDemand(), 4),
        (OnDemand(warm_wcu=32_000), 32),
        (OnDemand(warm_rcu=30_000), 10),
        (OnDemand(warm_wcu=4001), 5),
    ],
)
def test_throughput_decides_the_number_of_partitions(throughput, partitions):
    """As many as carry the warm throughput, evenly spread; a table on demand starts with four."""
    table = build(throughput=throughput)
    assert table.partition_count == partitions
    assert table.shares == pytest.approx([1 / partitions] * partitions)


def test_keys_apart_have_each_a_partition_and_are_forgotten_when_full():
    """The neighbour of a hot key notices nothing; memory follows the keys in use, and the counts stay right."""
    table = build(partitions=Partitions(is_key_apart=True, write_limit_wcu=10), throughput=OnDemand(quota_wcu=None))
    assert table.write("hot", 10, 0.0) is None
    assert table.write("hot", 1, 0.0).reason == "TableWriteKeyRangeThroughputExceeded"
    assert all(table.write(f"k{number}", 10, number * 0.01) is None for number in range(20_000))
    assert table.partition_count < 2100
    assert table.consumed(Kind.WRITE) == 200_010
    with pytest.raises(ValueError, match="no share of the positions"):
        table.write_evenly(1, 300.0, 1.0)


def test_a_key_apart_that_is_in_debt_is_not_forgotten():
    """Only full buckets are: a read's debt outlives the write bucket's rest."""
    unlimited = OnDemand(quota_wcu=None, quota_rcu=None)
    table = build(partitions=Partitions(is_key_apart=True), throughput=unlimited)
    table.charge(Kind.READ, "debtor", 3_000_000, 0.0)
    for number in range(5000):
        table.write(f"k{number}", 1, 10.0 + number * 0.01)
    assert table.refuses(Kind.READ, "debtor", 61.0) is not None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OnDemand(quota_wcu=0), "quota_wcu should be a number greater than 0, not 0"),
        (lambda: OnDemand(warm_rcu=float("inf")), "warm_rcu should be a number greater than 0"),
        (lambda: Partitions(count=0), "count should be a number greater than 0"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_sentence(make, message):
    """Nothing is corrected silently."""
    with pytest.raises(ValueError, match=message):
        make()
