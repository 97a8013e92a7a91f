"""What judges the stack before AWS does, and a run of the app as a process of its own."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture(scope="module")
def fresh(clone, run_app, tmp_path_factory):
    """A run for `dev`, the default, in the clone: a process that hashes texts in another way. cdk-nag judges it."""
    folder = tmp_path_factory.mktemp("fresh")
    done = run_app(clone, folder, "bundling=off", PYTHONHASHSEED="12345", CDK_VALIDATION="false")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.slow
def test_another_run_writes_the_same_bytes(clone, fresh, dev):
    """The same sources give the same template. It needs no credentials, account, region or look-up, and no uv."""
    assert (fresh / "hotpartition-dev.template.json").read_text() == dev.text
    manifest = json.loads((fresh / "manifest.json").read_text())
    assert manifest["artifacts"]["hotpartition-dev"]["environment"] == "aws://unknown-account/unknown-region"
    assert manifest.get("missing", []) == []
    assert not (clone / "build").exists()


@pytest.mark.slow
def test_nothing_is_found_in_dev(fresh):
    """By cdk-nag; the CDK's own rules judge `prod` and `lite`."""
    report = json.loads((fresh / "validation-report.json").read_text())
    assert {each["pluginName"]: each["conclusion"] for each in report["pluginReports"]} == {"AwsSolutions": "success"}


@pytest.mark.slow
def test_a_finding_fails_the_synthesis(clone, run_app, tmp_path):
    """Encryption that is taken away is found: the run fails with a sentence, after the rule and the resource."""
    copy = shutil.copytree(clone, tmp_path / "copy")
    registry = copy / "hotpartition_cdk" / "registry.py"
    source = registry.read_text()
    assert "at_rest_encryption_enabled=True" in source
    registry.write_text(source.replace("at_rest_encryption_enabled=True", "at_rest_encryption_enabled=False"))
    contexts = ("bundling=off", "environment=prod", 'options={"alarms": {"is_silent": true}}')
    done = run_app(copy, tmp_path / "out", *contexts, CDK_VALIDATION="false")  # cdk-nag alone
    assert done.returncode == 1
    assert "AwsSolutions-AEC3" in done.stderr + done.stdout
    # The last line but for what the CDK's own process may say when it ends.
    lines = done.stderr.splitlines()
    assert sum(line.startswith("the findings above are to be repaired, or acknowledged") for line in lines) == 1
    assert "Traceback" not in done.stderr
