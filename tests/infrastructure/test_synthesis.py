from __future__ import annotations

import json

import pytest

from hotpartition_cdk.bundle import LOCK, DependencyBundle
from hotpartition_messages.settings import MessageSettings
from infra.environments import DEV
from infrastructure.template import FUNCTIONS


def test_overrides_reach_the_functions_that_know_them(staging):
    """An override becomes the variable of each function that has the setting, and of no other."""
    variables = {folder: staging.variables(folder) for folder in FUNCTIONS}
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
    assert MessageSettings.from_env(variables["write_message"], "write").sampling_distance_wcu == 2.0


def test_the_file_comes_before_the_context(staging):
    """Context on the command line has the last word over the file, and the file over the code."""
    assert staging.function("consume_reports")["ReservedConcurrentExecutions"] == 2 * 4
    days = {group["RetentionInDays"] for group in staging.all("AWS::Logs::LogGroup")}
    assert days == {30}
    assert staging.variables("consume_reports")["HOTPARTITION_MAX_SHARD_COUNT"] == "32"


def test_without_bundling_nothing_can_be_deployed(dev, tmp_path):
    """The assembly carries an error, at which the CDK's command line stops before it asks AWS for anything."""
    artifact = json.loads((dev.folder / "manifest.json").read_text())["artifacts"]["hotpartition-dev"]
    metadata = json.loads((dev.folder / artifact["additionalMetadataFile"]).read_text())
    errors = [entry["data"] for entries in metadata.values() for entry in entries if entry["type"] == "aws:cdk:error"]
    assert len(errors) == 1
    assert "bundling=off" in errors[0]
    layer_assets = [path.name for path in dev.folder.glob("asset.*") if (path / "requirements.txt").is_file()]
    assert len(layer_assets) == 1
    assert DependencyBundle(lock=LOCK, target=DEV.target, cache=tmp_path).key not in layer_assets[0]


@pytest.mark.parametrize(
    ("context", "named"),
    [
        ('settings={"run_seconds": "soon"}', "setting run_seconds"),
        ("settings={", "settings should be a JSON object, not '{' (Expecting"),
        ("options=[1]", "options should be a JSON object of names to values, not [1]"),
        ("color=red", "context key 'color' is unknown"),
        ("bundling=false", "bundling should be on or off"),
        ("bundling=", "bundling should be on or off"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, context, named):
    """That names what is wrong."""
    from infra.app import main  # noqa: PLC0415 - starts Node.js

    sentence = main(["-c", context, "-o", str(tmp_path)])
    assert named in sentence
    assert "\n" not in sentence
