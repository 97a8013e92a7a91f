"""The runbook's `copy_back.py`: what only a restored table has comes back, and nothing else changes."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from support.builders import build_message
from support.tables import TABLE_NAME, TABLE_SCHEMA

pytestmark = pytest.mark.slow

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
RESTORED = "hotpartition-restored"
NOW_MS = 1_700_000_000_000


@pytest.fixture
def copy_back(tmp_path, monkeypatch):
    """Runs the script as it is printed, from one table to another."""
    (text,) = re.findall(r"^```python\n(.*?)^```", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "copy_back.py"
    script.write_text(text)

    def run(source, target):
        monkeypatch.setattr(sys, "argv", [str(script), source, target])
        runpy.run_path(str(script), run_name="__main__")

    return run


def items(client, table):
    found = client.scan(TableName=table)["Items"]
    return {(item["pk"]["S"], item["sk"]["S"]): item for item in found}


def test_what_is_missing_comes_back_and_what_is_there_stays(dynamodb, copy_back, capsys):
    """Messages and generations that only the restored table has; those of the live one are not touched."""
    client = dynamodb.client
    client.create_table(TableName=RESTORED, **TABLE_SCHEMA)
    restored = DynamoDBJournal(dynamodb.calls, JournalPlace(RESTORED))
    shared, lost, newer = (build_message(NOW_MS + n, n) for n in range(3))
    for table, message in ((RESTORED, shared), (RESTORED, lost), (TABLE_NAME, newer)):
        client.put_item(TableName=table, Item=message.to_item("c#0"))
    client.put_item(TableName=TABLE_NAME, Item={**shared.to_item("c#0"), "body": {"S": "the live one's"}})
    restored.add("c", [Generation(since_ms=NOW_MS, shard_count=2)], cause=Cause("raised", 1200), now_ms=NOW_MS)
    dynamodb.journal.add(
        "c", [Generation(since_ms=NOW_MS + 9, shard_count=4)], cause=Cause("raised"), now_ms=NOW_MS + 9
    )
    broken = {"pk": {"S": "broken"}, "sk": {"S": "r#"}, "routing_partition": {"S": "03"}, "updated_at": {"S": "x"}}
    client.put_item(TableName=RESTORED, Item=broken)

    copy_back(RESTORED, TABLE_NAME)
    out = capsys.readouterr().out
    assert "1 messages were missing" in out
    assert "broken has a routing item that cannot be read" in out
    live = items(client, TABLE_NAME)
    bodies = {item["message_id"]["S"]: item["body"]["S"] for item in live.values() if "body" in item}
    assert bodies == {
        shared.message_id: "the live one's",
        lost.message_id: lost.body,
        newer.message_id: newer.body,
    }
    assert ("broken", "r#") not in live
    entry = dynamodb.journal.get("c", is_strong=True)
    assert {(g.shard_count, g.since_ms) for g in entry.route.generations} == {(2, NOW_MS), (4, NOW_MS + 9)}

    copy_back(RESTORED, TABLE_NAME)
    assert "0 messages were missing" in capsys.readouterr().out
    assert items(client, TABLE_NAME) == live
