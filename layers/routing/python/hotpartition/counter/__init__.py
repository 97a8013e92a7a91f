"""`ShardedCounter`: counts on any DynamoDB table, faster than one partition key could.

    likes = ShardedCounter(boto3.resource("dynamodb").Table("counters"), shards=fixed(16))
    likes.add("post-1")
    likes.add("post-1", token="ann")        # counts once, however often it is repeated within ten minutes
    likes.get("post-1")

`fixed` and `adaptive` are those of `hotpartition.table`.
"""

from hotpartition.counter.coalescing import CoalescingCounter
from hotpartition.counter.sharded_counter import ShardedCounter

__all__ = ["CoalescingCounter", "ShardedCounter"]
