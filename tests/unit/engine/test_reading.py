"""The read job: Redis is a hint, the journal decides, pages are exact, cached or not, and what they cost is counted.

One drawn test compares the parts of cached pages with pages that are read, at length; many others count requests and
read units, which a page does not show.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hotpartition.core.errors import MalformedPageError, ThrottledError
from hotpartition.core.freshness import LEASE_MS
from hotpartition.core.sampler import SLOT_MS, LoadSampler
from hotpartition.core.times import format_time
from hotpartition.engine.load_counting import ReportedPages
from hotpartition_messages.messages import Message, MessagePageCodec
from hotpartition_messages.reading import CACHED_LIMITS, MAX_LIMIT, PageRequest
from support.builders import World, build_message, new_message, read_all, route_of
from support.fakes import KEY_RANGE_THROTTLE

from .conftest import failing

COUNT, SHARDS = 40, 4
OLDEST_FIRST = PageRequest("c", newest_first=False)


@pytest.fixture
def world():
    """A conversation of forty messages that was raised after its first quarter."""
    world = World()
    writer = world.writer(ttl_seconds=0.0)
    for index in range(COUNT):
        world.clock.now_ms += 100
        if index == COUNT // 4:
            world.raised_at_ms = world.clock.now_ms
            world.raise_to(SHARDS, world.raised_at_ms)
        writer.write(new_message(str(index)))
    world.table.calls.clear()
    world.reports.sent.clear()
    world.registry.reads = 0
    return world


def numbers(messages):
    return [int(message.body) for message in messages]


@pytest.mark.parametrize("newest_first", [True, False])
def test_an_emptied_redis_costs_a_second_wave_and_no_message(world, newest_first):
    """The journal knew more: the missing shards are asked, and Redis is mended."""
    world.registry.routes.clear()
    page = world.reader().read_page(PageRequest("c", newest_first, COUNT))
    assert numbers(page.messages) == sorted(range(COUNT), reverse=newest_first)
    assert world.registry.routes["c"] == world.table.routes["c"].route
    assert world.telemetry.counts["RegistryBehindJournal"] == 1


@pytest.mark.parametrize("newest_first", [True, False])
def test_history_from_before_the_first_raise_names_no_shard(world, newest_first):
    """One query and the journal's read: the page ends before the raise, or its bound lies there."""
    before_ms = world.raised_at_ms if newest_first else None
    page = world.reader().read_page(PageRequest("c", newest_first, 5, before_ms=before_ms))
    assert numbers(page.messages) == ([9, 8, 7, 6, 5] if newest_first else [0, 1, 2, 3, 4])
    assert sorted(world.table.calls) == ["get c", "query c"]


def test_redis_ahead_of_a_strong_journal_read_is_told_and_used():
    """Somebody restored the table or wrote to Redis: an operator hears of it, and repairs it; readers never write."""
    world = World()
    world.registry.routes["c"] = route_of((4, 0))
    reader = world.reader()
    for is_strong in (False, True):
        reader.read_page(PageRequest("c", is_strong=is_strong))
        assert ("RegistryAheadOfJournal" in world.telemetry.counts) == is_strong
    assert world.table.routes == {}
    assert {call.split()[0] for call in world.table.calls} == {"query"}
    assert "query c#3" in world.table.calls


def test_one_failed_shard_is_asked_again(world):
    """And only that one; what the others answered is kept."""
    world.table.failures = [None, KEY_RANGE_THROTTLE]
    assert len(world.reader().read_page(PageRequest("c", limit=MAX_LIMIT)).messages) == COUNT
    assert world.telemetry.counts["ReadsRetried"] == 1
    assert [world.table.calls.count(f"query {key}") for key in ("c#0", "c#1", "c#2", "c#3")] == [2, 1, 1, 1]


@pytest.mark.parametrize(("away", "request_"), [("query c#2", PageRequest("c")), ("get c", OLDEST_FIRST)])
def test_a_page_is_complete_or_an_error(world, away, request_):
    """Never silently partial, within the budget. Without the journal a reader does not know where to look."""
    started_ms = world.clock.now_ms
    world.table.on_call = failing(away, always=KEY_RANGE_THROTTLE)
    with pytest.raises(ThrottledError):
        world.reader(budget_ms=300).read_page(request_)
    assert world.clock.now_ms - started_ms < 300


@pytest.mark.parametrize("bounds", [{"after_ms": 30, "before_ms": 30}, {"before_ms": 0}, {"before_ms": -5}])
def test_a_range_that_holds_nothing_asks_nobody(world, bounds):
    page = world.reader().read_page(PageRequest("c", **bounds))
    assert (page.messages, page.next_cursor, world.table.calls) == ((), None, [])


def test_what_is_settled_counts_from_the_beginning_of_a_walk(world):
    """Slow writers put messages behind its cursor meanwhile: a poller looks there again. No page goes past its end."""
    world.clock.now_ms += 60_000
    started_ms, reader = world.clock.now_ms, world.reader()
    page = reader.read_page(replace(OLDEST_FIRST, limit=5))
    assert page.settled_until == page.messages[-1].sent_at
    world.clock.now_ms += 10_000
    last = reader.read_page(replace(OLDEST_FIRST, cursor=page.next_cursor))
    assert (last.next_cursor, last.settled_until) == (None, format_time(started_ms - 5_000))
    newest = reader.read_page(PageRequest("c", limit=5))
    assert newest.settled_until == format_time(started_ms + 5_000)


