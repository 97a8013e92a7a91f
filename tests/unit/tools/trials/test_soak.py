"""What the soak offers, and what it passes and fails on."""

from __future__ import annotations

from collections import Counter

import pytest

from tools.demo.judge import Condition
from tools.trials.faults import KINDS, FaultInjector
from tools.trials.soak import (
    GATEWAY_FAILURE,
    MAX_SHARD_COUNT,
    SoakRecorder,
    build_plan,
    build_workload,
    count_spread,
    judge_soak,
    parse_arguments,
)

KEPT = Condition("no message missing", holds=True, figures="0")
BROKEN = Condition("no message missing", holds=False, figures="1")


def tried(**counts):
    """An injector that injected everything once, but for what is given."""
    injector = FaultInjector()
    for kind in KINDS:
        injector.injected[kind.name] = counts.get(kind.name.replace("-", "_"), 1)
        injector.met[kind.name] = counts.get("met_" + kind.name.replace("-", "_"), 5)
    return injector


def verdict(*, promise=KEPT, acknowledged=50_000, spread=15, injector=None, killed_in_request=2, killed=2):
    return judge_soak(
        promise=[promise],
        acknowledged=acknowledged,
        needed=50_000,
        spread=spread,
        rushes=30,
        injector=injector or tried(),
        killed_in_request=killed_in_request,
        killed=killed,
    )


def test_a_soak_passes_at_its_bars():
    """The promise kept, 50,000 acknowledged, every fault tried, no failure but of killed environments."""
    assert verdict().verdict == "pass"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"promise": BROKEN}, "no message missing: 1"),
        ({"acknowledged": 49_999}, "messages acknowledged: 49999, at least 50000 needed"),
        ({"spread": 14}, "conversations spread: 14, at least 15 needed"),
        ({"injector": tried(redis_paused=0)}, "every kind of fault injected: not redis-paused"),
        ({"injector": tried(met_dynamodb_slow=0)}, "every fault of DynamoDB met by requests: not dynamodb-slow"),
        (
            {"killed_in_request": 3},
            "only killed environments failed: 3 requests answered 500 by the gateway, 2 environments killed",
        ),
    ],
)
def test_each_bar_fails_a_soak(change, reason):
    """And the reason says which."""
    judgement = verdict(**change)
    assert (judgement.verdict, judgement.reasons) == ("fail", (reason,))


def test_the_load_is_even_and_every_rush_has_a_conversation_of_its_own():
    """As many a second at the end as at the beginning, so that faults meet load whenever they come."""
    workload = build_workload(seed=1, seconds=60.0, writes_per_second=90.0)
    seconds = Counter(int(offer.at_seconds) for offer in workload.offers)
    assert sum(seconds.values()) == pytest.approx(5_400, abs=3)
    assert 50 < min(seconds.values()) <= max(seconds.values()) < 140
    rushes = [name for name in workload.conversations if name.startswith("rush-")]
    assert rushes == ["rush-001", "rush-002", "rush-003"]
    assert all(o.at_seconds < 20.0 for o in workload.offers if o.conversation_id == "rush-001")
    assert workload == build_workload(seed=1, seconds=60.0, writes_per_second=90.0)


def test_ten_minutes_are_held_to_fifty_thousand_messages():
    """And a shorter soak to its share; one at a lower rate to most of what it offers."""
    full, short, slow = (
        build_plan(parse_arguments(["--seed", "5", *arguments]), cores=2)
        for arguments in ([], ["--seconds", "60"], ["--rate", "10"])
    )
    assert [plan.variant.needed for plan in (full, short, slow)] == [50_000, 5_000, 5_280]
    assert len(full.workload.offers) >= 56_000
    assert full.scale.settings()["max_shard_count"] == MAX_SHARD_COUNT
    assert full.scale.hot_writes_per_second == pytest.approx(3 * full.scale.partition_write_limit_wcu, rel=0.01)
    assert full.reads_from_both_ends


def test_spread_conversations_are_counted_by_their_shards():
    """Base keys are no shards, and two shards are one conversation."""
    assert count_spread(["rush-001", "rush-002#0", "rush-002#11", "rush-002", "room-001"]) == 1


def test_a_seed_is_chosen_when_none_is_given():
    """Each run tries something new, and can be repeated."""
    seeds = {parse_arguments([]).seed for _ in range(5)}
    assert len(seeds) > 1
    assert parse_arguments(["--seed", "5"]).seed == 5


def test_only_the_gateways_own_failures_are_excused():
    """An error document of ours is a note, a killed environment a count."""
    recorder = SoakRecorder()
    recorder.note(f"write to c {GATEWAY_FAILURE}")
    recorder.note("read of c answered 500: {'type': 'urn:hotpartition:unreadable-route'}")
    assert recorder.killed_in_request == 1
    assert len(recorder.notes) == recorder.counts.unexpected == 1
