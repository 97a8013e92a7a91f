"""`read-16`: how long the newest page of a conversation of 16 shards takes, against one query of an unsharded one."""

from __future__ import annotations

from hotpartition.dynamodb.boto3_client import create_client
from tools.benchmarks.conversations import query_newest, store_conversations
from tools.benchmarks.measuring import WALL_CONDITIONS, Bar, Measured, interleave, wall_seconds, warm_up
from tools.benchmarks.reading import SERVICE_MS, check_reader, mean_ms, our_reader
from tools.benchmarks.setup import Setup

CONVERSATIONS = 24
ROUNDS = 4


def measure(setup: Setup) -> Measured:
    """Read every conversation in turn; the figure is the mean, since now and then a page takes a second round."""
    conversations = store_conversations(setup, CONVERSATIONS, 16, with_plain=True)
    setup.control("Configure", usual_ms=SERVICE_MS)
    read = our_reader()
    client = create_client(connections=1)
    check_reader(read, conversations)
    in_turn = conversations * setup.count(ROUNDS)

    def ours() -> float:
        return mean_ms(wall_seconds, read, in_turn)

    def rival() -> float:
        return mean_ms(wall_seconds, lambda conversation: query_newest(client, conversation.plain_id), in_turn)

    warm_up(ours, rival)
    return Measured(
        unit="ms",
        rival="one boto3 query of 50, unsharded, alone",
        samples=interleave(ours, rival, setup.runs),
        bars=(Bar("ratio", at_most=1.5),),
        conditions=WALL_CONDITIONS
        + f"; every response takes {SERVICE_MS:g} ms; mean of {len(in_turn)} pages in {CONVERSATIONS} conversations",
    )
