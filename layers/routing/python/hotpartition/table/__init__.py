"""`ShardedTable`: write sharding for any DynamoDB table, behind the interface of boto3's `Table`.

    table = ShardedTable(boto3.resource("dynamodb").Table("readings"), shards=fixed(16))
    table.put_item(Item={"PK": "SENSOR_READING", "SK": "2026-11-21T09:30:00Z#dev-7", "device_id": "dev-7"})
    table.query(KeyConditionExpression=Key("PK").eq("SENSOR_READING"))["Items"]

`hotpartition` itself exports these names, too.
"""

from hotpartition.table.by_load import adaptive, in_band
from hotpartition.table.coalescing import CoalescingCounter
from hotpartition.table.counters import ShardedCounter
from hotpartition.table.guarded import guard
from hotpartition.table.indexes import ShardedIndex, TimeBuckets
from hotpartition.table.read_cache import ReadCache
from hotpartition.table.requests import curl
from hotpartition.table.routes import fixed
from hotpartition.table.sharded_table import ShardedTable
from hotpartition.table.sharding import at_random, by_attribute, by_sort_key

__all__ = [
    "CoalescingCounter",
    "ReadCache",
    "ShardedCounter",
    "ShardedIndex",
    "ShardedTable",
    "TimeBuckets",
    "adaptive",
    "at_random",
    "by_attribute",
    "by_sort_key",
    "curl",
    "fixed",
    "guard",
    "in_band",
]
