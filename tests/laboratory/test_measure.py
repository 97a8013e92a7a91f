"""What concerns whom: quiet conversations, the hot one in its rush, and the hot one well after it."""

import pytest

from tools.world.meter import CALM_SECONDS, PhaseName, Phases

PHASES = {"onset": 4.0, "heat_end": 14.0, "end": 25.0}


@pytest.mark.parametrize(
    ("conversation_id", "at", "name"),
    [
        ("quiet", 0.0, PhaseName.QUIET),
        ("quiet", 10.0, PhaseName.QUIET),
        ("hot", 3.9, None),
        ("hot", 4.0, PhaseName.HOT_RUSH),
        ("hot", 13.9, PhaseName.HOT_RUSH),
        ("hot", 14.0, None),
        ("hot", 14.0 + CALM_SECONDS, PhaseName.HOT_AFTER),
        ("hot", 25.0, None),
        ("quiet", 25.0, None),
    ],
)
def test_an_instant_belongs_to_one_phase(conversation_id, at, name):
    """Or to none: before the rush, while it calms down, and when everything is read once more."""
    phases = Phases("hot", **PHASES)
    tally = phases.of(conversation_id, at)
    assert (tally is None) == (name is None)
    if tally is not None:
        tally.writes += 1
    assert {phase.name for phase in phases.summed() if phase.writes} == ({name} if name else set())


def test_shares_and_latencies_count_write_units():
    """Of two writes, the larger one weighs more; what was not measured is None."""
    phases = Phases("hot", **PHASES)
    tally = phases.of("hot", 5.0)
    tally.writes, tally.offered_wcu, tally.failed_wcu, tally.prompt_wcu = 3, 20.0, 2.0, 16.0
    tally.stored = [(10.0, 16.0), (1_500.0, 1.0), (1_600.0, 1.0)]
    (rush,) = [phase for phase in phases.summed() if phase.writes]
    assert (rush.failed_share, rush.stored_within_second_share) == (0.1, 0.8)
    assert (rush.stored_p50_ms, rush.stored_p99_ms) == (10.0, 1_600.0)
    assert (rush.acknowledged_p99_ms, rush.queries_per_page) == (None, None)
