"""Plans: sizes worked by hand, items measured as they are stored, and what makes no sense refused."""

import json
from dataclasses import replace

import pytest

from hotpartition.core.capacity import item_size_bytes
from hotpartition.core.detector import Thresholds
from hotpartition_cli.errors import UsageError
from hotpartition_cli.plan import default_thresholds, make_plan, measure_item
from support.builders import build_message

THRESHOLDS = Thresholds(hot_at_once_wcu=1_000, hot_sustained_wcu=800, target_shard_wcu=330, max_shard_count=128)


def plan_for(rate, item_bytes=1024):
    return make_plan(rate, item_bytes, THRESHOLDS)


@pytest.mark.parametrize(
    ("rate", "item_bytes", "wcu", "least", "count"),
    [
        (5_000, 1_024, 1, 5, 16),  # the source's own example: 5 at least; 330 each with room
        (2_500, 1_025, 2, 5, 16),  # a byte more is another unit
        (5_000, 100, 1, 5, 16),  # a small item is a whole unit
        (800, 1_024, 1, 1, 0),  # as much as the base key is trusted with
        (801, 1_024, 1, 1, 3),
        (1_000.5, 1_024, 1, 2, 4),
        (2_000, 1_024, 1, 2, 7),
        (1, 409_600, 400, 1, 0),
        (3, 409_600, 400, 2, 4),
        (6_190, 1_024, 1, 7, 19),
    ],
)
def test_sizes_worked_by_hand(rate, item_bytes, wcu, least, count):
    """WCU a message times messages a second, over 1,000 at least; over 330 with room."""
    plan = plan_for(rate, item_bytes)
    assert [plan[name] for name in ("wcu_per_message", "least_shard_count", "shard_count")] == [wcu, least, count]
    assert plan["wcu_per_second"] == rate * wcu
    assert (plan["is_at_cap"], plan["is_covered"]) == (False, True)
    assert plan["after"]["wcu_per_second_per_key"] == round(rate * wcu / max(count, 1), 1)


def test_the_cap_is_said_and_what_it_leaves_is_counted():
    """128 keys take 128,000 WCU/s; of 150,000 the rest is refused."""
    plan = plan_for(150_000)
    assert (plan["shard_count"], plan["is_at_cap"], plan["is_covered"]) == (128, True, False)
    assert [plan[side]["wcu_per_second_refused"] for side in ("before", "after")] == [149_000, 22_000]
    assert plan_for(100_000)["is_covered"]


def test_an_item_is_measured_as_it_is_stored():
    """By its own form, on a shard, ids and names included."""
    text = json.dumps({"sender": "ann", "body": "x" * 100, "conversation_id": "c"})
    item = build_message(conversation_id="c", body="x" * 100).to_item("c#0")
    assert measure_item(text) == item_size_bytes(item)
    longer = json.dumps({"sender": "ann", "body": "x" * 100, "conversation_id": "c", "attributes": {"n": 1}})
    assert measure_item(longer) > measure_item(text)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"sender": "a"}', '{"sender": "a", "body": 3}', '{"sender": "a", "body": "b", "x": 1}',
     '{"sender": "a", "body": "b", "conversation_id": "a#1"}', '{"sender": "\\ud800", "body": "b"}',
     '{"sender": "a", "body": "b", "attributes": {"": 1}}'],
)  # fmt: skip
def test_what_is_no_message_is_refused(text):
    """With a sentence that names the option."""
    with pytest.raises(UsageError, match="--item"):
        measure_item(text)


@pytest.mark.parametrize(
    ("load", "sizing", "option"),
    [
        ({"messages_per_second": 0}, {}, "--rate"),
        ({"messages_per_second": float("nan")}, {}, "--rate"),
        ({"messages_per_second": float("inf")}, {}, "--rate"),
        ({"item_bytes": 0}, {}, "--item-bytes"),
        ({"item_bytes": 409_601}, {}, "--item-bytes"),
        ({}, {"target_shard_wcu": 0}, "--target-shard-wcu"),
        ({}, {"max_shard_count": 1}, "--max-shard-count"),
        ({}, {"max_shard_count": 1025}, "--max-shard-count"),
    ],
)
def test_what_cannot_be_is_refused(load, sizing, option):
    """With what is allowed."""
    given = {"messages_per_second": 1, "item_bytes": 1} | load
    thresholds = replace(THRESHOLDS, **sizing)
    with pytest.raises(UsageError, match=f"^{option} should be"):
        make_plan(**given, thresholds=thresholds)


def test_the_stacks_own_numbers_are_the_default():
    """What the consumer would decide."""
    assert default_thresholds() == THRESHOLDS
