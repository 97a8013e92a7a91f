"""The consumer: catches up, decides, raises in the right order, mends Redis, and ends in time."""

from itertools import product

import pytest

from hotpartition.control import consumer, read_marking
from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.core.route import Close, Route
from hotpartition.redis.cluster import raises_key
from support.builders import World, route_of
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS
from support.tables import TABLE_NAME

RAISES = raises_key(TABLE_NAME)
CLOSING = Close(START_MS + 600_000, is_confirmed=False)


def build_world(partitions=2):
    """A world three seconds after the beginning of everything."""
    world = World(partitions=partitions)
    world.clock.now_ms = START_MS + 3_000
    return world


def offer(world, *names, seconds=3, **more):
    """Send the reports of 4,000 units a second, one for each slot until now: of writes, or of reads, with `pages`."""
    last = world.clock.now_ms // 250
    for name, slot in product(names, range(last - 4 * seconds, last)):
        world.reports.send(Report(name, slot, "e", 1_000.0, START_MS, **more))


@pytest.fixture
def world():
    return build_world()


@pytest.fixture
def hot(world):
    """A world whose streams hold a hot conversation's last seconds."""
    offer(world, "c")
    return world


def decisions_in(world, message="decision"):
    return [facts for said, facts in world.telemetry.events if said == message]


def at(world, offset_ms, *acts):
    """Let something happen so long after now, once, while the consumer sleeps."""
    until_ms, left = world.clock.now_ms + offset_ms, list(acts)

    def act():
        if world.clock.now_ms >= until_ms and left:
            left.pop()()

    world.clock.on_sleep = act


def put_away(world, *, is_away=True):
    world.reports.is_down = world.registry.is_down = is_away


def raise_elsewhere(world):
    """As an operator does, or a consumer that died before it reached Redis."""
    world.raise_to(16, START_MS - 10_000, in_redis=False)


def take_redis_away(world):
    put_away(world)
    at(world, 2_000, lambda: put_away(world, is_away=False))


def refuse(*_):
    raise RegistryUnavailableError("down")


@pytest.mark.parametrize(
    ("befalls", "limit", "run_ms", "reasons"),
    [
        (lambda world: None, 1_000, 500, ["raised"]),
        # The journal is read before anything is raised, and finds the load served.
        (raise_elsewhere, 1_000, 500, []),
        # Redis lost the route: what is known of hot routes is pushed every few seconds.
        (lambda world: at(world, 2_000, world.registry.routes.clear), 1_000, 8_000, ["raised"]),
        # No reports, no decisions, no crash; when Redis is back, it goes on.
        (take_redis_away, 1_000, 4_000, ["raised"]),
        # Without Redis a raise is not counted, and made: whoever can take it away has better means than raises.
        (lambda world: setattr(world.registry, "count_raise", refuse), 1, 300, ["raised"]),
        # Raises can be switched off; what was raised already is not called refused.
        (lambda world: None, 0, 1_000, ["switched-off"]),
        (raise_elsewhere, 0, 300, []),
    ],
)
def test_a_hot_conversation_is_raised_whatever_befalls_it(hot, befalls, limit, run_ms, reasons):
    """Once. In the end Redis has what the journal has."""
    befalls(hot)
    raises = hot.consumer(max_raises_per_hour=limit).run(run_ms=run_ms).raises
    assert [facts["reason"] for facts in decisions_in(hot)] == reasons
    assert raises == reasons.count("raised")
    assert dict(hot.registry.routes) == {name: entry.route for name, entry in hot.table.routes.items()}
    assert bool(hot.table.routes) == (reasons != ["switched-off"])
    assert hot.table.calls.count("get c") <= 2


def test_the_journal_comes_before_redis(hot):
    """No process can learn a generation that is not durable."""
    order = []
    hot.table.on_call = lambda name: order.append((name, dict(hot.registry.routes)))
    hot.consumer().run(run_ms=500)
    assert next(redis for name, redis in order if name == "update c") == {}


