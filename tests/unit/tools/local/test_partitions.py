from __future__ import annotations

from tools.local.partitions import Demand, PartitionKey, PartitionModel, Throttle, Timeline, TimelineRow
from tools.partition_model import Kind

TABLE = "arn:aws:dynamodb:eu-central-1:123456789012:table/t"
HOT = PartitionKey(TABLE, "hot")
COLD = PartitionKey(TABLE, "cold")
INDEX = PartitionKey(f"{TABLE}/index/i", "03")


def _write(key: PartitionKey, units: float) -> list[Demand]:
    return [Demand(key, Kind.WRITE, units)]


def test_a_partition_takes_one_second_of_writes_and_then_refuses() -> None:
    """A full bucket holds exactly one second's worth."""
    model = PartitionModel(write_limit_wcu=3)
    responses = [model.admit(_write(HOT, 1), 0.0) for _ in range(4)]
    assert responses == [None, None, None, Throttle(HOT, Kind.WRITE)]


def test_a_partition_recovers_at_its_rate() -> None:
    """After a tenth of a second, a tenth of the limit is there again."""
    model = PartitionModel(write_limit_wcu=10)
    assert model.admit(_write(HOT, 10), 0.0) is None
    assert model.admit(_write(HOT, 1), 0.05) is not None
    assert model.admit(_write(HOT, 1), 0.1) is None
    assert model.admit(_write(HOT, 1), 0.1) is not None


def test_unused_capacity_is_not_saved_beyond_a_second() -> None:
    """Burst capacity does not lift the limit of a partition."""
    model = PartitionModel(write_limit_wcu=2)
    admitted = sum(model.admit(_write(HOT, 1), 300.0) is None for _ in range(10))
    assert admitted == 2


def test_a_write_larger_than_a_second_is_admitted_once_and_leaves_a_debt() -> None:
    """An item of 400 KB can be written to a partition that takes 10 units a second."""
    model = PartitionModel(write_limit_wcu=10)
    assert model.admit(_write(HOT, 400), 0.0) is None
    assert model.admit(_write(HOT, 1), 39.0) is not None
    assert model.admit(_write(HOT, 1), 39.2) is None


def test_keys_and_kinds_are_limited_apart() -> None:
    """A key that is out of writes can be read, and another key can be written."""
    model = PartitionModel(write_limit_wcu=1, read_limit_rcu=1)
    assert model.admit(_write(HOT, 1), 0.0) is None
    assert model.admit(_write(HOT, 1), 0.0) is not None
    assert model.admit(_write(COLD, 1), 0.0) is None
    assert model.refuses(HOT, Kind.READ, 0.0) is None


def test_a_read_is_admitted_while_anything_is_left_and_charged_afterwards() -> None:
    """A read's cost is known when it is over; what it took too much is paid back by time."""
    model = PartitionModel(read_limit_rcu=2)
    assert model.refuses(HOT, Kind.READ, 0.0) is None
    model.charge(Demand(HOT, Kind.READ, 4.0), 0.0)
    assert model.refuses(HOT, Kind.READ, 1.0) == Throttle(HOT, Kind.READ)
    assert model.refuses(HOT, Kind.READ, 1.01) is None


def test_a_demand_on_several_partitions_takes_all_or_nothing() -> None:
    """A write that its index refuses leaves the table's partition untouched."""
    model = PartitionModel(write_limit_wcu=1)
    assert model.admit(_write(INDEX, 1), 0.0) is None
    both = _write(HOT, 1) + _write(INDEX, 1)
    throttle = model.admit(both, 0.0)
    assert throttle is not None
    assert throttle.reason == "IndexWriteKeyRangeThroughputExceeded"
    assert model.admit(_write(HOT, 1), 0.0) is None


def test_reasons_are_dynamodbs_words() -> None:
    """The reason names resource, operation and limit."""
    reasons = [Throttle(key, kind).reason for key in (HOT, INDEX) for kind in Kind]
    assert reasons == [
        "TableReadKeyRangeThroughputExceeded",
        "TableWriteKeyRangeThroughputExceeded",
        "IndexReadKeyRangeThroughputExceeded",
        "IndexWriteKeyRangeThroughputExceeded",
    ]


def test_idle_partitions_are_forgotten() -> None:
    """Memory follows the keys in use, not the keys ever used."""
    model = PartitionModel(write_limit_wcu=10)
    for number in range(20_000):
        model.admit(_write(PartitionKey(TABLE, str(number)), 1), number * 0.01)
    assert model._resources[TABLE].partition_count <= 2048


def test_several_demands_on_one_partition_are_one_demand() -> None:
    """A transaction cannot take two times what is left of a partition."""
    model = PartitionModel(write_limit_wcu=10)
    assert model.admit(_write(HOT, 5), 0.0) is None
    assert model.admit(_write(HOT, 3) + _write(HOT, 3), 0.0) == Throttle(HOT, Kind.WRITE)
    assert model.admit(_write(HOT, 3) + _write(HOT, 2), 0.0) is None


def test_keys_share_a_given_number_of_partitions() -> None:
    """With one partition for all, a key's neighbour uses up what is left; an index has partitions of its own."""
    model = PartitionModel(write_limit_wcu=3, partitions=1)
    assert model.admit(_write(HOT, 3), 0.0) is None
    assert model.admit(_write(COLD, 1), 0.0) == Throttle(COLD, Kind.WRITE)
    assert model.admit(_write(INDEX, 3), 0.0) is None


def test_the_timeline_counts_by_slot_and_key() -> None:
    """Rows are aligned to 250 ms and filtered by their start."""
    timeline = Timeline()
    timeline.note(Demand(HOT, Kind.WRITE, 2), 1_000)
    timeline.note(Demand(HOT, Kind.WRITE, 1), 1_249)
    timeline.note(Demand(HOT, Kind.WRITE, 3), 1_250, is_refused=True)
    timeline.note(Demand(COLD, Kind.READ, 0.5), 1_300)
    assert timeline.rows_since(1_250) == [
        TimelineRow(1_250, HOT.value, table="t", throttled_writes=1, throttled_wcu=3),
        TimelineRow(1_250, COLD.value, table="t", reads=1, read_rcu=0.5),
    ]
    assert timeline.rows_since(0)[0] == TimelineRow(1_000, HOT.value, table="t", writes=2, write_wcu=3)


def test_the_timeline_drops_its_oldest_slots() -> None:
    """The number of rows is bounded."""
    timeline = Timeline(max_rows=10)
    for number in range(100):
        timeline.note(Demand(HOT, Kind.WRITE, 1), number * 250)
    assert [row.at_ms // 250 for row in timeline.rows_since(0)] == list(range(90, 100))
