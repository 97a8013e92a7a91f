"""`ShardedCounter` with `adaptive()`: as many shards as its route says, every addition counted."""

import pytest

from hotpartition.core.route import Generation
from hotpartition.counter import ShardedCounter
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.errors import TokenReusedError
from support.adaptive import AdaptiveShards
from support.tables import define_table

EIGHT = Generation(since_ms=0, shard_count=8)
IN_COLLECTION = JournalPlace("counters", "PK", "SK", "~route")
APART = JournalPlace("routes", "collection", sort_key="")


class Stage(AdaptiveShards):
    """A counter whose routes come from a registry in memory and a journal on moto."""

    def __init__(self, aws, place):
        super().__init__(place)
        self.aws = aws
        self.likes = self.open()

    def open(self):
        """Another process's counter."""
        return ShardedCounter(self.aws.resource.Table("counters"), self, clock=self.clock.as_clock())

    def raise_all(self):
        generations = {
            "generations": {"SS": [EIGHT.encode()]},
            "updated_at": {"S": "2026-01-01T00:00:00.000Z"},
        }
        self.aws.raw.put_item(TableName=self.place.table_name, Item={**self.place.key_of("post"), **generations})
        self.registry.add("post", [EIGHT])

    def places(self):
        return {item["PK"]["S"] for item in self.aws.items if item["SK"]["S"] != self.place.routing_sort_key}


@pytest.fixture(params=[IN_COLLECTION, APART], ids=["journal in the collection", "journal apart"])
def stage(request, aws):
    aws.raw.create_table(TableName="routes", **define_table("collection"))
    return Stage(aws, request.param)


def test_a_token_counts_once_across_a_raise(stage):
    """The repetition goes to another place first, and comes back; with another amount it is refused."""
    stage.likes.add("post", 5, token="t")
    stage.raise_all()
    stage.open().add("post", 5, token="t")
    with pytest.raises(TokenReusedError):
        stage.open().add("post", 6, token="t")
    assert (stage.places(), stage.likes.get("post")) == ({"post"}, 5)
