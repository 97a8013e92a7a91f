from __future__ import annotations

import json
import re

import pytest

from hotpartition_cdk.bundle import LOCK, DependencyBundle
from hotpartition_cdk.errors import ConfigurationError
from infra.environments import DEV
from infrastructure.templates import FUNCTIONS

OFF = "off synthesizes without pip and network, and cannot be deployed"


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
        "SAMPLING_DISTANCE_WCU": {
            "write_message": "2",
            "read_messages": None,
            "consume_reports": None,
            "operate": None,
        },
        "STREAM_PARTITIONS": {"write_message": "8", "read_messages": "8", "consume_reports": "8", "operate": "8"},
    }
    assert FUNCTIONS["write_message"].from_env(variables["write_message"]).sampling.sampling_distance_wcu == 2.0


def test_overrides_may_be_json(synthesize):
    """The context on the command line is a text."""
    template = synthesize("local", settings='{"max_shard_count": 16}')
    assert template.variables("consume_reports")["HOTPARTITION_MAX_SHARD_COUNT"] == "16"


def test_wrong_override_fails_synthesis(synthesize):
    """A setting out of range stops the synthesis."""
    with pytest.raises(
        ConfigurationError, match=r"^setting max_shard_count should be a whole number, between 2 and 1024, not '1'$"
    ):
        synthesize("dev", settings={"max_shard_count": 1})


def test_unknown_environment_fails_synthesis(synthesize):
    """An environment that does not exist is named, with those that do."""
    with pytest.raises(ConfigurationError, match=r"^environment 'staging' is unknown; allowed are dev, prod, local$"):
        synthesize("staging")


@pytest.mark.slow
def test_needs_no_credentials(fresh_runs):
    """app.py synthesizes with nothing in the environment, and takes dev by itself."""
    manifest = json.loads((fresh_runs["dev"].outdir / "manifest.json").read_text())
    assert manifest["artifacts"]["hotpartition-dev"]["environment"] == "aws://unknown-account/unknown-region"
    assert manifest.get("missing", []) == []


@pytest.mark.slow
def test_without_bundling_a_fresh_clone_needs_no_network(clone, fresh_runs, tmp_path, run_app):
    """`bundling=off` writes the whole assembly without pip; with it, the layer's packages are missing."""
    assert fresh_runs["dev"].done.returncode == 0
    assert not (clone / "build").exists()
    bundled = run_app(clone, tmp_path)
    assert bundled.returncode == 1
    assert "the dependency layer for Python 3.13 on arm64 could not be built" in bundled.stderr.splitlines()[-1]


def test_without_bundling_nothing_can_be_deployed(tmp_path):
    """The assembly carries an error, at which the CDK's command line stops before it asks AWS for anything."""
    from infra.app import build_app  # noqa: PLC0415 - starts Node.js

    build_app(environment="dev", outdir=str(tmp_path), bundling=False, is_checked=False).synth()
    artifact = json.loads((tmp_path / "manifest.json").read_text())["artifacts"]["hotpartition-dev"]
    metadata = json.loads((tmp_path / artifact["additionalMetadataFile"]).read_text())
    errors = [entry["data"] for entries in metadata.values() for entry in entries if entry["type"] == "aws:cdk:error"]
    assert errors == [
        "was synthesized with bundling=off: its dependency layer holds no packages, so it cannot be deployed"
    ]
    layer_assets = [path.name for path in tmp_path.glob("asset.*") if (path / "requirements.txt").is_file()]
    assert len(layer_assets) == 1
    assert DependencyBundle(lock=LOCK, target=DEV.target, cache=tmp_path).key not in layer_assets[0]


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ("environment=staging", "environment 'staging' is unknown; allowed are dev, prod, local"),
        (
            'settings={"run_seconds": "soon"}',
            "setting run_seconds should be a number, between 1.0 and 890.0, not 'soon'",
        ),
        (
            "color=red",
            "context key 'color' is unknown; allowed are environment, config, options, settings and bundling",
        ),
        ("bundling=false", f"bundling should be on or off, not 'false'; {OFF}"),
        ("bundling=", f"bundling should be on or off, not ''; {OFF}"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, context, sentence):
    """Whoever mistypes a context reads one sentence."""
    from infra.app import main  # noqa: PLC0415 - starts Node.js

    assert main(["-c", context, "-o", str(tmp_path)]) == sentence


def test_make_synth_says_that_nothing_was_found(root):
    """After each tool, which says nothing itself then; a finding ends the recipe before."""
    makefile = (root / "Makefile").read_text()
    recipe = makefile.split("\nsynth:")[1].split("\n\n")[0]
    judged, said = r"app\.py -c environment=\$\$name.*", r'.*echo "\$\$name: {} found nothing"'
    assert re.search(
        judged + said.format("cdk-nag") + r".*cfn-lint out/.*" + said.format("cfn-lint"), recipe, re.DOTALL
    )
    assert ".SHELLFLAGS := -euo pipefail -c" in makefile
