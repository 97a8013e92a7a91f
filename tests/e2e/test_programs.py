"""Whole programs: the demonstration and another team's application.

With Redis and consumer both are played in full where the README's commands are run (`make readme`), so they are `long`.
"""

import shutil
import subprocess
import sys

import pytest

from stack import ROOT, show
from tools.play.example import APP, install

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FIELDS = {
    *("not_judged", "machine_kept_up", "machine", "hot_offered", "one_key_takes"),
    *("acknowledged", "missing", "duplicated", "out_of_order", "rejected", "conversations", "hot_conversation"),
    *("hot_threshold_wcu", "partition_limit_wcu", "sampling_distance_wcu", "onset_to_raise_seconds", "raises", "max_n"),
    *("throttled_before_raise", "throttled_after_raise", "environments", "reads", "duration_seconds", "verdict"),
    *("rush_pages", "rush_refused", "rush_from_l1", "rush_from_redis", "rush_from_dynamodb"),
    *("seconds_until_closed", "keys_after_close"),
    *("rush_age_p50_ms", "rush_age_p99_ms", "rush_oldest_ms"),
}


@pytest.mark.parametrize("environment", [pytest.param("dev", marks=pytest.mark.long), "lite"])
def test_the_demonstration_loses_nothing(environment, tmp_path):
    """With Redis and without any: verdict `pass`, and a summary and a report that say so."""
    options = ["--environment", environment, "--duration", "20", "--out", str(tmp_path)]
    # In lite there is no Redis that could keep a page.
    cached = ("not_judged", "rush_from_l1", "rush_from_redis") if environment == "dev" else ("rush_from_dynamodb",)
    command = [sys.executable, "-m", "tools.play", "demo", *options]
    _, summary = show(command, tmp_path, lambda summary: any(summary[name] for name in cached))
    assert summary.keys() == FIELDS
    assert summary["verdict"] == "pass"
    assert (summary["missing"], summary["duplicated"], summary["out_of_order"]) == (0, 0, 0)
    assert summary["rush_pages"] > 0
    assert summary["not_judged"] or summary["keys_after_close"] == 1
    assert '"conversation_id": "launch-day"' in (tmp_path / "report.html").read_text()
    assert {file.name for file in tmp_path.glob("*.png")} == {"report.png", "report-phone.png"}


PACKAGED = ("hotpartition_cdk", "hotpartition_cli", "lambdas", "layers")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel, once, from a copy: building leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run(command, cwd=folder, check=True)
    (file,) = folder.glob("*.whl")
    return file


def test_another_teams_tests_pass_with_the_wheel(wheel, tmp_path):
    """They try each pattern of its application."""
    environment = install(wheel, tmp_path / "packages")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:pydynox"]
    done = subprocess.run(command, cwd=APP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:]


@pytest.mark.long
def test_another_teams_application_works_from_the_wheel(wheel, tmp_path):
    """Its rush is raised, and every kind of read is complete."""
    options = ["--wheel", str(wheel), "--duration", "12", "--out", str(tmp_path)]
    said, summary = show([sys.executable, "-m", "tools.play", "example", *options], tmp_path)
    assert summary.keys() == FIELDS
    assert (summary["verdict"], summary["missing"], summary["duplicated"]) == ("pass", 0, 0)
    assert "readings of one device complete" in said
    assert "no reading missing" in said
