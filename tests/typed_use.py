"""What `make types` says of a user's `ShardedTable`: right lines pass, and each wrong line is an error of its kind.

mypy reads this file and nothing runs it. An ignored error that is not there any more is an error itself.
"""

import boto3

from hotpartition.table import ShardedTable, fixed

plain = boto3.resource("dynamodb").Table("readings")
table = ShardedTable(plain, shards=fixed(8))


def newest(table: ShardedTable) -> int:
    """Page as with boto3's table."""
    with table.batch_writer() as batch:
        batch.put_item(Item={"PK": "room", "SK": "1"})
    page = table.query(KeyConditionExpression="PK = :p", ExpressionAttributeValues={":p": table.name}, Limit=1)
    return page["Count"]


name: str = table.name + table.table_status
count: int = table.meta.client.describe_table(TableName=table.name)["Table"]["ItemCount"] + newest(table)
table.query(KeyConditionExpression="PK = :p", Hashed="dev-1", cache=True)
table.wait_until_exists()
plain = table

table.transact_write_items(TransactItems=[])  # type: ignore[attr-defined]
table.batch_get_item(RequestItems={})  # type: ignore[attr-defined]
table.execute_statement(Statement="")  # type: ignore[attr-defined]
table.get_items([], Consistent=True)  # type: ignore[call-arg]
ShardedTable(plain, shards=8)  # type: ignore[arg-type]