def test_settled_until_and_the_cursor_count_from_when_the_page_was_read(world):
    """A poller, and a walk that goes on from a cached page, miss nothing that came since."""
    world.registry.mark_read_hot("c")
    reader, request, read_at_ms = world.reader(environment="a"), PageRequest("c", limit=7), world.clock.now_ms
    first = reader.read_page(request)
    world.clock.now_ms += 800
    page = reader.read_page(request)
    assert page.age_ms == 800
    assert (page.settled_until, page.next_cursor) == (format_time(read_at_ms - 5_000), first.next_cursor)
    rest = read_all(reader, PageRequest("c", cursor=page.next_cursor))
    assert numbers([*page.messages, *rest]) == [*reversed(range(COUNT))]


@pytest.mark.parametrize(
    "other", [{"is_strong": True}, {"newest_first": False}, {"after_ms": 1}, {"before_ms": 2_000_000_000_000}]
)
def test_nothing_else_is_cached(world, other):
    """Strong reads, other orders, bounds and cursors read DynamoDB, and leave no page."""
    world.registry.mark_read_hot("c")
    reader = world.reader(environment="a")
    for _ in range(2):
        world.table.calls.clear()
        page = reader.read_page(PageRequest("c", **other))
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
    now_shown = [index for index, content in reversed([*enumerate(contents)]) if content in {"shown", "expires"}]
    assert numbers(uncached.messages) == now_shown[: 1 if len(contents) > 1_000 else min(limit, fits)]
    assert numbers(read_all(world.reader(), request)) == now_shown
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
    shown = [index for index in now_shown if contents[index] == "shown"]
    assert numbers(later.messages) == shown[: len(later.messages)]
    assert (later.next_cursor is None) <= (len(later.messages) == len(shown))
    assert later.messages == uncached.messages or later.etag != uncached.etag


@pytest.mark.parametrize(
    "text", ["{}", "[]", "", "null", '{"items": [{}], "hidden": [], "has_more": false, "last": null}']
)
def test_a_page_of_another_format_is_read_anew(text):
    """Deployed side by side, versions write over each other's pages; each reads its own."""
    with pytest.raises(MalformedPageError):
        MessagePageCodec().decode(text)


def take_reports(world):
    sent, world.reports.sent = world.reports.sent, []
    return [(report.collection, report.value, report.pages) for report in sent]


@pytest.mark.parametrize(("is_strong", "rcu_each"), [(True, 1.0), (False, 0.5)])
def test_a_page_is_counted_with_what_it_took(world, is_strong, rcu_each):
    """All of its queries, the base key's among them; a page with a cursor is a page like others.

    One that is refused, with the least that it takes: a reader that meets the limit offers load, too. A point read is
    not counted, since no cache of pages would help it.
    """
    reader, cursor = world.reader(sampling_distance_rcu=0.5), None
    for _ in range(2):
        world.table.calls.clear()
        page = reader.read_page(PageRequest("c", limit=5, is_strong=is_strong, cursor=cursor))
        assert take_reports(world) == [("c", rcu_each * len(world.table.calls), 1.0)]
        world.clock.now_ms += SLOT_MS
        cursor = page.next_cursor
    assert reader.read_message("c", page.messages[0].message_id) == page.messages[0]
    assert take_reports(world) == []
    world.table.on_call = failing("query", always=KEY_RANGE_THROTTLE)
    with pytest.raises(ThrottledError):
        reader.read_page(PageRequest("c", is_strong=is_strong))
    assert take_reports(world) == [("c", rcu_each * (1 + 1 + SHARDS), 1.0)]


def test_a_conversation_that_is_not_read_hot_pays_reports_only(world):
    """A hundred pages: the requests to DynamoDB and the look-ups of a reader that neither counts nor caches."""
    world.random, started_ms, costs = Random(5), world.clock.now_ms, []
    for options in ({}, {"environment": "e"}, {"sampling_distance_rcu": 25.0}):
        reader = world.reader(**options)
        world.table.calls, world.registry.reads, world.clock.now_ms = [], 0, started_ms
        for _ in range(100):
            world.clock.now_ms += 100
            assert reader.read_page(PageRequest("c")).age_ms is None
        costs.append((world.table.calls, world.registry.reads, world.pages.server.commands))
    assert costs[1:] == costs[:1] * 2
    assert costs[0][1:] == (6, 0)  # one look-up in each 1.8 s
    assert len(take_reports(world)) == pytest.approx(0.5 * len(world.table.calls) / 25.0, abs=6)


def test_a_cached_page_counts_as_what_it_would_have_taken(world):
    """Whoever serves it: so a cache that works does not cool what it serves."""
    world.registry.mark_read_hot("c")
    first, second = (world.reader(environment=name, sampling_distance_rcu=0.5) for name in "ab")
    first.read_page(PageRequest("c"))
    calls = list(world.table.calls)
    rcu = 0.5 * len(calls)
    first.read_page(PageRequest("c"))  # from its own memory
    second.read_page(PageRequest("c"))  # from Redis
    assert world.table.calls == calls
    assert take_reports(world) == [("c", rcu, 1.0), ("c", 2 * rcu, 2.0), ("c", rcu, 1.0)]


def test_threads_count_one_after_the_other(world, monkeypatch):
    """A server's threads share one counter."""
    sampler, is_alone = LoadSampler(environment_id="e", sampling_distance=1.0, random=lambda: 0.5), []
    subject = ReportedPages(sampler=sampler, reports=world.reports, telemetry=world.telemetry, now_ms=lambda: 0)
    monkeypatch.setattr(LoadSampler, "record", lambda *_: is_alone.append(subject._lock.locked()))
    subject.count("c", 1.0)
    assert is_alone == [True]
