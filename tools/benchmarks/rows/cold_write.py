"""`cold-write`: from the start of the write function's process to its first response."""

from __future__ import annotations

from tools.benchmarks.cold import measure_cold
from tools.benchmarks.functions import BODY, HOT_CONVERSATION, prepare_hot_conversation
from tools.benchmarks.measuring import Measured
from tools.benchmarks.setup import Setup, write_event


def measure(setup: Setup) -> Measured:
    """Write one message to a conversation that was raised."""
    prepare_hot_conversation(setup)
    return measure_cold(setup, "write_message", write_event(HOT_CONVERSATION, BODY))
