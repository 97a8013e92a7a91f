"""The demonstration itself, shortened, with Redis killed in the middle of it."""

import sys

import pytest

from stack import show

FIELDS = {
    *("not_judged", "machine_kept_up", "machine", "hot_offered", "one_key_takes"),
    *("acknowledged", "missing", "duplicated", "out_of_order", "rejected", "conversations", "hot_conversation"),
    *("hot_threshold_wcu", "partition_limit_wcu", "sampling_distance_wcu", "onset_to_raise_seconds", "raises", "max_n"),
    *("throttled_before_raise", "throttled_after_raise", "environments", "reads", "duration_seconds", "verdict"),
    *("rush_pages", "rush_refused", "rush_from_l1", "rush_from_redis", "rush_from_dynamodb"),
    *("seconds_until_closed", "keys_after_close"),
    *("rush_age_p50_ms", "rush_age_p99_ms", "rush_oldest_ms"),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_redis_killed_during_the_demonstration_loses_nothing(tmp_path):
    """Verdict `pass`, exit status 0, and a summary and a report that say so."""
    command = [
        *(sys.executable, "-m", "tools.play", "demo", "--duration", "20", "--out", str(tmp_path)),
        *("--kill-redis-at", "8", "--restart-redis-at", "13"),
    ]
    cached = ("not_judged", "rush_from_l1", "rush_from_redis")
    _, summary = show(command, tmp_path, lambda summary: any(summary[name] for name in cached))
    assert summary.keys() == FIELDS
    assert summary["verdict"] == "pass"
    assert (summary["missing"], summary["duplicated"], summary["out_of_order"]) == (0, 0, 0)
    assert summary["sampling_distance_wcu"] > 1
    assert summary["rush_pages"] > 0
    assert summary["not_judged"] or summary["keys_after_close"] == 1
    assert "<svg" in (tmp_path / "report.html").read_text()
