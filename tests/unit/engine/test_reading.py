"""The read job: Redis is a hint, the journal decides, pages are exact, and what they cost is counted."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from random import Random

import pytest

from hotpartition.core.errors import ThrottledError
from hotpartition.core.sampler import SLOT_MS, LoadSampler
from hotpartition.core.times import format_time
from hotpartition.engine.load_counting import ReportedPages
from hotpartition_messages.reading import MAX_LIMIT, PageRequest
from support.builders import World, build_message, new_message, read_all, route_of
from support.fakes import KEY_RANGE_THROTTLE

from .conftest import failing


def filled(count=40, shard_count=4, *, in_redis=True):
    """A conversation that was raised after its first quarter; returns the world and all ids, oldest first."""
    world = World()
    writer, ids = world.writer(ttl_seconds=0.0), []
    for i in range(count):
        world.clock.now_ms += 100
        if i == count // 4:
            world.raise_to(shard_count, world.clock.now_ms, in_redis=True)
        ids.append(writer.write(new_message(str(i))).message.message_id)
    if not in_redis:
        world.registry.routes.clear()
    world.table.calls.clear()
    return world, ids


def found(messages):
    return [m.message_id for m in messages]


@pytest.mark.parametrize("is_strong", [True, False])
def test_a_quiet_conversations_newest_page_is_one_request(is_strong):
    """Never hot: one query, which brings the journal along, and not one shard."""
    world = World()
    ids = [world.writer().write(new_message(str(i))).message.message_id for i in range(5)]
    world.table.calls.clear()
    page = world.reader().read_page(PageRequest("c", is_strong=is_strong))
    assert sorted(found(page.messages)) == sorted(ids)
    assert world.table.calls == ["query c"]


@pytest.mark.parametrize("newest_first", [True, False])
def test_an_emptied_redis_costs_a_second_wave_and_no_message(newest_first):
    """The journal knew more: the missing shards are asked, and Redis is mended."""
    world, ids = filled(in_redis=False)
    messages = read_all(world.reader(), PageRequest("c", newest_first))
    assert found(messages) == sorted(ids, reverse=newest_first)
    assert world.registry.routes["c"] == world.table.routes["c"].route
    assert world.telemetry.counts["RegistryBehindJournal"] == 1


@pytest.mark.parametrize("newest_first", [True, False])
def test_history_from_before_the_first_raise_names_no_shard(newest_first):
    """One query and the journal's read, in either order."""
    world, ids = filled()
    # Oldest-first, the page ends before the raise; newest-first, the bound lies before it.
    before = None if not newest_first else next(iter(world.table.routes["c"].route.generations)).since_ms
    page = world.reader().read_page(PageRequest("c", newest_first, 5, before_ms=before))
    expected = ids[:5] if not newest_first else sorted(ids[:10], reverse=True)[:5]
    assert found(page.messages) == expected
    assert sorted(world.table.calls) == ["get c", "query c"]


def test_redis_ahead_of_a_strong_journal_read_is_told_and_used():
    """Somebody restored the table or wrote to Redis: an operator hears of it, and repairs it; readers never write."""
    world = World()
    world.registry.routes["c"] = route_of((4, 0))
    reader = world.reader()
    reader.read_page(PageRequest("c", is_strong=False))
    assert "RegistryAheadOfJournal" not in world.telemetry.counts
    reader.read_page(PageRequest("c", is_strong=True))
    assert world.table.routes == {}
    assert {call.split()[0] for call in world.table.calls} == {"query"}
    assert "query c#3" in world.table.calls
    assert world.telemetry.counts["RegistryAheadOfJournal"] == 1


def test_one_failed_shard_is_asked_again():
    """And only that one; what the others answered is kept."""
    world, ids = filled()
    world.table.failures = [None, KEY_RANGE_THROTTLE]
    messages = world.reader().read_page(PageRequest("c", limit=MAX_LIMIT)).messages
    assert len(messages) == len(ids)
    assert world.telemetry.counts["ReadsRetried"] == 1


