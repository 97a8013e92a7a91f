"""What judges the stack before AWS does, and that the same input gives the same output."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from hotpartition.runtime.ends import system_clock


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_another_run_is_equal_and_nothing_is_found(fresh_runs, templates, environment):
    """A process with another hash seed writes the same bytes, and neither cdk-nag nor the CDK says a word."""
    done, outdir = fresh_runs[environment]
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (outdir / f"hotpartition-{environment}.template.json").read_text() == templates[environment].text
    report = json.loads((outdir / "validation-report.json").read_text())
    assert [(p["pluginName"], p["conclusion"]) for p in report["pluginReports"]] == [("AwsSolutions", "success")]


def test_what_judges_prod_judges_dev(templates):
    """Prod has every property that dev has, so the CDK's own rules need to see prod alone."""

    def properties(environment):
        resources = templates[environment].body["Resources"].values()
        return {(resource["Type"], name) for resource in resources for name in ("", *resource.get("Properties", {}))}

    assert properties("dev") <= properties("prod")


@pytest.mark.slow
def test_a_finding_fails_the_synthesis(clone, run_app, tmp_path):
    """Encryption that is taken away is found: the run fails with a sentence, after the rule and the resource."""
    copy = shutil.copytree(clone, tmp_path / "copy")
    registry = copy / "hotpartition_cdk" / "registry.py"
    source = registry.read_text()
    assert "at_rest_encryption_enabled=True" in source
    registry.write_text(source.replace("at_rest_encryption_enabled=True", "at_rest_encryption_enabled=False"))
    done = run_app(copy, tmp_path / "out", "bundling=off", "environment=prod", CDK_VALIDATION="false")  # cdk-nag alone
    assert done.returncode == 1
    assert "AwsSolutions-AEC3" in done.stderr + done.stdout
    # The last line but for what the CDK's own process may say when it ends.
    lines = done.stderr.splitlines()
    assert sum(line.startswith("the findings above are to be repaired, or acknowledged") for line in lines) == 1
    assert "Traceback" not in done.stderr


def test_acknowledgements_say_why(root):
    """Every acknowledgement in the code carries a reason of some length, and names single rules."""
    sources = [
        path
        for path in (*(root / "hotpartition_cdk").glob("*.py"), *(root / "infra").glob("*.py"))
        if path.name != "acknowledgements.py"
    ]
    text = "\n".join(path.read_text() for path in sources)
    rules = re.findall(r'acknowledge\(\s*[\w.]+,\s*"([^"]+)"', text)
    assert sorted(rules) == ["AEC4", "AEC6", "L1", "SQS3"]
    assert text.count("reason=") >= len(rules)


@pytest.mark.slow
def test_a_mistyped_context_key_fails_synthesis(root, tmp_path, run_app):
    """`cdk deploy -c setings=…` would be passed on and read by nobody. The sentence comes without a traceback."""
    done = run_app(root, tmp_path, CDK_CONTEXT_JSON=json.dumps({"setings": "{}"}))
    assert "Traceback" not in done.stderr
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "context key 'setings' is unknown; allowed are environment, config, options, settings and bundling",
    )


def test_the_file_comes_before_the_context(synthesize, tmp_path):
    """Context on the command line has the last word over the file, and the file over the code."""
    file = tmp_path / "mine.toml"
    file.write_text(
        "[local.options]\nconsumer_concurrency = 6\nlog_retention_days = 3\n"
        "[local.settings]\nmax_shard_count = 16\nsettle_seconds = 2\n"
    )
    template = synthesize(
        "local", config=str(file), options={"consumer_concurrency": 7}, settings={"max_shard_count": 32}
    )
    assert template.function("consume_reports")["ReservedConcurrentExecutions"] == 7
    days = {g["Properties"]["RetentionInDays"] for g in template.of_type("AWS::Logs::LogGroup").values()}
    assert days == {3}
    assert template.variables("consume_reports")["HOTPARTITION_MAX_SHARD_COUNT"] == "32"
    assert template.variables("read_messages")["HOTPARTITION_SETTLE_SECONDS"] == "2"


def test_environments_from_one_snapshot_do_not_draw_the_same_numbers():
    """The generator is made on the first request: whatever state a snapshot holds, samplers start apart."""
    import random  # noqa: PLC0415 - the module whose state a snapshot would share

    draws = []
    for _ in range(2):
        random.seed(7)
        draws.append(system_clock().random())
    assert draws[0] != draws[1]
