"""The latency distribution."""

from __future__ import annotations

import random

import pytest

from tools.limits import READ_PROFILE, REFUSAL_PROFILE, WRITE_PROFILE, Latency, LatencyProfile


@pytest.mark.parametrize("profile", [WRITE_PROFILE, READ_PROFILE, REFUSAL_PROFILE])
def test_the_percentiles_are_those_of_the_profile(profile):
    """At each given percentile exactly; in seconds."""
    latency = Latency(profile, random.Random(1))
    for percentile, milliseconds in profile.percentiles_ms.items():
        assert latency.at(percentile / 100) == pytest.approx(milliseconds / 1000)


def test_between_two_percentiles_the_logarithm_is_interpolated():
    """Half way between 1 ms and 100 ms lie 10 ms."""
    assert Latency(LatencyProfile({0: 1, 100: 100}), random.Random(1)).at(0.5) == pytest.approx(0.010)


def test_draws_follow_the_profile():
    """Half of them within the median, one in a hundred beyond the 99th percentile, a few milliseconds in the middle."""
    latency = Latency(WRITE_PROFILE, random.Random(1))
    draws = sorted(latency.draw() for _ in range(50_000))
    for percentile, tolerance in ((50, 0.02), (99, 0.1)):
        rank = draws[round(len(draws) * percentile / 100)]
        assert rank == pytest.approx(WRITE_PROFILE.percentiles_ms[percentile] / 1000, rel=tolerance)
    assert 0.002 <= draws[0] <= draws[-1] <= 0.2


@pytest.mark.parametrize(
    "percentiles", [{}, {0: 1.0}, {50: 1.0, 100: 2.0}, {0: 0.0, 100: 1.0}, {0: 1.0, 50: 3.0, 100: 2.0}]
)
def test_a_wrong_profile_is_refused(percentiles):
    """Both ends are needed, and latencies rise."""
    with pytest.raises(ValueError, match="latenc"):
        LatencyProfile(percentiles)
