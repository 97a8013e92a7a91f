from __future__ import annotations

from tools.local.partitions import Demand, PartitionKey, PartitionModel, Timeline, TimelineRow
from tools.partition_model import Kind

TABLE = "arn:aws:dynamodb:eu-central-1:123456789012:table/t"
HOT = PartitionKey(TABLE, "hot")
COLD = PartitionKey(TABLE, "cold")
INDEX = PartitionKey(f"{TABLE}/index/i", "03")


def _write(key: PartitionKey, units: float) -> list[Demand]:
    return [Demand(key, Kind.WRITE, units)]


def test_keys_share_a_given_number_of_partitions() -> None:
    """With one partition for all, a key's neighbour uses up what is left; an index has partitions of its own."""
    model = PartitionModel(write_limit_wcu=3, partitions=1)
    assert model.admit(_write(HOT, 3), 0.0) is None
    assert model.admit(_write(COLD, 1), 0.0) == Demand(COLD, Kind.WRITE, 1)
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
