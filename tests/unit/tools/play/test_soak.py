"""What the soak offers, and what it passes and fails on."""

from __future__ import annotations

import pytest

from tools.play.faults import KINDS, FaultInjector
from tools.play.soak import (
    GATEWAY_FAILURE,
    SoakRecorder,
    count_spread,
    judge_soak,
)
from tools.play.verdict import Condition

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
        kept_up=True,
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


def test_spread_conversations_are_counted_by_their_shards():
    """Base keys are no shards, and two shards are one conversation."""
    assert count_spread(["rush-001", "rush-002#0", "rush-002#11", "rush-002", "room-001"]) == 1


def test_only_the_gateways_own_failures_are_excused():
    """An error document of ours is a note, a killed environment a count."""
    recorder = SoakRecorder()
    recorder.note(f"write to c {GATEWAY_FAILURE}")
    recorder.note("read of c answered 500: {'type': 'urn:hotpartition:unreadable-route'}")
    assert recorder.killed_in_request == 1
    assert len(recorder.notes) == recorder.counts.unexpected == 1