def test_only_what_can_be_hot_is_judged_and_what_is_quiet_is_forgotten(hot, monkeypatch):
    """Ten times a second is too often for all: of a thousand that send a report, the one with load, for 15 s.

    Neither its writes nor its reads are judged after that, and its route is not brought to Redis any more.
    """
    last_ms, start_ms = {}, hot.clock.now_ms

    def watch(module, name):
        decide = getattr(module, name)

        def noted(judged, *more, **options):
            last_ms[name, judged] = hot.clock.now_ms
            return decide(judged, *more, **options)

        monkeypatch.setattr(module, name, noted)

    watch(consumer, "decide")
    watch(read_marking, "find_heat")
    offer(hot, "c", seconds=2, pages=200.0)
    for i in range(1_000):
        hot.reports.send(Report(f"quiet-{i}", START_MS // 250 + 10, "e", 5.0, START_MS))
    at(hot, 19_000, hot.registry.routes.clear)
    hot.consumer().run(run_ms=26_000)
    assert sorted(name for name, _ in last_ms) == ["decide", "find_heat"]
    assert ("decide", "c") in last_ms
    assert max(last_ms.values()) < start_ms + 17_000
    assert not hot.registry.routes


@pytest.mark.parametrize(("operation", "run_ms", "slept_seconds"), [("update", 1_000, 5.0), ("get", 300, 0.2)])
def test_a_raise_that_is_throttled_is_repeated_fast(hot, operation, run_ms, slept_seconds):
    """The journal item shares the partition that is hot; after a refused look, the raise comes in the same pass."""
    failures = [KEY_RANGE_THROTTLE] * 50

    def throttle(name):
        if name.startswith(operation) and failures:
            raise failures.pop()

    hot.table.on_call = throttle
    assert hot.consumer().run(run_ms=run_ms).raises == 1
    slept = hot.clock.slept[:50]
    assert failures == []
    assert max(slept) <= 0.1
    assert sum(slept) <= slept_seconds


def test_malformed_and_late_entries_are_counted_and_passed_over(world):
    """Whatever lies in the stream, what is wrong is named, and what follows it is read."""
    partition = stream_partition_of("c", world.reports.partitions)
    late = Report("c", world.clock.now_ms // 250 - 100, "e", 5.0, pages=1.0)
    for text in ("2|room:1", "2|a#1|7000000|12.25|1700000000000|8|1|e", late.encode()):
        world.reports.append(partition, text)
    offer(world, "c")
    summary = world.consumer().run(run_ms=300)
    assert (summary.malformed, summary.out_of_window, summary.raises) == (2, 1, 1)
    assert summary.entries == 3 + len(world.reports.sent)
    reasons = [facts["reason"] for facts in decisions_in(world, "malformed report skipped")]
    assert [reason[:26] for reason in reasons] == ["2 parts, not 8", "conversation_id: should be"]


def test_a_report_in_a_stream_of_another_number_is_judged():
    """While `stream_partitions` changes, writers of before put a conversation into another stream."""
    world = build_world(partitions=1)
    offer(world, next(f"c{i}" for i in range(100) if stream_partition_of(f"c{i}", 2) == 1))
    world.reports.partitions = 2
    assert world.consumer().run(run_ms=500).raises == 1


def test_a_consumer_ends_when_its_successor_is_at_work(world):
    """Not before: the successor announces itself only when it has caught up."""
    started_ms = world.clock.now_ms
    at(world, 65_000, lambda: world.reports.announce(started_ms + 60_000))
    assert world.consumer().run(run_ms=170_000).ended == "successor"
    assert 65_000 <= world.clock.now_ms - started_ms < 67_500


def test_an_older_consumer_does_not_stop_a_younger_one(world):
    """The heartbeat is a maximum."""
    world.reports.announce(world.clock.now_ms - 60_000)
    assert world.consumer().run(run_ms=3_000).ended == "time"
    assert world.reports.latest_start_ms() == world.clock.now_ms - 3_000


def test_a_consumer_that_has_not_caught_up_does_not_announce_itself(hot):
    """One stream's node is away: its predecessor, who knows that stream's last seconds, must go on."""
    hot.reports.away = {1}
    hot.consumer().run(run_ms=1_000)
    assert hot.reports.latest_start_ms() is None


@pytest.mark.parametrize(
    ("away_ms", "least_ms", "most_ms"), [(0, 0, 999), (3_000, 2_500, 3_900), (99_000, 14_501, 16_499)]
)
def test_how_old_the_reports_were_is_told(hot, away_ms, least_ms, most_ms):
    """Every five seconds, at 0, 5 and 10 s, at worst since the last time: next to nothing, unless Redis is away."""
    hot.reports.is_down = away_ms > 0
    at(hot, away_ms, lambda: setattr(hot.reports, "is_down", False))
    hot.consumer().run(run_ms=11_000)
    assert least_ms <= hot.telemetry.counts["ConsumerLagMs"] <= most_ms


def test_a_log_line_says_what_its_decision_stands_on(world):
    """With each slot of five seconds: of writes the last one is left out, which may not be whole yet."""
    heat = [1_000.0] * 8
    offer(world, "c", seconds=2, is_throttled=True)
    offer(world, "c", seconds=2, pages=200.0)
    # Less than what a line shows.
    world.reports.send(Report("c", START_MS // 250 + 11, "f", 0.04, START_MS, pages=200.0))
    world.consumer().run(run_ms=1_000)
    known = {"collection": "c", "reason": "raised", "generation": f"8@{START_MS - 2_000}", "load_class": 0}
    rates = {"rate_wcu_per_second": 4_000.0, "later_wcu_per_second": 0.0, "throttled_wcu": 7_000.0}
    assert decisions_in(world) == [{**known, **rates, "per_slot_wcu": [*[0.0] * 13, *heat[:7]]}]
    known = {"collection": "c", "reason": "read-hot", "rcu_per_second": 4_000.0}
    assert decisions_in(world, "read decision") == [{**known, "per_slot_rcu": [*[0.0] * 11, *heat, 0.0]}]


def test_a_mark_is_renewed_while_the_heat_lasts_and_not_after_it(world):
    """Every 15 s: the mark lasts a minute. Nothing is raised for reads, and the journal is not asked."""
    marked, start_ms = [], world.clock.now_ms
    world.registry.mark_read_hot = lambda collection: marked.append(world.clock.now_ms - start_ms)

    def read_on():
        if world.clock.now_ms < start_ms + 40_000:
            offer(world, "c", seconds=1, pages=200.0)

    world.clock.on_sleep = read_on
    assert world.consumer().run(run_ms=90_000).raises == 0
    assert [at_ms // 15_000 for at_ms in marked] == [0, 1, 2]
    assert "get c" not in world.table.calls


def test_a_mark_that_redis_does_not_take_is_tried_again(hot):
    """Nothing else waits for it; the decision is logged once it is known to all."""
    offer(hot, "c", seconds=2, pages=200.0)
    mark, left = hot.registry.mark_read_hot, [refuse] * 3
    hot.registry.mark_read_hot = lambda name: left.pop()(name) if left else mark(name)
    assert hot.consumer().run(run_ms=1_000).raises == 1
    assert (left, hot.registry.read_hot) == ([], ["c"])
    assert len(decisions_in(hot, "read decision")) == 1
    assert hot.telemetry.counts["RegistryUnavailable"] == 3


def test_an_hour_has_so_many_raises_and_no_more(world):
    """What would be one too many is logged as such, once, and raised when there is room again."""
    offer(world, "a", "b", "c", seconds=2)
    assert world.consumer(max_raises_per_hour=2).run(run_ms=1_000).raises == 2
    (left,) = {"a", "b", "c"} - set(world.table.routes)
    assert [facts["reason"] for facts in decisions_in(world) if facts["collection"] == left] == ["too-many"]
    assert (world.telemetry.counts["Decision-too-many"], world.registry.server.do("GET", RAISES)) == (1, b"3")
    world.registry.server.do("DEL", RAISES)
    assert world.consumer(max_raises_per_hour=2).run(run_ms=1_000).raises == 1
    assert left in world.table.routes


def offer_steadily(world, wcu, act=lambda _: None):
    """Let a load arrive on 13 shards while the consumer runs; `act` happens before each report."""

    def offer():
        act(world)
        for source in "abc":
            position, slot = world.clock.now_ms, world.clock.now_ms // 250
            world.reports.send(Report("c", slot, source, wcu / 4 / 3, position, 13))

    world.clock.now_ms = START_MS
    world.table.routes["c"] = JournalEntry(route_of((13, START_MS - 60_000)), START_MS)
    world.clock.on_sleep = offer


def close(world):
    world.table.routes["c"] = JournalEntry(world.table.routes["c"].route.union(Route.of([CLOSING])), START_MS)


def count_behind(world):
    return world.table.routes["c"].route.as_announced.shard_count_at(CLOSING.at_ms)


@pytest.mark.parametrize(("wcu", "is_kept"), [(350, False), (450, True), (600, True), (780, True), (3_000, True)])
def test_what_is_warm_keeps_its_n_behind_a_pending_close(world, wcu, is_kept):
    """Also between half of hot and hot. It is no raise of the hour: used up, it must not send all to the base key."""
    world.registry.server.do("SET", RAISES, 10)
    offer_steadily(world, wcu)
    close(world)
    assert world.consumer(max_raises_per_hour=2).run(run_ms=8_000).raises == is_kept
    assert count_behind(world) == (13 if is_kept else 0)
    assert world.registry.server.do("GET", RAISES) == b"10"
    assert world.table.reasons.get("c", "").startswith("still-warm") is is_kept


def test_a_close_of_a_hot_key_is_noticed_by_a_consumer_that_knows_its_route(world):
    """Whoever announced it: the route of what is hot is read again each minute."""
    passes = iter(range(10**6))
    offer_steadily(world, 3_000, lambda world: close(world) if next(passes) == 100 else None)
    world.consumer().run(run_ms=70_000)
    assert count_behind(world) == 13
    assert world.table.calls.count("get c") <= 4


def test_a_state_that_ended_while_the_consumer_stood_still_is_logged_again_when_it_comes_again(hot):
    """What it logged last is over, although the key is not judged for its load any more."""
    start_ms, stops = hot.clock.now_ms, [20_000]

    def stand_still():
        if stops and hot.clock.now_ms >= start_ms + 1_000:
            hot.clock.now_ms += stops.pop()
        wcu = 1_000.0 if hot.clock.now_ms >= start_ms + 25_000 else 1.0
        hot.reports.send(Report("c", hot.clock.now_ms // 250, "e", wcu, hot.clock.now_ms, 0))

    assert start_ms // 60_000 == (start_ms + 30_000) // 60_000
    hot.clock.on_sleep = stand_still
    hot.consumer(max_raises_per_hour=0).run(run_ms=30_000)
    assert [facts["reason"] for facts in decisions_in(hot)].count("switched-off") == 2
