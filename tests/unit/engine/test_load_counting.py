"""What pages cost is counted and reported; a conversation that is not read-hot pays one sampled report for that."""

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from hotpartition.core.errors import ThrottledError
from hotpartition.core.sampler import SLOT_MS, LoadSampler
from hotpartition.engine.load_counting import ReportedPages
from hotpartition_messages.reading import PageRequest
from support.builders import World, new_message
from support.fakes import KEY_RANGE_THROTTLE


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
