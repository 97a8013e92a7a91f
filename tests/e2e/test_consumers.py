"""Two consumers share the report streams: what is hot is raised, whichever share it is in, and nothing is lost."""

from __future__ import annotations

import time
import uuid

import pytest

from hotpartition.core.reports import stream_partition_of
from hotpartition.core.shares import list_shares
from stack import WRITE_LIMIT_WCU, Load, assert_read_back, read_meanwhile, route_in_journal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

STREAMS = 4
"""What `stream_partitions` is unless it is set."""
CONSUMER = "consume_reports"


def conversation_in(share):
    """A new conversation whose reports go to a share."""
    ids = (f"shared:{uuid.uuid4().hex}" for _ in range(1_000))
    return next(id_ for id_ in ids if stream_partition_of(id_, STREAMS) in share.partitions(STREAMS))


def test_each_share_has_its_consumer(guarded_stack):
    """Both were started by their schedules, and say so."""
    hot = guarded_stack.control("/functions/operate/invoke", {"command": "hot"}).body
    assert len(hot["consumers_started_at"]) == 2
    assert None not in hot["consumers_started_at"]
    assert hot["consumer_started_at"] == min(hot["consumers_started_at"])


@pytest.mark.parametrize("share", list_shares(2), ids=["first", "second"])
def test_a_rush_in_either_share_is_raised_and_read_back(guarded_stack, share):
    """While both consumers are killed in the middle of it, and started again as the schedules would."""
    conversation = conversation_in(share)

    def kill_and_restart():
        time.sleep(0.5)
        while guarded_stack.status()["functions"][CONSUMER]["busy"]:
            guarded_stack.control(f"/functions/{CONSUMER}/kill")
        for other in list_shares(2):
            guarded_stack.invoke_and_leave(CONSUMER, {"share": other.encode()})
        read_meanwhile(guarded_stack, conversation, load, seconds=2)

    load = Load()
    guarded_stack.offer(conversation, rate=2 * WRITE_LIMIT_WCU, seconds=5, during=kill_and_restart, load=load)
    assert wait_for(lambda: route_in_journal(guarded_stack, conversation), seconds=5)
    # On a busy machine the rush may be over by then; what comes after the raise is on shards in any case.
    guarded_stack.offer(conversation, rate=WRITE_LIMIT_WCU // 2, seconds=3, load=load)
    assert [b for b in guarded_stack.timeline() if b["key"].startswith(f"{conversation}#")]
    assert_read_back(guarded_stack, conversation, load)


def test_a_consumer_of_another_division_changes_nothing(guarded_stack):
    """As while their number is changed: one that reads all streams works beside the two, and both raise the same."""
    guarded_stack.invoke_and_leave(CONSUMER)
    conversation = conversation_in(list_shares(2)[1])
    load = guarded_stack.offer(conversation, rate=2 * WRITE_LIMIT_WCU, seconds=4)
    assert wait_for(lambda: route_in_journal(guarded_stack, conversation), seconds=5)
    assert len(route_in_journal(guarded_stack, conversation)) <= 2
    assert_read_back(guarded_stack, conversation, load)
