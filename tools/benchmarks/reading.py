"""What the reading rows share: our read job as it is wired, and the sources' way of reading shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hotpartition.dynamodb.boto3_client import create_client
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.ports import Telemetry
from hotpartition.runtime.settings import ReaderSettings
from hotpartition.runtime.wiring_reader import open_reading
from hotpartition_messages.reading import PageRequest
from hotpartition_messages.wiring_reader import build_message_reader
from tools.benchmarks.conversations import PAGE, Conversation, read_all_shards
from tools.benchmarks.setup import SilentTelemetry

SERVICE_MS = 5.0
MILLISECONDS = 1e3
ReadPage = Callable[[Conversation], list[str]]


def our_reader(telemetry: Telemetry | None = None, calls: DynamoDBCalls | None = None, **settings: object) -> ReadPage:
    """Wire the read job up as the function does, and read pages by it; client and some settings may be others."""
    built = ReaderSettings.from_env(os.environ, **settings)
    reader = build_message_reader(built, telemetry or SilentTelemetry(), calls or open_reading(built))

    def read(conversation: Conversation) -> list[str]:
        page = reader.read_page(PageRequest(conversation.sharded_id, limit=PAGE))
        return [message.message_id for message in page.messages]

    return read


def sources_reader(threads: int) -> ReadPage:
    """Read pages the way the sources show."""
    # With the same limits and retries as ours, so that only the work differs.
    client = create_client(connections=threads)
    executor = ThreadPoolExecutor(threads)
    return lambda conversation: read_all_shards(client, executor, conversation)


def check_reader(read: ReadPage, conversations: Sequence[Conversation]) -> None:
    """Refuse to time a reader that gets a page wrong; connections are open and routes cached afterwards.

    Raises:
        ValueError: it does.
    """
    for conversation in conversations:
        if tuple(read(conversation)) != conversation.newest_ids:
            raise ValueError(f"{conversation.sharded_id} was not read as it was stored")


def mean_ms(
    measure: Callable[[Callable[[], object]], float],
    read: Callable[[Conversation], object],
    conversations: Sequence[Conversation],
) -> float:
    """Measure what a page takes in the mean, in ms of `cpu_seconds` or `wall_seconds`."""
    return measure(lambda: [read(each) for each in conversations]) / len(conversations) * MILLISECONDS
