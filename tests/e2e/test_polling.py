"""A poller as `docs/api.md` describes it, beside writers who store late."""

import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from hotpartition_messages.message_ids import message_time_ms, mint_message_id
from hotpartition_messages.settings import ReadSettings
from stack import WRITE_LIMIT_WCU, assert_read_back

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETTLE_MS = ReadSettings.defaults().settle_seconds * 1000
LATEST_MS = 0.9 * SETTLE_MS
"""How old ids are when they are offered; the rest of the time is for the writes."""


def poll(stack, conversation, is_over, limit):
    """Poll until a walk has begun after all was written; returns the ids that were seen."""
    seen, bounds, is_last = set(), {}, False
    while not is_last:
        is_last = is_over.is_set()
        query = {"order": "oldest", "consistency": "strong", "limit": limit, **bounds}
        for page in stack.pages(conversation, query):
            seen.update(message["message_id"] for message in page["messages"])
            bounds = {"after": page["settled_until"]}
    return seen


def test_a_poller_misses_nothing_of_a_hot_conversation(stack):
    """With pages of one message, whose walks last seconds, and with usual ones; ids are as old as may be."""
    conversation, rng, is_over = f"polled:{uuid.uuid4().hex}", random.Random(5), Event()

    def mint_late(_offer, now, _rng):
        return mint_message_id(int(now * 1000 - rng.uniform(0, LATEST_MS)), rng.getrandbits)

    with ThreadPoolExecutor(2) as pool:
        pollers = [pool.submit(poll, stack, conversation, is_over, limit) for limit in (1, 50)]
        try:
            load = stack.offer(conversation, rate=1.5 * WRITE_LIMIT_WCU, seconds=4, mint=mint_late)
        finally:
            is_over.set()
        walks = [poller.result() for poller in pollers]
    in_time = {
        written.message_id
        for written in load.acknowledged
        if written.acknowledged_at * 1000 - message_time_ms(written.message_id) <= SETTLE_MS
    }
    assert [in_time - seen for seen in walks] == [set(), set()]
    assert_read_back(stack, conversation, load)
    if not in_time:
        pytest.skip("not judged: no message was stored within the settling time")
