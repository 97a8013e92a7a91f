"""`write-floor`: the CPU of a whole write request, against a bare boto3 `put_item` and nothing else."""

from __future__ import annotations

from typing import Any

from hotpartition_messages import Message
from tools.benchmarks.functions import BODY, HOT_CONVERSATION, WriteFunction, prepare_hot_conversation
from tools.benchmarks.measuring import CPU_CONDITIONS, Bar, Measured, cpu_seconds, interleave, warm_up
from tools.benchmarks.setup import TABLE, Setup, plain_client

MICROSECONDS = 1e6
WRITES = 400


def measure(setup: Setup) -> Measured:
    """Serve an event by our function; put the item that it makes by boto3."""
    prepare_hot_conversation(setup)
    count = setup.count(WRITES)
    function = WriteFunction("write_message")
    client = plain_client(connections=1)
    item: Any = Message(HOT_CONVERSATION, "01HF7YAT00" + "0" * 16, "ann", BODY).to_item(HOT_CONVERSATION)

    def ours() -> float:
        return cpu_seconds(lambda: function.write(count)) / count * MICROSECONDS

    def put() -> None:
        for _ in range(count):
            client.put_item(TableName=TABLE, Item=item)

    def rival() -> float:
        return cpu_seconds(put) / count * MICROSECONDS

    warm_up(ours, rival)
    return Measured(
        unit="us of CPU",
        rival="a bare boto3 put_item of the same item",
        samples=interleave(ours, rival, setup.runs),
        bars=(Bar("ratio", at_most=0.7),),
        conditions=CPU_CONDITIONS
        + f"; {count} writes a run of 1 KB of text, to a conversation of 16 shards; reports go to a real Redis",
    )
