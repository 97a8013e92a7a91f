"""The detectors against plain references: the same decisions to the last bit, whatever arrives in whatever order.

And what the rule means for whole loads: soon, once, large enough, and only when hot.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from hotpartition.control.read_marking import find_heat
from hotpartition.core.detector import Decision, Thresholds, decide, size_route
from hotpartition.core.reports import Report
from hotpartition.core.route import Close, Route
from hotpartition.core.window import CollectionReports, ReportWindow
from support.builders import THRESHOLDS, route_of
from support.fleet import START_MS
from support.reference_detector import Sample, decide_plainly, is_in_horizon, list_samples

START_SLOT = START_MS // 250
CONVERSATIONS = ("a", "b")


@dataclass
class Judges:
    """The product's window and the reference's list, fed alike; raises are applied to the route of both."""

    routes: dict[str, Route]
    thresholds: Thresholds = THRESHOLDS
    window: ReportWindow = field(default_factory=lambda: ReportWindow(THRESHOLDS.loud_wcu))
    taken: list[Report] = field(default_factory=list)
    seen: Counter = field(default_factory=Counter)

    def take(self, report: Report, now_ms: int) -> None:
        is_taken = self.window.add(Report.decode(report.encode()), now_ms)
        assert is_taken == is_in_horizon(report, now_ms)
        if is_taken:
            self.taken.append(report)

    def compare(self, now_ms: int) -> None:
        """Decide about all conversations both ways, and about those left out by the reference alone."""
        judged = self.window.to_judge()
        for collection in CONVERSATIONS:
            expected = self._decide_plainly(collection, now_ms)
            self.seen.update(str(d.reason) for d in expected)
            reports = self.window.as_mapping().get(collection)
            if reports is not None:
                route = self.routes[collection]
                assert decide(collection, reports, route, self.thresholds, now_ms=now_ms) == expected
            if collection not in judged:
                self.seen["left out"] += 1
                assert {str(d.reason) for d in expected} == {"below-threshold"}
            self._raise(collection, expected)

    def _decide_plainly(self, collection: str, now_ms: int) -> tuple[Decision, ...]:
        reports = [r for r in self.taken if r.collection == collection]
        return decide_plainly(collection, reports, self.routes[collection], self.thresholds, now_ms=now_ms)

    def _raise(self, collection: str, decisions: tuple[Decision, ...]) -> None:
        for decision in decisions:
            if decision.generation:
                raised = Route(frozenset({decision.generation}))
                self.routes[collection] = self.routes[collection].union(raised)


# Few sources and slots, so that values of one source meet; sums that are exact in any order, and sums that are not.
values = st.integers(1, 100).map(lambda k: 5.0 * k) | st.floats(0.1, 500.0)
reports = st.builds(
    Report,
    collection=st.sampled_from(CONVERSATIONS),
    slot=st.integers(START_SLOT - 8, START_SLOT + 4) | st.integers(START_SLOT - 64, START_SLOT + 30),
    source=st.sampled_from(["e", "e.1", "f", "g"]),
    value=values,
    position=st.sampled_from([0, START_MS - 4_000, START_MS]) | st.integers(START_MS - 9_000, START_MS + 5_000),
    shard_count=st.sampled_from([0, 2, 8]),
    is_throttled=st.booleans(),
    pages=st.just(0.0),
)
# Sorted by hypothesis' own choice: each step brings reports, some of them again, and lets time pass.
steps = st.lists(
    st.tuples(st.lists(reports, max_size=25), st.integers(0, 12), st.integers(0, 2_500), st.booleans()), max_size=5
)
routes = st.lists(
    st.tuples(
        st.sampled_from([2, 8, 64, 128]),
        st.sampled_from([START_MS - 4_000, START_MS]) | st.integers(START_MS - 9_000, START_MS),
    ),
    max_size=3,
)


closes = st.lists(st.builds(Close, st.integers(START_MS - 9_000, START_MS + 20_000), st.booleans()), max_size=2)


@given(steps, routes, routes, closes, st.integers(0, 2**32 - 1).map(Random))
def test_decisions_are_those_of_the_reference(steps, route, other_route, closes, random):
    """Redelivered, late, out of order, forgotten or left out of judging: nothing changes a decision by a bit."""
    closed = route_of(*route).union(Route.of(closes))
    judges, now_ms = Judges({"a": closed, "b": route_of(*other_route)}), START_MS
    for arriving, repeated, passing_ms, is_forgetting in steps:
        again = [random.choice(judges.taken) for _ in range(repeated if judges.taken else 0)]
        for report in random.sample([*arriving, *again], len(arriving) + len(again)):
            judges.take(report, now_ms)
        if is_forgetting:
            judges.window.forget(now_ms)
        judges.compare(now_ms)
        now_ms += passing_ms
    for reason in judges.seen:
        event(reason)


slot_loads = st.lists(st.floats(0.1, 3_000.0) | st.integers(0, 40).map(lambda k: 50.0 * k), min_size=8, max_size=24)


@given(slot_loads, slot_loads, st.sampled_from([2, 3, 8]), st.integers(0, 900), st.sampled_from([3, 128]))
def test_two_hot_classes_are_judged_as_in_the_reference(older, newer, shard_count, waiting_ms, cap):
    """Beside a live load a backfill, whose raise has to have room for both, as far as the cap lets it."""
    thresholds = replace(THRESHOLDS, max_shard_count=cap)
    judges = Judges({"a": route_of((shard_count, START_MS - 4_000)), "b": route_of()}, thresholds)
    for source, position, wcu in (("e", START_MS - 9_000, older), ("f", START_MS - 1_000, newer)):
        for slot, value in enumerate(wcu, START_SLOT - len(wcu) + 1):
            if value:
                judges.take(Report("a", slot, source, value, position, 0), START_MS)
    judges.compare(START_MS + waiting_ms)


# So few slots, sources and values that they meet all the time.
close_reports = st.builds(
    Report,
    collection=st.just("a"),
    slot=st.integers(START_SLOT - 7, START_SLOT + 1),
    source=st.sampled_from(["f", "e"]),
    value=st.sampled_from([0.1, 0.7, 49.9, 50.1, 99.9, 100.0, 260.0]),
    position=st.integers(START_MS - 3, START_MS + 3),
    shard_count=st.just(0),
    is_throttled=st.sampled_from([False] * 9 + [True]),
    pages=st.just(0.0),
)


def has_slot_with(samples: list[Sample], wcu: float) -> bool:
    slots = Counter()
    for sample in samples:
        slots[sample.report.slot] += sample.wcu
    return any(total >= wcu for total in slots.values())


@settings(max_examples=200)
@given(st.lists(close_reports, min_size=1, max_size=30), st.integers(52, 72))
def test_what_is_kept_and_who_is_judged_are_as_in_the_reference(reports, later_slots):
    """After every report, and after some of it was forgotten: the same samples, and no warm key is left out.

    However long a consumer runs, and whatever is written: of what has left the horizon the window holds nothing.
    """
    window, taken = ReportWindow(THRESHOLDS.loud_wcu), []
    for now_ms in (START_MS, START_MS + later_slots * 250):
        window.forget(now_ms)
        for report in reports:
            if window.add(report, now_ms):
                taken.append(report)
            samples = list_samples(taken, route_of(), now_ms // 250 - 60)
            kept = window.as_mapping().get("a")
            shares = kept.shares(0) if kept else []
            expected = [(s.report.slot, s.wcu, s.report.position, s.report.is_throttled) for s in samples]
            assert [(slot, *sample) for slot, share in shares for sample in share.samples] == expected
            is_judged, is_throttled = bool(window.to_judge()), any(s.report.is_throttled for s in samples)
            assert is_judged == (is_throttled or has_slot_with(samples, 99.99))
        window.forget(now_ms)
        kept_slots = {number for number, _ in window.as_mapping()["a"].shares(0)} if window.as_mapping() else set()
        assert kept_slots == {r.slot for r in taken if r.slot >= now_ms // 250 - 60}
    window.forget(START_MS + 80 * 250)
    assert (window.to_judge(), window.as_mapping(), window._sources) == ([], {}, {})


@pytest.mark.parametrize(
    ("wcu_per_second", "shard_count"),
    [(1, 2), (800, 2), (1_000, 2), (1_001, 3), (2_000, 4), (4_000, 8), (8_000, 16), (100_000, 200)],
)
def test_shards_are_as_many_as_the_load_asks_for(wcu_per_second, shard_count):
    """500 WCU/s each, whatever the load: for twice as much twice as many; two at least."""
    assert size_route(wcu_per_second, THRESHOLDS) == shard_count


@pytest.mark.parametrize("shard_count", [0, 2])
def test_refusals_halve_the_limit_at_the_base_key_alone(shard_count):
    """600 WCU/s a key, refused: more shards would not help those that are on shards."""
    judges = Judges({"a": route_of((shard_count, START_MS - 60_000)), "b": route_of()})
    for slot in range(START_SLOT - 23, START_SLOT + 1):
        wcu = 600.0 / 4 * max(shard_count, 1)
        judges.take(Report("a", slot, "e", wcu, START_MS, shard_count, is_throttled=True), START_MS)
    judges.compare(START_MS)
    assert judges.seen["raised"] == (shard_count == 0)


def test_a_raise_under_a_pending_close_comes_first():
    """It holds behind the close by itself."""
    close = Close(START_MS + 600_000, is_confirmed=True)
    judges = Judges({"a": route_of((2, START_MS - 60_000)).union(Route.of([close])), "b": route_of()})
    for slot in range(START_SLOT - 11, START_SLOT + 1):
        judges.take(Report("a", slot, "e", 2_000.0, START_MS, 2), START_MS)
    judges.compare(START_MS)
    assert judges.seen == {"raised": 1, "below-threshold": 1, "left out": 1}


def test_a_window_without_thresholds_lists_all_conversations():
    """Who looks at a moment, like an operator, looks at everything."""
    window = ReportWindow()
    window.add(Report("c", START_MS // 250, "e", 1.0, START_MS, 0), START_MS)
    assert window.to_judge() == ["c"]
    window.forget(START_MS + 15_000)
    assert window.to_judge() == ["c"]


HOT_RCU = 1_500.0
read_reports = st.builds(
    Report,
    collection=st.sampled_from("cd"),
    slot=st.integers(START_SLOT - 64, START_SLOT + 9),
    source=st.sampled_from(["e", "f"]),
    value=st.integers(1, 30).map(lambda k: 100.0 * k),
    pages=st.just(1.0),
)


def find_heat_in(window, now_ms=START_MS, collection="c"):
    return find_heat(window.as_mapping().get(collection, CollectionReports()), HOT_RCU, now_ms=now_ms)


def window_of(reports):
    window = ReportWindow(HOT_RCU / 4)
    for report in reports:
        window.add(report, START_MS)
    return window


@given(st.lists(read_reports, max_size=30), st.randoms(use_true_random=False))
def test_a_second_above_the_limit_is_read_hot(arriving, random):
    """Against a plain sum of each source's largest value: neither order nor repetition changes it, none is left out."""
    again = [random.choice(arriving) for _ in arriving]
    window, other = window_of(arriving), window_of(random.sample([*arriving, *again], 2 * len(arriving)))
    for collection in "cd":
        largest = {}
        for report in arriving:
            if report.collection == collection and is_in_horizon(report, START_MS):
                place = report.slot, report.source
                largest[place] = max(report.value, largest.get(place, 0.0))
        ends = range(START_SLOT - 19, START_SLOT + 1)
        seconds = [sum(rcu for (slot, _), rcu in largest.items() if end - 4 < slot <= end) for end in ends]
        heat = find_heat_in(window, collection=collection)
        assert heat == find_heat_in(other, collection=collection)
        assert (heat and heat[0]) == (max(seconds) if max(seconds) > HOT_RCU else None)
        assert collection in window.to_judge() or heat is None


def test_read_heat_counts_for_five_seconds():
    """So that a report that comes late, or a consumer that does, misses none."""
    window = window_of(Report("c", slot, "e", 500.0, pages=1.0) for slot in range(START_SLOT - 3, START_SLOT + 1))
    assert find_heat_in(window, START_MS + 4_999) is not None
    assert find_heat_in(window, START_MS + 5_000) is None
