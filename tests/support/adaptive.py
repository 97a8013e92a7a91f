"""Routes of a table of one's own, from a registry in memory and a journal on the table's own DynamoDB."""

from __future__ import annotations

from typing import Any

from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.settings import Settings
from hotpartition.table.routes import Shards, open_calls
from support.builders import World
from tools.world.product import shards_on


def open_shards(
    world: World, plain: Any, place: JournalPlace, *, route_cache_seconds: float = 0.0, sampling_wcu: float = 1.0
) -> Shards:
    """Build what one process takes as the shards of `plain`: by default no route is cached."""
    settings = Settings.defaults(
        "adaptive()",
        route_cache_seconds=route_cache_seconds,
        sampling_distance_wcu=sampling_wcu,
        read_sampling_distance_rcu=0.5,
    )
    ends = world.ends(journal=DynamoDBJournal(open_calls(plain), place))
    return shards_on(ends, settings, place=place)
