"""`write-floor`: the CPU of a whole write request, against a bare boto3 `put_item` and nothing else."""

from __future__ import annotations

from typing import Any

from hotpartition.dynamodb.boto3_client import create_client
from hotpartition_messages import Message
from tools.benchmarks.functions import BODY, HOT_CONVERSATION, compare_writes
from tools.benchmarks.measuring import Measured
from tools.benchmarks.setup import TABLE, Setup


def measure(setup: Setup) -> Measured:
    """Serve an event by our function; put the item that it makes by boto3."""
    client = create_client(connections=1)
    item: Any = Message(HOT_CONVERSATION, "01HF7YAT00" + "0" * 16, "ann", BODY).to_item(HOT_CONVERSATION)

    def put(count: int) -> None:
        for _ in range(count):
            client.put_item(TableName=TABLE, Item=item)

    return compare_writes(setup, put, rival="a bare boto3 put_item of the same item", at_most=0.7)
