"""What a report says is made from the figures of its run."""

import pytest

from tools.play.report import percent, say_rush
from tools.play.verdict import Summary

COMMON = dict.fromkeys(("rejected", "raises", "max_n", "throttled_before_raise", "throttled_after_raise"), 0)
SCALE = dict.fromkeys(("hot_threshold_wcu", "partition_limit_wcu", "sampling_distance_wcu", "duration_seconds"), 1.0)
NAMED = {"hot_conversation": "plant-1", "onset_to_raise_seconds": None, "environments": 1}
REFUSED = "88 of these requests were refused (64.7 %). Of what was served, "


@pytest.mark.parametrize(
    ("pages", "refused", "from_l1", "from_redis", "from_dynamodb", "said"),
    [
        (0, 0, 0, 0, 0, "There was no rush of readers."),
        (136, 88, 30, 0, 18, f"{REFUSED}30 came from an environment's own cache, 18 came from DynamoDB."),
        (136, 0, 0, 130, 6, "None was refused. Of what was served, 130 came from Redis, 6 came from DynamoDB."),
        (9, 9, 0, 0, 0, "9 of these requests were refused (100.0 %)."),
    ],
)
def test_the_rush_of_readers_is_told_by_its_figures(pages, refused, from_l1, from_redis, from_dynamodb, said):
    """Redis is named only where a page came from it, and refusals are."""
    sources = {"rush_from_l1": from_l1, "rush_from_redis": from_redis, "rush_from_dynamodb": from_dynamodb}
    summary = Summary(**COMMON, **SCALE, **NAMED, rush_pages=pages, rush_refused=refused, **sources)
    asked = f"The newest page of plant-1 was asked for {pages} times. " if pages else ""
    assert say_rush(summary) == asked + said


@pytest.mark.parametrize(("part", "whole", "said"), [(0, 0, "0 %"), (1, 3000, "< 0.1 %"), (1, 3, "33.3 %")])
def test_a_share_that_is_not_nothing_is_not_said_to_be(part, whole, said):
    assert percent(part, whole) == said
