"""What judges the stack before AWS does, and a run of the app as a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from infra.bundle import ROOT

NOWHERE = "http://127.0.0.1:9"
BARE = {
    "PATH": os.environ["PATH"],
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    "HTTPS_PROXY": NOWHERE,
    "HTTP_PROXY": NOWHERE,
    "CDK_VALIDATION": "false",
}
"""An environment without credentials and network: nothing but the way to Node.js. cdk-nag alone judges."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The sources that synthesis needs, as a fresh clone has them: nothing was ever built there."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("app.py", "cdk.json"):
        shutil.copy(ROOT / name, folder)
    for name in ("hotpartition_cdk", "infra", "lambdas", "layers"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run_app(folder, *contexts, **more):
    """Run the app in a folder, without bundling."""
    arguments = [argument for context in ("bundling=off", *contexts) for argument in ("-c", context)]
    command = [sys.executable, "app.py", *arguments, "-o", "out"]
    return subprocess.run(command, cwd=folder, env={**BARE, **more}, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_another_run_writes_the_same_bytes(clone, templates):
    """For `dev`, the default, by a process that hashes texts in another way; cdk-nag finds nothing.

    The same sources give the same template. It needs no credentials, account, region or look-up, and no uv.
    """
    done, made = run_app(clone, PYTHONHASHSEED="12345"), clone / "out"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    of_dev = "hotpartition-dev.template.json"
    assert (made / of_dev).read_text() == (templates["dev"].folder / of_dev).read_text()
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["artifacts"]["hotpartition-dev"]["environment"] == "aws://unknown-account/unknown-region"
    assert manifest.get("missing", []) == []
    assert not (clone / "build").exists()
    report = json.loads((made / "validation-report.json").read_text())
    assert {each["pluginName"]: each["conclusion"] for each in report["pluginReports"]} == {"AwsSolutions": "success"}


@pytest.mark.slow
def test_a_finding_fails_the_synthesis(clone):
    """Encryption that is taken away is found: the run fails with a sentence, after the rule and the resource."""
    registry = clone / "hotpartition_cdk" / "registry.py"
    source = registry.read_text()
    assert "at_rest_encryption_enabled=True" in source
    registry.write_text(source.replace("at_rest_encryption_enabled=True", "at_rest_encryption_enabled=False"))
    done = run_app(clone, "environment=prod", 'options={"alarms": {"is_silent": true}}')
    registry.write_text(source)
    assert done.returncode == 1
    assert "AwsSolutions-AEC3" in done.stderr + done.stdout
    # The last line but for what the CDK's own process may say when it ends.
    lines = done.stderr.splitlines()
    assert sum(line.startswith("the findings above are to be repaired, or acknowledged") for line in lines) == 1
    assert "Traceback" not in done.stderr
