"""`write`, `write-floor`: the CPU of a whole write request, against a rival's function and a bare `put_item`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotpartition.dynamodb.boto3_client import create_client
from hotpartition_messages import Message
from tools.benchmarks.measuring import CPU_CONDITIONS, MICROSECONDS, Bar, Measured, cpu_seconds, interleave
from tools.benchmarks.setup import (
    BODY,
    HOT_CONVERSATION,
    LAMBDAS,
    RIVALS,
    TABLE,
    Setup,
    load_function,
    prepare_hot_conversation,
    write_event,
)
from tools.local.events import Context

CREATED = 201
WRITES = 400


def write_function(folder: Path) -> Callable[[int], None]:
    """Load a write function; what is returned writes so many messages by it, and refuses to time one that fails."""
    handler = load_function(folder)
    event, context = write_event(HOT_CONVERSATION, BODY), Context()

    def write(count: int) -> None:
        for _ in range(count):
            response = handler(event, context)
            if response["statusCode"] != CREATED:
                raise ValueError(f"the write ended with {response}")

    return write


def compare_writes(setup: Setup, rival_write: Callable[[int], None], *, rival: str, at_most: float) -> Measured:
    """Measure the CPU of a write by our whole function, against another way to write so many messages."""
    prepare_hot_conversation(setup)
    count = setup.count(WRITES)
    our_write = write_function(LAMBDAS / "write_message")

    def mean_us(write: Callable[[int], None]) -> float:
        return cpu_seconds(lambda: write(count)) / count * MICROSECONDS

    return Measured(
        unit="us of CPU",
        rival=rival,
        samples=interleave(lambda: mean_us(our_write), lambda: mean_us(rival_write), setup.runs, warms_up=True),
        bars=(Bar("ratio", at_most=at_most),),
        conditions=CPU_CONDITIONS
        + f"; {count} writes a run of 1 KB of text, to a conversation of 16 shards; reports go to a real Redis",
    )


def measure_write(setup: Setup) -> Measured:
    """Serve the same event by both functions."""
    rival = "the same function with a bare put_item: benchmarks/rivals/write_message"
    return compare_writes(setup, write_function(RIVALS / "write_message"), rival=rival, at_most=0.5)


def measure_floor(setup: Setup) -> Measured:
    """Serve an event by our function; put the item that it makes by boto3."""
    client = create_client(connections=1)
    item: Any = Message(HOT_CONVERSATION, "01HF7YAT00" + "0" * 16, "ann", BODY).to_item(HOT_CONVERSATION)

    def put(count: int) -> None:
        for _ in range(count):
            client.put_item(TableName=TABLE, Item=item)

    return compare_writes(setup, put, rival="a bare boto3 put_item of the same item", at_most=0.7)
