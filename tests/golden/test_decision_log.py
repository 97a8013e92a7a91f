"""The decision log: replayable from a recorded stream, and enough to recompute every raise."""

from __future__ import annotations

from math import ceil

import pytest

from golden.stage import Stage, WritingFleet
from golden.traces import ONSET_MS, TRACES, run_trace, step
from hotpartition.core.detector import SLOTS_PER_SECOND, SUSTAINED_SECONDS
from hotpartition.core.route import Generation
from support.builders import THRESHOLDS
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS


@pytest.mark.parametrize("name", ["two-hot-conversations", "duplicated-and-reordered", "unlucky-partition"])
def test_a_recorded_stream_replays_to_the_same_log(name):
    """A fresh consumer over the entries, as they arrived: every decision again, at the same time."""
    run, stage = run_trace(name), Stage()
    for at_ms, text in run.stage.recording:
        stage.expect(at_ms, text)
    (consumer,) = stage.play(run.trace.seconds * 1000)
    assert consumer.telemetry.timed("decision") == run.decisions
    assert consumer.summary == run.consumers[0].summary
    assert stage.routes() == run.routes


def recompute(facts) -> tuple[float, int | None]:
    """Work a decision out from its logged fields alone: the rate it judged, and the N it raised to."""
    parts, keys = facts["per_slot_wcu"], max(facts["load_class"], 1)
    if facts["trigger_slot"] is None:
        rate = sum(parts[:SLOTS_PER_SECOND])
        return rate, 2 * keys if facts["reason"] == "unlucky-partition" else None
    *window, sizing = parts
    seconds = 1 if len(window) == SLOTS_PER_SECOND else SUSTAINED_SECONDS
    rate = sum(window) / seconds
    if facts["reason"] != "raised":
        return rate, None
    rate = max(rate, sizing * SLOTS_PER_SECOND)
    served = rate + facts["later_wcu_per_second"]
    count = min(ceil(served / THRESHOLDS.target_shard_wcu), THRESHOLDS.max_shard_count)
    return rate, max(count, facts["load_class"] + 1, 2)


@pytest.mark.parametrize("name", TRACES)
def test_every_decision_can_be_recomputed_from_its_line(name):
    """Why was this raised, and why to this N: the line's own numbers say so."""
    for _, facts in run_trace(name).decisions:
        rate, shard_count = recompute(facts)
        assert facts["rate_wcu_per_second"] == pytest.approx(rate)
        generation = Generation.decode(facts["generation"]) if facts["generation"] else None
        assert (generation.shard_count if generation else None) == shard_count


def test_a_raise_that_takes_long_does_not_blur_the_next():
    """While one raise is refused for a second, the other's sizing slot passes unread: its N is still the whole one."""
    stage = Stage()
    refused_until_ms = START_MS + ONSET_MS + 2_000

    def refuse(call: str) -> None:
        if call == "update room" and stage.now_ms < refused_until_ms:
            raise KEY_RANGE_THROTTLE

    stage.table.on_call = refuse
    loads = {"room": step(100, 4_000), "hall": step(100, 5_000, at_ms=ONSET_MS + 470)}
    stage.fleet = WritingFleet(loads=loads, seed=31, registry=stage.registry)
    (consumer,) = stage.play(8_000)
    raised = [facts["collection"] for _, facts in consumer.telemetry.timed("decision") if facts["reason"] == "raised"]
    assert raised == ["room", "hall"]
    assert 9 <= stage.routes()["hall"].max_shard_count <= 12