def test_a_page_is_complete_or_an_error():
    """A shard that stays away fails the page within the budget; it is never silently partial."""
    world, _ = filled()
    started = world.clock.now_ms
    world.table.on_call = failing("query c#2", always=KEY_RANGE_THROTTLE)
    with pytest.raises(ThrottledError):
        world.reader(budget_ms=300).read_page(PageRequest("c"))
    assert world.clock.now_ms - started < 300


def test_a_failed_journal_read_fails_the_page():
    """Without the journal nobody knows where to look, so nobody says that this is all."""
    world, _ = filled()
    world.table.on_call = failing("get c", always=KEY_RANGE_THROTTLE)
    with pytest.raises(ThrottledError):
        world.reader().read_page(PageRequest("c", newest_first=False))


@pytest.mark.parametrize(
    "request_",
    [PageRequest("c", after_ms=30, before_ms=30), PageRequest("c", before_ms=0), PageRequest("c", before_ms=-5)],
)
def test_a_range_that_holds_nothing_asks_nobody(request_):
    world = World()
    page = world.reader().read_page(request_)
    assert (page.messages, page.next_cursor, world.table.calls) == ((), None, [])


def test_settled_until_lies_behind_the_present_and_never_past_the_page():
    """A poller that goes on from there misses nothing that comes a little late."""
    world, _ = filled()
    reader = world.reader()
    whole = reader.read_page(PageRequest("c", newest_first=False, limit=MAX_LIMIT))
    assert whole.settled_until == format_time(world.clock.now_ms - 5_000)
    part = reader.read_page(PageRequest("c", newest_first=False, limit=3))
    assert part.settled_until <= part.messages[-1].sent_at


@pytest.mark.parametrize(("limit", "page_ms"), [(1, 120), (3, 300)])
def test_a_poller_misses_nothing_however_long_a_walk_takes(limit, page_ms):
    """Slow writers put messages behind the cursor while the pages are read; `settled_until` leads back to them."""
    world, random = World(), Random(1)
    started_ms = world.clock.now_ms
    times = [started_ms + round(random.uniform(0, 30_000)) for _ in range(240)]
    due = sorted((time_ms + random.uniform(0, 4_900), build_message(time_ms, n)) for n, time_ms in enumerate(times))
    reader, seen = world.reader(), set()
    request = PageRequest("c", newest_first=False, limit=limit, after_ms=started_ms, is_strong=True)
    while world.clock.now_ms < started_ms + 60_000:
        while due and due[0][0] <= world.clock.now_ms:
            world.store(due.pop(0)[1], "c")
        page = reader.read_page(request)
        seen.update(found(page.messages))
        if page.next_cursor is None:
            after_ms = round(datetime.fromisoformat(page.settled_until).timestamp() * 1000)
            request = replace(request, cursor=None, after_ms=max(after_ms, started_ms))
        else:
            request = replace(request, cursor=page.next_cursor)
        world.clock.now_ms += page_ms
    assert len(seen) == len(times)


@pytest.fixture
def world():
    """A conversation of 40 messages over four shards; each query takes half an RCU, or a whole one."""
    world = World()
    world.raise_to(4, world.clock.now_ms)
    for i in range(40):
        world.clock.now_ms += 10
        world.writer().write(new_message(str(i)))
    world.reports.sent.clear()
    world.table.calls.clear()
    world.registry.reads = 0
    return world


def reported(world):
    return [(r.collection, r.value, r.pages) for r in world.reports.sent if r.pages]


def took(world, rcu_each=0.5):
    """What was read since the last look, the journal too."""
    calls = [call for call in world.table.calls if call.startswith(("query", "get"))]
    world.table.calls.clear()
    return rcu_each * len(calls)


