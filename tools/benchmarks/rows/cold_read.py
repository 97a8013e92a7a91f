"""`cold-read`: from the start of the read function's process to its first response."""

from __future__ import annotations

from hotpartition_messages import Message
from hotpartition_messages.message_ids import mint_message_id
from tools.benchmarks.cold import measure_cold
from tools.benchmarks.conversations import PAGE
from tools.benchmarks.measuring import Measured
from tools.benchmarks.setup import Setup, page_event

START_MS = 1_800_000_000_000


def measure(setup: Setup) -> Measured:
    """Read a page of a conversation that was never hot: one query on both sides."""
    ids = [mint_message_id(START_MS + index, lambda _: 0) for index in range(2 * PAGE)]
    setup.load(Message("quiet", message_id, "ann", "x" * 200).to_item("quiet") for message_id in ids)
    return measure_cold(setup, "read_messages", page_event("quiet"))
