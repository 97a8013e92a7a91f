"""Whole detections: a fleet's reports through codec, streams and consumer, and the decision logs that come out as text.

`UPDATE_GOLDEN=1 pytest tests/unit/control/test_detection.py` writes the texts anew: they are read as a diff.
"""

from pathlib import Path
from random import Random

import pytest

from hotpartition.core.reports import Report
from hotpartition.core.sampler import SLOT_MS
from support.builders import World
from support.fleet import START_MS, Fleet
from support.golden import assert_all_tested, assert_golden

FOLDER = Path(__file__).parent / "detections"
ONSET_MS = 3_137
"""When heat begins, in ms after the start: not at a slot's edge."""
HOUR_MS = 3_600_000


def step(after_wcu, before_wcu=100):
    return lambda at: after_wcu if at >= ONSET_MS else before_wcu


def offer_backfill():
    """A hot conversation, and 9 s later clients that upload an old hour."""
    age = iter(range(2 * HOUR_MS, 0, -800))
    old = Fleet(seed=18, message_age_ms=lambda: next(age))
    return [*Fleet(seed=17).offer(step(2_000), 15_000, "room"), *old.offer(_later(3_000), 15_000, "room")]


def _later(wcu):
    return lambda at: wcu if at >= ONSET_MS + 9_000 else 0


def offer_neighbours():
    """550 WCU/s on a partition that others fill: a tenth is refused."""
    draw = Random(3)
    return Fleet(seed=4, sampling_distance_wcu=5.0, is_throttled=lambda _: draw.random() < 0.1).offer(
        step(550), 12_000, "room"
    )


WRITES = {
    "step": lambda: Fleet(seed=11).offer(step(4_000), 8_000, "room"),
    "late-backfill": offer_backfill,
    "refused-at-its-base-key": offer_neighbours,
}
READS = {"read-rush": lambda at: 6_000 if at >= ONSET_MS else 200, "read-around": lambda at: 1_450 + 100 * (at > 6_000)}


def build_world():
    """A world whose log lines say when they were written."""
    world = World()
    world.clock.now_ms = START_MS
    event = world.telemetry.event
    world.telemetry.event = lambda message, **facts: event(message, at_ms=world.clock.now_ms - START_MS, **facts)
    return world


def play_writes(name):
    world = build_world()
    arrivals = sorted(WRITES[name](), key=lambda arrival: arrival.at_ms)

    def arrive():
        while arrivals and arrivals[0].at_ms <= world.clock.now_ms:
            world.reports.send(arrivals.pop(0).report)

    world.clock.on_sleep = arrive
    seconds = max(arrival.at_ms for arrival in arrivals) - START_MS
    world.consumer().run(run_ms=seconds)
    return world


def play_reads(name):
    """Twenty environments read pages; each reports what it counted of a slot once."""
    world, random = build_world(), Random(5)

    def arrive():
        at = world.clock.now_ms - START_MS
        if at % SLOT_MS >= 100:
            return
        for source in range(20):
            rcu = READS[name](at) * SLOT_MS / 1_000 / 20 * random.uniform(0.9, 1.1)
            world.reports.send(Report("room", world.clock.now_ms // SLOT_MS - 1, f"e{source}", rcu, pages=1.0))

    world.clock.on_sleep = arrive
    world.consumer().run(run_ms=10_000)
    return world


def render(world, message):
    """Write decisions as lines."""
    lines = []
    for said, facts in world.telemetry.events:
        if said == message:
            parts = facts.pop("per_slot_wcu", None) or facts.pop("per_slot_rcu")
            lines += [" ".join(f"{name}={value}" for name, value in facts.items() if name != "collection")]
            lines += ["    " + " ".join(f"{part:g}" for part in parts)]
    known = sorted(world.table.routes.items())
    routes = [f"route of {name}: {' '.join(sorted(entry.route.encode()))}" for name, entry in known]
    marks = [f"read-hot: {name}" for name in sorted(world.registry.read_hot)]
    return "\n".join([*lines, *routes, *marks, ""])


@pytest.mark.parametrize("name", [*WRITES, *READS])
def test_the_decisions_are_the_pinned_ones(name):
    """Same reports, same text."""
    is_write = name in WRITES
    world = play_writes(name) if is_write else play_reads(name)
    assert_golden(FOLDER / f"{name}.txt", render(world, "decision" if is_write else "read decision"))


def test_every_text_has_its_reports():
    assert_all_tested(FOLDER, [f"{name}.txt" for name in (*WRITES, *READS)])


def test_a_raise_that_another_consumer_made_meanwhile_adds_nothing():
    """One that stood still between reading the journal and adding to it, while its successor raised."""
    alone, paused = play_writes("step"), World()
    paused.clock.now_ms = START_MS + 4_100
    for arrival in Fleet(seed=11).offer(step(4_000), 4_000, "room"):
        paused.reports.send(arrival.report)
    successors = [paused.consumer()]

    def stand_still(name):
        if name == "update room" and successors:
            successors.pop().run(run_ms=300)

    paused.table.on_call = stand_still
    paused.consumer().run(run_ms=1_000)
    (generation,) = paused.table.routes["room"].route.generations
    (expected,) = alone.table.routes["room"].route.generations
    assert abs(generation.shard_count - expected.shard_count) <= 1
