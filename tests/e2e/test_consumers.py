"""Two consumers share the report streams: what is hot is raised, whichever share it is in, and nothing is lost."""

from __future__ import annotations

import uuid

import pytest

from hotpartition.core.reports import stream_partition_of
from hotpartition.core.shares import list_shares
from stack import HOT_WCU, Recorder, assert_read_back, read_meanwhile, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STREAMS = 4
"""What `stream_partitions` is unless it is set."""
CONSUMER = "consume_reports"


def conversation_in(share):
    """A new conversation whose reports go to a share."""
    ids = (f"shared:{uuid.uuid4().hex}" for _ in range(1_000))
    return next(id_ for id_ in ids if stream_partition_of(id_, STREAMS) in share.partitions(STREAMS))


@pytest.mark.parametrize("share", list_shares(2), ids=["first", "second"])
def test_a_rush_in_either_share_is_raised_and_read_back(guarded_stack, share):
    """While both consumers are killed in the middle of it, and started again as the schedules would."""
    conversation, load = conversation_in(share), Recorder()

    def kill_and_restart():
        wait_for(lambda: len(load.acknowledged) >= HOT_WCU / 2)
        while guarded_stack.status()["functions"][CONSUMER]["busy"]:
            guarded_stack.kill(CONSUMER)
        for other in list_shares(2):
            guarded_stack.invoke_and_leave(CONSUMER, {"share": other.encode()})
        read_meanwhile(guarded_stack, conversation, load, seconds=2)

    guarded_stack.offer(conversation, rate=HOT_WCU, seconds=3, during=kill_and_restart, load=load)
    guarded_stack.offer_until(lambda: guarded_stack.shard_buckets(conversation), conversation, load=load)
    assert_read_back(guarded_stack, conversation, load)
