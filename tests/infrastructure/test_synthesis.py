from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from infra.errors import ConfigurationError
from infrastructure.templates import FUNCTIONS


def run_app(root, *arguments, **environ):
    """Runs app.py with an environment that holds nothing but the way to Node.js, and proxies that lead nowhere."""
    nowhere = "http://127.0.0.1:9"
    return subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=root,
        env={"PATH": os.environ["PATH"], "HTTPS_PROXY": nowhere, "HTTP_PROXY": nowhere, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_is_repeatable(synthesize, dev):
    """The same sources give the same template."""
    assert dev == synthesize("dev")


def test_overrides_reach_the_functions_that_know_them(synthesize):
    """An override becomes the variable of each function that has the setting, and of no other."""
    template = synthesize("local", settings={"sampling_distance_wcu": 2, "stream_partitions": 8})
    variables = {folder: template.variables(folder) for folder in FUNCTIONS}
    values = {
        name: {folder: found.get(f"HOTPARTITION_{name}") for folder, found in variables.items()}
        for name in ("SAMPLING_DISTANCE_WCU", "STREAM_PARTITIONS")
    }
    assert values == {
        "SAMPLING_DISTANCE_WCU": {"write_message": "2", "read_messages": None, "consume_reports": None},
        "STREAM_PARTITIONS": {"write_message": "8", "read_messages": None, "consume_reports": "8"},
    }
    assert FUNCTIONS["write_message"].from_env(variables["write_message"]).sampling_distance_wcu == 2.0


def test_overrides_may_be_json(synthesize):
    """The context on the command line is a text."""
    template = synthesize("local", settings='{"max_shard_count": 16}')
    assert template.variables("consume_reports")["HOTPARTITION_MAX_SHARD_COUNT"] == "16"


def test_wrong_override_fails_synthesis(synthesize):
    """A setting out of range stops the synthesis."""
    with pytest.raises(ConfigurationError, match=r"^setting max_shard_count should be between 2 and 1024, not '1'$"):
        synthesize("dev", settings={"max_shard_count": 1})


def test_unknown_environment_fails_synthesis(synthesize):
    """An environment that does not exist is named, with those that do."""
    with pytest.raises(
        ConfigurationError, match=r"^environment 'staging' is unknown; allowed are dev, prod and local$"
    ):
        synthesize("staging")


@pytest.mark.slow
def test_needs_no_credentials(root, tmp_path):
    """app.py synthesizes with nothing in the environment, and takes dev by itself."""
    done = run_app(root, "-o", str(tmp_path), CDK_CONTEXT_JSON=json.dumps({"aws:cdk:bundling-stacks": []}))
    assert (done.returncode, done.stdout) == (0, "")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["artifacts"]["hotpartition-dev"]["environment"] == "aws://unknown-account/unknown-region"
    assert manifest.get("missing", []) == []


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ("environment=staging", "environment 'staging' is unknown; allowed are dev, prod and local"),
        ('settings={"run_seconds": "soon"}', "setting run_seconds should be a number, not 'soon'"),
        ("color=red", "context key 'color' is unknown; allowed are environment and settings"),
    ],
)
def test_mistakes_are_one_sentence(root, tmp_path, context, sentence):
    """Whoever mistypes a context reads one sentence and no traceback."""
    done = run_app(root, "-c", context, "-o", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == sentence
    assert "Traceback" not in done.stderr


def test_templates_pass_cfn_lint(templates, tmp_path):
    """cfn-lint has nothing to say about any environment.

    W3005 is left out: the CDK lets each function depend on its role twice, which is harmless.
    """
    files = []
    for name, template in templates.items():
        file = tmp_path / f"{name}.template.json"
        file.write_text(json.dumps(template.body))
        files.append(str(file))
    cfn_lint = str(Path(sysconfig.get_path("scripts")) / "cfn-lint")
    command = [cfn_lint, "--ignore-checks", "W3005", "--template", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
