"""Newest pages of read-hot conversations: what an uncached read would give, from the cache."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hotpartition.core.times import format_time
from hotpartition_messages.messages import Message
from hotpartition_messages.reading import MAX_LIMIT, PageRequest
from support.builders import World, build_message, new_message, read_all

NEWEST = PageRequest("c")


def filled(count=30, *, copies=1):
    """A read-hot conversation, raised in its middle."""
    world = World()
    writer = world.writer(ttl_seconds=0.0)
    for index in range(count):
        world.clock.now_ms += 100
        if index == count // 2:
            world.raise_to(4, world.clock.now_ms)
        writer.write(new_message(str(index)))
    world.registry.mark_read_hot("c")
    world.table.calls.clear()
    world.registry.reads = 0
    return world


def bodies(page):
    return [message.body for message in page.messages]


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("shard_count", [0, 4])
def test_a_cold_conversation_costs_what_it_costs_without_a_cache(shard_count, is_down):
    """Not a request to DynamoDB and not a look-up in Redis more; and no call at all for pages."""
    costs = []
    for environment in (None, "e"):
        world = filled() if shard_count else World()
        world.registry.copies.clear()
        world.registry.is_down = is_down
        reader = world.reader(environment=environment)
        for _ in range(3):
            page = reader.read_page(NEWEST)
            assert page.age_ms is None
        counts = world.telemetry.counts
        costs.append((world.table.calls, world.registry.reads, counts))
        assert world.pages.calls == []
    assert costs[0] == costs[1]


def test_settled_until_and_the_cursor_count_from_when_the_page_was_read():
    """A poller, and a walk that goes on from a cached page, miss nothing that came since."""
    world = filled()
    reader = world.reader(environment="a")
    read_at_ms = world.clock.now_ms
    first = reader.read_page(replace(NEWEST, limit=7))
    world.clock.now_ms += 800
    page = reader.read_page(replace(NEWEST, limit=7))
    assert page.age_ms == 800
    assert (page.settled_until, page.next_cursor) == (format_time(read_at_ms - 5_000), first.next_cursor)
    rest = read_all(reader, replace(NEWEST, cursor=page.next_cursor))
    assert [*bodies(page), *(message.body for message in rest)] == [str(index) for index in reversed(range(30))]


@pytest.mark.parametrize(
    "request_",
    [
        replace(NEWEST, is_strong=True),
        replace(NEWEST, newest_first=False),
        replace(NEWEST, after_ms=1),
        replace(NEWEST, before_ms=2_000_000_000_000),
    ],
)
def test_nothing_else_is_cached(request_):
    """Strong reads, other orders, bounds and cursors read DynamoDB, and leave no page."""
    world = filled()
    reader = world.reader(environment="a")
    for _ in range(2):
        before = len(world.table.calls)
        page = reader.read_page(request_)
        assert (len(world.table.calls) > before, page.etag, page.age_ms) == (True, None, None)
    assert world.pages.calls == []
    reader.read_page(NEWEST)
    world.writer(ttl_seconds=0.0).write(new_message("news"))
    assert bodies(reader.read_page(replace(NEWEST, is_strong=True)))[0] == "news"


def test_what_has_expired_meanwhile_is_not_shown():
    """The rest of the page is, with the cursor that it had."""
    world = World()
    now_ms = world.clock.now_ms
    for index in range(60):
        expires_at_s = now_ms // 1000 + 1 if index == 58 else None
        message = replace(build_message(now_ms + index, index, body=str(index)), expires_at_s=expires_at_s)
        world.store(message, "c")
    world.registry.mark_read_hot("c")
    reader = world.reader(environment="a")
    before = reader.read_page(NEWEST)
    assert bodies(before)[:3] == ["59", "58", "57"]
    world.clock.now_ms += 1_000
    world.pages.leases["c", "newest-50"] = world.clock.now_ms + 250  # somebody else reads it anew
    after = reader.read_page(NEWEST)
    assert after.age_ms is not None
    assert bodies(after) == [body for body in bodies(before) if body != "58"]
    assert after.next_cursor == before.next_cursor
    assert after.etag != before.etag


CONTENTS = st.lists(st.sampled_from(["shown", "shown", "deleted", "expired", "expires"]), max_size=70)


@given(contents=CONTENTS, limit=st.integers(1, MAX_LIMIT), seed=st.integers(0, 100), fits=st.sampled_from([3, 20, 999]))
@example(contents=["shown", "deleted", "shown", "shown", "shown"], limit=3, seed=0, fits=3)
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
    assert len(uncached.messages) <= fits
    world.registry.mark_read_hot("c")
    reader = world.reader(environment="a")
    reader.read_page(PageRequest("c", limit=1 if limit <= 50 else 51), fits=count)
    calls = len(world.table.calls)
    assert replace(reader.read_page(request, fits=count), age_ms=None) == uncached
    assert len(world.table.calls) == calls
    # What is cached is what Redis holds: once more, in another environment.
    assert replace(world.reader(environment="b").read_page(request, fits=count), age_ms=None) == uncached
    # A part that a later filter makes shorter is still a page: nothing between its messages is left out.
    world.clock.now_ms += 2_000
    world.pages.leases.update(dict.fromkeys([("c", "newest-50"), ("c", "newest-200")], world.clock.now_ms + 250))
    later = world.reader(environment="b").read_page(request, fits=count)
    assert later.age_ms == 2_000
    shown = [str(i) for i, content in reversed(list(enumerate(contents))) if content == "shown"]
    assert bodies(later) == shown[: len(later.messages)]
    assert (later.next_cursor is None) <= (len(later.messages) == len(shown))


def test_many_deleted_messages_end_a_cached_page_where_they_end_an_uncached_one():
    world = World()
    now_ms = world.clock.now_ms
    world.store(build_message(now_ms, 1, body="first"), "c")
    for index in range(1_050):
        world.store(build_message(now_ms - 10 - index).delete(deleted_at=format_time(now_ms)), "c")
    world.store(build_message(now_ms - 5_000, 1, body="last"), "c")
    uncached = world.reader().read_page(replace(NEWEST, limit=2))
    assert bodies(uncached) == ["first"]
    world.registry.mark_read_hot("c")
    reader = world.reader(environment="a")
    pages = [reader.read_page(replace(NEWEST, limit=2)) for _ in range(2)]
    assert [replace(page, age_ms=None) for page in pages] == [uncached, uncached]
    assert pages[1].age_ms == 0


def test_a_page_of_another_format_is_read_anew():
    """Deployed side by side, versions write over each other's pages; each reads its own."""
    world = filled()
    world.reader(environment="a").read_page(NEWEST)
    keys = list(world.pages.pages)
    for payload in ("{}", "[]", "", "null", '{"items": [{}], "hidden": [], "has_more": false, "last": null}'):
        for key in keys:
            world.pages.pages[key] = world.pages.pages[key]._replace(payload=payload)
        world.pages.leases.clear()
        assert len(bodies(world.reader(environment="b").read_page(NEWEST))) == 30
    assert world.telemetry.counts["PagesMalformed"] == 5
