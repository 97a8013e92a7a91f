"""Newest pages of read-hot conversations: what an uncached read would give, from the cache."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hotpartition.core.errors import MalformedPageError
from hotpartition.core.freshness import LEASE_MS
from hotpartition.core.times import format_time
from hotpartition_messages.messages import Message, MessagePageCodec
from hotpartition_messages.reading import CACHED_LIMITS, MAX_LIMIT, PageRequest
from support.builders import World, build_message, new_message, read_all

NEWEST = PageRequest("c")


@pytest.fixture
def world():
    """A read-hot conversation of 30 messages, raised in its middle."""
    world = World()
    for index in range(30):
        world.clock.now_ms += 100
        if index == 15:
            world.raise_to(4, world.clock.now_ms)
        world.writer().write(new_message(str(index)))
    world.registry.mark_read_hot("c")
    return world


def bodies(messages):
    return [message.body for message in messages]


def test_settled_until_and_the_cursor_count_from_when_the_page_was_read(world):
    """A poller, and a walk that goes on from a cached page, miss nothing that came since."""
    reader, request, read_at_ms = world.reader(environment="a"), replace(NEWEST, limit=7), world.clock.now_ms
    first = reader.read_page(request)
    world.clock.now_ms += 800
    page = reader.read_page(request)
    assert page.age_ms == 800
    assert (page.settled_until, page.next_cursor) == (format_time(read_at_ms - 5_000), first.next_cursor)
    rest = read_all(reader, replace(NEWEST, cursor=page.next_cursor))
    assert bodies([*page.messages, *rest]) == [str(index) for index in reversed(range(30))]


@pytest.mark.parametrize(
    "other", [{"is_strong": True}, {"newest_first": False}, {"after_ms": 1}, {"before_ms": 2_000_000_000_000}]
)
def test_nothing_else_is_cached(world, other):
    """Strong reads, other orders, bounds and cursors read DynamoDB, and leave no page."""
    reader = world.reader(environment="a")
    for _ in range(2):
        world.table.calls.clear()
        page = reader.read_page(replace(NEWEST, **other))
        assert (bool(world.table.calls), page.etag, page.age_ms, world.pages.server.commands) == (True, None, None, 0)


CONTENTS = st.lists(st.sampled_from(["shown", "shown", "deleted", "expired", "expires"]), max_size=70)


@given(contents=CONTENTS, limit=st.integers(1, MAX_LIMIT), seed=st.integers(0, 100), fits=st.sampled_from([3, 20, 999]))
@example(contents=["shown", "deleted", "shown", "shown", "shown"], limit=3, seed=0, fits=3)
@example(contents=["shown", *["deleted"] * 1_050, "shown"], limit=2, seed=0, fits=999)
@example(contents=[*["shown"] * 10, "expires", "shown"], limit=50, seed=0, fits=999)
@settings(max_examples=80)
def test_a_part_of_a_cached_page_is_the_page_that_would_have_been_read(contents, limit, seed, fits):
    """Same messages, same cursor, for every limit, whatever was deleted or has expired among them."""
    world, random = World(), Random(seed)
    world.raise_to(3, 0)
    now_ms = world.clock.now_ms
    for index, content in enumerate(contents):
        message = build_message(now_ms - 1_000_000 + index, index, body=str(index))
        if content == "deleted":
            message = message.delete(deleted_at=format_time(now_ms))
        elif content.startswith("expire"):
            message = replace(message, expires_at_s=now_ms // 1000 + (-5 if content == "expired" else 1))
        world.store(message, random.choice(["c", "c#0", "c#1", "c#2"]))

    def count(messages: tuple[Message, ...]) -> int:
        return min(len(messages), fits)

    request = PageRequest("c", limit=limit)
    uncached = world.reader().read_page(request, fits=count)
    # It is full, whatever is hidden; and ends early behind a thousand that are hidden, so that a read is bounded.
    now_shown = [str(index) for index, content in reversed([*enumerate(contents)]) if content in {"shown", "expires"}]
    assert bodies(uncached.messages) == now_shown[: 1 if len(contents) > 1_000 else min(limit, fits)]
    assert bodies(read_all(world.reader(), request)) == now_shown
    world.registry.mark_read_hot("c")
    reader = world.reader(environment="a")
    reader.read_page(PageRequest("c", limit=1 if limit <= 50 else 51), fits=count)
    calls = len(world.table.calls)
    # From its own memory, and from what Redis holds, in another environment.
    for each in (reader, world.reader(environment="b")):
        assert replace(each.read_page(request, fits=count), age_ms=None) == uncached
    assert len(world.table.calls) == calls
    # What has expired meanwhile is not shown. Such a part is still a page: nothing between its messages is left out.
    world.clock.now_ms += 2_000
    for size in CACHED_LIMITS:  # others load
        world.pages.take_lease("c", f"newest-{size}", LEASE_MS)
    later = world.reader(environment="b").read_page(request, fits=count)
    assert 2_000 <= later.age_ms < 2_010
    shown = [body for body in now_shown if contents[int(body)] == "shown"]
    assert bodies(later.messages) == shown[: len(later.messages)]
    assert (later.next_cursor is None) <= (len(later.messages) == len(shown))
    assert later.messages == uncached.messages or later.etag != uncached.etag


@pytest.mark.parametrize(
    "text", ["{}", "[]", "", "null", '{"items": [{}], "hidden": [], "has_more": false, "last": null}']
)
def test_a_page_of_another_format_is_read_anew(text):
    """Deployed side by side, versions write over each other's pages; each reads its own."""
    with pytest.raises(MalformedPageError):
        MessagePageCodec().decode(text)
