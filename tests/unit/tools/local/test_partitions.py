from __future__ import annotations

from tools.limits import Demand, Kind
from tools.local.metering import PartitionModel, Timeline, TimelineRow

TABLE = "arn:aws:dynamodb:eu-central-1:123456789012:table/t"


def test_keys_share_a_given_number_of_partitions() -> None:
    """With one partition for all, a key's neighbour uses up what is left; an index has partitions of its own."""
    model = PartitionModel(write_limit_wcu=3, partitions=1)
    table, index = model.resource(TABLE), model.resource(f"{TABLE}/index/i", is_index=True)
    assert table.write("hot", 3, 0.0) is None
    assert model.resource(TABLE).write("cold", 1, 0.0) is not None
    assert index.write("03", 3, 0.0) is None


def demand(key: str, kind: Kind, units: float) -> Demand:
    return Demand(RESOURCE, kind, key, units)


RESOURCE = PartitionModel().resource(TABLE)


def test_the_timeline_counts_by_slot_and_key() -> None:
    """Rows are aligned to 250 ms and filtered by their start."""
    timeline = Timeline()
    timeline.note(demand("hot", Kind.WRITE, 2), 1_000)
    timeline.note(demand("hot", Kind.WRITE, 1), 1_249)
    timeline.note(demand("hot", Kind.WRITE, 3), 1_250, is_refused=True)
    timeline.note(demand("cold", Kind.READ, 0.5), 1_300)
    assert timeline.rows_since(1_250) == [
        TimelineRow(1_250, "hot", table="t", throttled_writes=1, throttled_wcu=3),
        TimelineRow(1_250, "cold", table="t", reads=1, read_rcu=0.5),
    ]
    assert timeline.rows_since(0)[0] == TimelineRow(1_000, "hot", table="t", writes=2, write_wcu=3)


def test_the_timeline_drops_its_oldest_slots() -> None:
    """The number of rows is bounded."""
    timeline = Timeline(max_rows=10)
    for number in range(100):
        timeline.note(demand("hot", Kind.WRITE, 1), number * 250)
    assert [row.at_ms // 250 for row in timeline.rows_since(0)] == list(range(90, 100))