@pytest.mark.parametrize(("is_strong", "rcu_each"), [(True, 1.0), (False, 0.5)])
def test_a_page_is_counted_with_what_it_took(world, is_strong, rcu_each):
    """All of its queries, the base key's among them; a page with a cursor is a page like others."""
    reader, cursor = world.reader(sampling_distance_rcu=0.5), None
    for _ in range(2):
        world.reports.sent.clear()
        page = reader.read_page(PageRequest("c", limit=5, is_strong=is_strong, cursor=cursor))
        assert reported(world) == [("c", took(world, rcu_each), 1.0)]
        world.clock.now_ms += SLOT_MS
        cursor = page.next_cursor


def test_a_conversation_that_is_not_read_hot_pays_reports_only(world):
    """A hundred pages: the requests to DynamoDB and the look-ups of a reader that counts nothing, and a few reports."""

    def read(sampling_distance_rcu):
        reader, calls = world.reader(sampling_distance_rcu=sampling_distance_rcu), []
        world.table.calls = calls
        world.registry.reads = 0
        started_ms = world.clock.now_ms
        for _ in range(100):
            world.clock.now_ms += 100
            reader.read_page(PageRequest("c"))
        world.clock.now_ms = started_ms
        return list(calls), world.registry.reads

    world.random = Random(5)
    assert read(None) == read(25.0)
    pages, queries = 100, 5
    assert len(reported(world)) == pytest.approx(pages * queries * 0.5 / 25.0, abs=6)
    assert world.registry.reads == 6  # one in each 1.8 s


def test_a_page_that_is_refused_is_counted_with_the_least_that_it_takes(world):
    """Whoever meets the limit offers load, too: half a unit for each query that was refused."""
    world.table.on_call = lambda name: (_ for _ in ()).throw(KEY_RANGE_THROTTLE)
    with pytest.raises(ThrottledError):
        world.reader(sampling_distance_rcu=0.5).read_page(PageRequest("c"))
    ((_, rcu, pages),) = reported(world)
    # The base key, its journal with it, and four shards.
    assert (rcu, pages) == (3.0, 1.0)


def test_a_cached_page_counts_as_what_it_would_have_taken(world):
    """Whoever serves it: so a cache that works does not cool what it serves."""
    world.registry.mark_read_hot("c")
    first, second = (world.reader(environment=name, sampling_distance_rcu=0.5) for name in "ab")
    first.read_page(PageRequest("c"))
    rcu = took(world)
    assert reported(world) == [("c", rcu, 1.0)]
    first.read_page(PageRequest("c"))  # from its own memory
    second.read_page(PageRequest("c"))  # from Redis
    assert took(world) == 0
    assert reported(world)[1:] == [("c", 2 * rcu, 2.0), ("c", rcu, 1.0)]


def test_a_point_read_is_not_counted(world):
    """No cache of pages would help it."""
    reader = world.reader(sampling_distance_rcu=0.1)
    (message,) = reader.read_page(PageRequest("c", limit=1)).messages
    world.reports.sent.clear()
    assert reader.read_message("c", message.message_id) == message
    assert reported(world) == []


class Halting(LoadSampler):
    """Lets other threads on while it counts."""

    overlaps, is_counting = 0, False

    def record(self, *counted):
        self.overlaps += self.is_counting
        self.is_counting = True
        time.sleep(0.0001)
        crossing = super().record(*counted)
        self.is_counting = False
        return crossing


def test_threads_count_one_after_the_other(world):
    """A server's threads share one counter: what they count together is what one would have counted."""
    sampler = Halting(environment_id="e", sampling_distance=1.0, random=lambda: 0.5)
    subject = ReportedPages(
        sampler=sampler, reports=world.reports, telemetry=world.telemetry, now_ms=lambda: world.clock.now_ms
    )
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: subject.count("c", 1.0), range(200)))
    assert sorted(report.value for report in world.reports.sent) == [float(n) for n in range(1, 201)]
    assert sampler.overlaps == 0
