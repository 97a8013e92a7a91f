"""The consumer: catches up, decides, raises in the right order, mends Redis, and ends in time."""

import pytest

from hotpartition.control import consumer
from hotpartition.core import detector
from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.core.route import Close, Route
from support.builders import World, route_of
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS, Fleet


def hot_world():
    """A world whose streams hold a hot conversation's last seconds."""
    world = World()
    world.clock.now_ms = START_MS + 3_000
    offer_heat(world)
    return world


def offer_heat(world):
    for arrival in Fleet().offer(lambda _: 4_000, 3_000):
        world.reports.send(arrival.report)


@pytest.fixture
def hot():
    return hot_world()


@pytest.fixture
def world():
    return World()


def test_a_hot_conversation_is_raised_in_the_journal_and_then_in_redis(hot):
    """Journal first: nobody can learn a generation that is not durable."""
    order = []
    hot.table.on_call = lambda name: order.append((name, dict(hot.registry.routes)))
    summary = hot.consumer().run(run_ms=500)
    assert summary.raises == 1
    assert hot.registry.routes["c"] == hot.table.routes["c"].route
    assert next(redis for name, redis in order if name == "update c") == {}


def test_only_conversations_that_can_be_hot_are_judged(hot, monkeypatch):
    """Ten times a second nobody can look at all: of a thousand that send a report, the one with load."""
    for i in range(1_000):
        hot.reports.send(Report(f"quiet-{i}", START_MS // 250 + 10, "e", 5.0, START_MS, 0))
    judged = set()

    def decide(conversation_id, *arguments, **options):
        judged.add(conversation_id)
        return detector.decide(conversation_id, *arguments, **options)

    monkeypatch.setattr(consumer, "decide", decide)
    assert hot.consumer().run(run_ms=500).raises == 1
    assert judged == {"c"}


@pytest.mark.parametrize(("operation", "run_ms", "slept_seconds"), [("update", 1_000, 5.0), ("get", 300, 0.2)])
def test_a_raise_that_is_throttled_is_repeated_fast(hot, operation, run_ms, slept_seconds):
    """The journal item shares the partition that is hot; after a refused look, the raise comes in the same pass."""
    failed = []

    def throttle(name):
        if name.startswith(operation) and len(failed) < 50:
            failed.append(name)
            raise KEY_RANGE_THROTTLE

    hot.table.on_call = throttle
    assert hot.consumer().run(run_ms=run_ms).raises == 1
    assert len(failed) == 50
    slept = hot.clock.slept[: len(failed)]
    assert max(slept) <= 0.1
    assert sum(slept) <= slept_seconds


def test_a_crash_between_journal_and_registry_is_repaired_by_the_next_consumer(hot):
    """What is decided but already in the journal is pushed to Redis again, and nothing is raised twice."""
    hot.registry.is_down = True
    hot.consumer().run(run_ms=300)
    route = hot.table.routes["c"].route
    assert hot.registry.routes == {}
    hot.registry.is_down = False
    assert hot.consumer().run(run_ms=300).raises == 0
    assert hot.registry.routes["c"] == route == hot.table.routes["c"].route


def test_a_route_that_redis_lost_is_put_there_again(hot):
    """Set back by a failover, or emptied: what is known of hot routes is pushed every few seconds."""
    emptied_at = hot.clock.now_ms + 2_000

    def lose_the_route():
        if hot.clock.now_ms == emptied_at:
            hot.registry.routes.clear()

    hot.clock.on_sleep = lose_the_route
    hot.consumer().run(run_ms=8_000)
    assert hot.registry.routes["c"] == hot.table.routes["c"].route


MALFORMED_TEXTS = {
    "2|room:1": "2 parts, not 8",
    "": "format '' is neither '2' nor '3'",
    "3|and|something|else": "4 parts, not 6",
    "2|a#1|7000000|12.25|1700000000000|8|1|e": "conversation_id: should be",
    "3|a#1|7000000|5.0|1.0|e": "conversation_id: should be",
}


def test_malformed_entries_are_counted_logged_and_passed_over(world):
    """Whatever lies in the stream, what is wrong is named, and what follows it is read."""
    world.clock.now_ms = START_MS + 3_000
    partition = stream_partition_of("c", world.partitions)
    for text in MALFORMED_TEXTS:
        world.reports.append(partition, text)
    offer_heat(world)
    summary = world.consumer().run(run_ms=300)
    assert summary.malformed == len(MALFORMED_TEXTS)
    reasons = [facts["reason"] for message, facts in world.telemetry.events if message == "malformed report skipped"]
    for reason, expected in zip(reasons, MALFORMED_TEXTS.values(), strict=True):
        assert expected in reason
    assert summary.entries == len(MALFORMED_TEXTS) + len(world.reports.sent)
    assert summary.raises == 1


def test_a_consumer_ends_when_its_successor_is_at_work(world):
    """Not before: the successor announces itself only when it has caught up."""

    def successor_starts():
        if world.clock.now_ms > START_MS + 65_000:
            world.reports.announce(START_MS + 60_000)

    world.clock.now_ms = START_MS
    world.clock.on_sleep = successor_starts
    summary = world.consumer().run(run_ms=170_000)
    assert summary.ended == "successor"
    assert START_MS + 65_000 < world.clock.now_ms < START_MS + 67_500


def test_an_older_consumer_does_not_stop_a_younger_one(world):
    """The heartbeat is a maximum."""
    world.reports.announce(world.clock.now_ms - 60_000)
    assert world.consumer().run(run_ms=3_000).ended == "time"
    assert world.reports.latest_start_ms() == world.clock.now_ms - 3_000


def test_a_report_in_a_stream_of_another_number_is_judged():
    """While `stream_partitions` changes, writers of before put a conversation into another stream."""
    world = World(partitions=1)
    world.clock.now_ms = START_MS + 3_000
    name = next(f"c{i}" for i in range(100) if stream_partition_of(f"c{i}", 2) == 1)
    for arrival in Fleet().offer(lambda _: 4_000, 3_000):
        world.reports.send(arrival.report._replace(collection=name))
    world.reports.partitions = 2
    assert world.consumer().run(run_ms=500).raises == 1


def test_while_redis_is_away_the_consumer_waits(hot):
    """No reports, no decisions, no crash; when Redis is back, it goes on."""
    hot.reports.is_down = hot.registry.is_down = True
    back_at = hot.clock.now_ms + 2_000

    def redis_returns():
        if hot.clock.now_ms >= back_at:
            hot.reports.is_down = hot.registry.is_down = False

    hot.clock.on_sleep = redis_returns
    assert hot.consumer().run(run_ms=4_000).raises == 1
    assert hot.reports.latest_start_ms() is not None


def test_a_raise_made_elsewhere_is_seen_before_deciding_again(hot):
    """An operator pre-split the conversation: the consumer reads the journal and finds the load served."""
    hot.raise_to(16, START_MS - 10_000, in_redis=False)
    summary = hot.consumer().run(run_ms=500)
    assert summary.raises == 0
    assert hot.registry.routes["c"] == route_of((16, START_MS - 10_000))
    assert [facts for message, facts in hot.telemetry.events if message == "decision"] == []


def test_a_consumer_that_has_not_caught_up_does_not_announce_itself(hot):
    """One stream's node is away: its predecessor, who knows that stream's last seconds, must go on."""
    original = hot.reports.read

    def read_one_stream_only(partition, after_id, limit):
        if partition == 1:
            raise RegistryUnavailableError("this node is away")
        return original(partition, after_id, limit)

    hot.reports.read = read_one_stream_only
    hot.consumer().run(run_ms=1_000)
    assert hot.reports.latest_start_ms() is None


def test_how_old_the_reports_were_is_told():
    """Every five seconds, at worst since the last time: next to nothing, unless Redis is away."""
    well, badly = hot_world(), hot_world()
    badly.reports.is_down = True
    for world in (well, badly):
        world.consumer().run(run_ms=11_000)
    assert well.telemetry.counts["ConsumerLagMs"] < 1_000
    # at 0, 5 and 10 s
    assert 14_500 < badly.telemetry.counts["ConsumerLagMs"] < 16_500


def read_rush(world, *, rcu_per_second, seconds):
    """Send the reports of a steady load of reads that ends now, one for each slot, in pages of 5 RCU."""
    last = world.clock.now_ms // 250 - 1
    for slot in range(last - 4 * seconds + 1, last + 1):
        world.reports.send(Report("c", slot, "e", rcu_per_second / 4, pages=rcu_per_second / 20))


def read_decisions(world):
    return [facts for message, facts in world.telemetry.events if message == "read decision"]


def test_a_read_hot_conversation_is_marked_and_says_why(world):
    """Within one pass; nothing is raised for it, and the journal is not asked."""
    read_rush(world, rcu_per_second=225_000, seconds=2)
    summary = world.consumer().run(run_ms=200)
    assert world.registry.copies == {"c": 3}
    assert (summary.raises, world.table.calls.count("get c")) == (0, 0)
    (decision,) = read_decisions(world)
    assert (decision["collection"], decision["reason"], decision["rcu_per_second"]) == ("c", "read-hot", 225_000)
    assert world.telemetry.counts["Decision-read-hot"] == 1


def test_a_mark_is_renewed_while_the_heat_lasts_and_not_after_it(world):
    """Every 15 s: the mark lasts a minute."""
    marked, start_ms = [], world.clock.now_ms
    world.registry.mark_read_hot = lambda collection: marked.append(world.clock.now_ms - start_ms)

    def read_on():
        if world.clock.now_ms < start_ms + 40_000:
            read_rush(world, rcu_per_second=4_000, seconds=1)

    world.clock.on_sleep = read_on
    world.consumer().run(run_ms=90_000)
    assert [at_ms // 15_000 for at_ms in marked] == [0, 1, 2]


def test_a_mark_that_redis_does_not_take_is_tried_again(hot):
    """Nothing else waits for it; the decision is logged once it is known to all."""
    read_rush(hot, rcu_per_second=4_000, seconds=2)
    calls = []

    def refuse(collection):
        calls.append(collection)
        if len(calls) < 4:
            raise RegistryUnavailableError("away")

    hot.registry.mark_read_hot = refuse
    assert hot.consumer().run(run_ms=1_000).raises == 1
    assert len(calls) == 4
    assert len(read_decisions(hot)) == 1
    assert hot.telemetry.counts["RegistryUnavailable"] == 3


def test_a_late_report_of_reads_is_left_out(world):
    late = Report("c", world.clock.now_ms // 250 - 100, "e", 5.0, pages=1.0)
    world.reports.append(0, late.encode())
    summary = world.consumer().run(run_ms=100)
    assert (summary.entries, summary.out_of_window, summary.malformed) == (1, 1, 0)


def hot_keys(*names, at_ms):
    """Reports of keys with 4,000 WCU/s each, for two seconds until an instant."""
    for name in names:
        for arrival in Fleet().offer(lambda _: 4_000, 2_000):
            late = at_ms // 250 - START_MS // 250 - 8
            yield arrival.report._replace(collection=name, slot=arrival.report.slot + late)


def test_an_hour_has_so_many_raises_and_no_more(world):
    """What would be one too many is logged as such, once, and raised when there is room again."""
    world.clock.now_ms = START_MS + 2_000
    for report in hot_keys("a", "b", "c", at_ms=world.clock.now_ms):
        world.reports.send(report)
    assert world.consumer(max_raises_per_hour=2).run(run_ms=1_000).raises == 2
    (left,) = {"a", "b", "c"} - set(world.table.routes)
    decided = [facts["reason"] for name, facts in world.telemetry.events if facts.get("collection") == left]
    assert decided == ["too-many"]
    assert world.telemetry.counts["Decision-too-many"] == 1
    world.registry.raises = 0
    assert world.consumer(max_raises_per_hour=2).run(run_ms=1_000).raises == 1
    assert left in world.table.routes


def offer_steadily(world, at_start):
    """Let 3,000 WCU/s arrive on eight shards while the consumer runs; `at_start` happens with the first of it."""
    begun = []

    def offer():
        if not begun:
            begun.append(at_start())
        slot = world.clock.now_ms // 250
        world.reports.send(Report("c", slot, "e", 750.0, world.clock.now_ms, 8))

    world.clock.now_ms = START_MS
    world.table.routes["c"] = JournalEntry(route_of((8, START_MS - 60_000)), START_MS)
    world.clock.on_sleep = offer


CLOSING = Close(START_MS + 600_000, is_confirmed=False)


def close_in(world):
    world.table.routes["c"] = JournalEntry(world.table.routes["c"].route.union(Route.of([CLOSING])), START_MS)


def test_what_keeps_n_behind_a_pending_close_is_not_counted(world):
    """An hour whose raises are used up must not send all writers to the base key."""
    world.registry.raises = 10
    offer_steadily(world, lambda: close_in(world))
    assert world.consumer(max_raises_per_hour=2).run(run_ms=10_000).raises == 1
    assert world.table.routes["c"].route.as_announced.shard_count_at(CLOSING.at_ms) == 8
    assert world.registry.raises == 10
    assert world.table.reasons["c"].startswith("still-warm")


def test_a_close_of_a_hot_key_is_noticed_by_a_consumer_that_knows_its_route(world):
    """Whoever announced it: the route of what is hot is read again each minute."""
    offer_steadily(world, lambda: None)
    offer, later = world.clock.on_sleep, iter(range(10**6))

    def close_after_a_while():
        offer()
        if next(later) == 100:
            close_in(world)

    world.clock.on_sleep = close_after_a_while
    world.consumer().run(run_ms=70_000)
    assert world.table.routes["c"].route.as_announced.shard_count_at(CLOSING.at_ms) == 8
    assert world.table.calls.count("get c") <= 4


@pytest.mark.parametrize(("wcu", "is_kept"), [(350, False), (450, True), (600, True), (780, True)])
def test_what_is_warm_keeps_its_n_behind_a_pending_close(world, wcu, is_kept):
    """Also between half of hot and hot, where nothing else is decided, and by a consumer that knows no route yet."""

    def offer():
        slot, sources = world.clock.now_ms // 250, ("a", "b", "c")
        for source in sources:
            position = world.clock.now_ms
            world.reports.send(Report("c", slot, source, wcu / 4 / len(sources), position, 13))

    world.clock.now_ms = START_MS
    world.table.routes["c"] = JournalEntry(route_of((13, START_MS - 60_000)).union(Route.of([CLOSING])), START_MS)
    world.clock.on_sleep = offer
    world.consumer().run(run_ms=8_000)
    behind = world.table.routes["c"].route.as_announced.shard_count_at(CLOSING.at_ms)
    assert behind == (13 if is_kept else 0)


def test_raises_can_be_switched_off(hot):
    """Decisions are logged all the same; nothing is counted, and the journal is read once in a while, not each pass."""
    assert hot.consumer(max_raises_per_hour=0).run(run_ms=1_000).raises == 0
    assert hot.table.routes == {}
    assert [facts["reason"] for name, facts in hot.telemetry.events if name == "decision"] == ["switched-off"]
    assert (hot.registry.raises, hot.table.calls.count("get c")) == (0, 1)


def test_a_state_that_ended_while_the_consumer_stood_still_is_logged_again_when_it_comes_again(hot):
    """What it logged last is over, although the key is not judged for its load any more."""
    start_ms, stops = hot.clock.now_ms, [20_000]

    def stand_still():
        if stops and hot.clock.now_ms >= start_ms + 1_000:
            hot.clock.now_ms += stops.pop()
        is_hot = hot.clock.now_ms >= start_ms + 25_000
        slot = hot.clock.now_ms // 250
        hot.reports.send(Report("c", slot, "e", 1_000.0 if is_hot else 1.0, hot.clock.now_ms, 0))

    assert start_ms // 60_000 == (start_ms + 30_000) // 60_000
    hot.clock.on_sleep = stand_still
    hot.consumer(max_raises_per_hour=0).run(run_ms=30_000)
    reasons = [facts["reason"] for name, facts in hot.telemetry.events if name == "decision"]
    assert reasons.count("switched-off") == 2


def test_a_key_that_was_raised_already_is_not_called_refused(hot):
    """A consumer that starts while raises are off looks the route up before it says anything."""
    hot.table.routes["c"] = JournalEntry(route_of((16, START_MS - 10_000)), START_MS)
    hot.consumer(max_raises_per_hour=0).run(run_ms=300)
    assert [facts for name, facts in hot.telemetry.events if name == "decision"] == []


def test_without_redis_a_raise_is_not_counted_and_made(hot, monkeypatch):
    """Whoever can take Redis away has better means than raises."""

    def fail():
        raise RegistryUnavailableError("down")

    monkeypatch.setattr(hot.registry, "count_raise", fail)
    assert hot.consumer(max_raises_per_hour=1).run(run_ms=300).raises == 1
