"""A `ShardedTable` in an async server: its calls run on threads, as the page says."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from boto3.dynamodb.conditions import Key

from hotpartition.table import ShardedTable, fixed


def test_many_calls_at_the_same_time_do_not_disturb_each_other(plain):
    """Also while each of them waits for threads of the table's own."""
    table = ShardedTable(plain, shards=fixed(4))

    async def serve():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(10) as threads:
            puts = [partial(table.put_item, Item={"PK": "room", "SK": f"{number:04}"}) for number in range(40)]
            await asyncio.gather(*(loop.run_in_executor(threads, put) for put in puts))
            query = partial(table.query, KeyConditionExpression=Key("PK").eq("room"), Limit=30)
            return await asyncio.gather(*(loop.run_in_executor(threads, query) for _ in range(20)))

    for page in asyncio.run(serve()):
        assert [item["SK"] for item in page["Items"]] == [f"{number:04}" for number in range(30)]
