"""What a type checker says of a `ShardedTable`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

START = """
import boto3
from hotpartition.table import ShardedTable, fixed
plain = boto3.resource("dynamodb").Table("readings")
table = ShardedTable(plain, shards=fixed(8))
"""
RIGHT = """
def newest(table: ShardedTable) -> int:
    with table.batch_writer() as batch:
        batch.put_item(Item={"PK": "room", "SK": "1"})
    page = table.query(KeyConditionExpression="PK = :p", ExpressionAttributeValues={":p": table.name}, Limit=1)
    return page["Count"] + newest(table)

name: str = table.name + table.table_status
count: int = table.meta.client.describe_table(TableName=table.name)["Table"]["ItemCount"]
table.query(KeyConditionExpression="PK = :p", Hashed="dev-1", cache=True)
table.wait_until_exists()
"""
WRONG = (
    "table.transact_write_items(TransactItems=[])",
    "table.batch_get_item(RequestItems={})",
    "table.execute_statement(Statement='')",
    "table.get_items([], Consistent=True)",
    "ShardedTable(table, shards=fixed(8))",
    "ShardedTable(plain, shards=8)",
)


@pytest.mark.slow
def test_methods_have_boto3s_types_and_refused_names_are_errors(tmp_path):
    """Each wrong line is one, no other is."""
    (tmp_path / "use.py").write_text(START + RIGHT + "\n".join(WRONG))
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", tmp_path / "use.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    first = len((START + RIGHT).splitlines()) + 1
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == [*range(first, first + len(WRONG))], done.stdout
