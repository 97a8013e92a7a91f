"""The templates as text that a reviewer reads as a diff: rights, encryption, identities, alarms, whatever they say.

What no text shows is below: what else of this project a template has to agree with.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hotpartition.runtime.settings import Settings
from hotpartition_messages.settings import MessageSettings
from infrastructure.apps import findings
from infrastructure.short_form import write_difference, write_short_form
from infrastructure.template import FUNCTIONS
from support.golden import assert_all_tested, assert_golden
from support.tables import TABLE_SCHEMA

PINNED = Path(__file__).parent / "templates"
WHOLE = ("prod", "five", "in_band")
DIFFERING = ("changed", "lite")


@pytest.mark.parametrize("name", WHOLE)
def test_the_short_form(request, name):
    """Of `prod`, the document's app in five lines, and functions that find hot keys in band."""
    assert_golden(PINNED / f"{name}.txt", write_short_form(request.getfixturevalue(name)))


@pytest.mark.parametrize("name", DIFFERING)
def test_what_differs_from_prod(request, prod, name):
    """The lines of `prod` with other options, and of `lite`."""
    assert_golden(PINNED / f"{name}.txt", write_difference(prod, request.getfixturevalue(name)))


def test_every_text_has_its_template():
    """And there is one for each."""
    assert_all_tested(PINNED, [f"{name}.txt" for name in (*WHOLE, *DIFFERING)])


@pytest.mark.parametrize("name", [*WHOLE, "lite"])
def test_nothing_is_found(request, name):
    """By cdk-nag, errors and warnings alike; what is meant is acknowledged beside its resource."""
    assert findings(request.getfixturevalue(name)) == []


def test_the_table_is_that_of_the_adapters_tests(any_template):
    """On demand, with their keys and index."""
    table = any_template.only("AWS::DynamoDB::Table")
    for index in (indexes := [dict(index) for index in table["GlobalSecondaryIndexes"]]):
        # What is watched has no part in how a table behaves.
        index.pop("ContributorInsightsSpecification", None)
    assert {name: table[name] for name in TABLE_SCHEMA} | {"GlobalSecondaryIndexes": indexes} == TABLE_SCHEMA


@pytest.mark.parametrize("folder", FUNCTIONS)
def test_a_functions_environment_parses(any_template, folder):
    """What is synthesized is what the function's own settings read, without surplus variables."""
    if folder not in any_template.missing:
        known_as = f"in-band {FUNCTIONS[folder]}" if any_template.missing else FUNCTIONS[folder]
        assert any_template.settings(folder, known_as, MessageSettings).table_name == "Table"


@pytest.mark.parametrize(
    ("app", "name", "known_as"),
    [
        ("five", "ingest", "adaptive()"),
        ("five", "consume_reports", "consumer"),
        ("five", "operate", "operate"),
        *(("in_band", name, "in_band()") for name in ("ingest", "show", "collect", "look")),
    ],
)
def test_so_does_that_of_another_teams_function(request, app, name, known_as):
    """And that of the functions which are made for its table."""
    settings = request.getfixturevalue(app).settings(name, known_as, Settings)
    assert settings.table_name == ("events" if name in {"collect", "look"} else "readings")


def test_without_bundling_nothing_can_be_deployed(dev):
    """The assembly carries an error, at which the CDK's command line stops before it asks AWS for anything."""
    artifact = json.loads((dev.folder / "manifest.json").read_text())["artifacts"]["hotpartition-dev"]
    metadata = json.loads((dev.folder / artifact["additionalMetadataFile"]).read_text())
    errors = [entry["data"] for entries in metadata.values() for entry in entries if entry["type"] == "aws:cdk:error"]
    assert ["bundling=off" in error for error in errors] == [True]
    assert len([path for path in dev.folder.glob("asset.*") if (path / "requirements.txt").is_file()]) == 1


def test_the_page_of_costs_names_every_type_of_resource(dev, prod, lite, root):
    """With what of it costs, or as free."""
    section = (root / "docs/costs.md").read_text().split("## Every resource of the template")[1]
    made = {resource["Type"] for template in (dev, prod, lite) for resource in template.body["Resources"].values()}
    assert sorted(re.findall(r"`(AWS::\w+::\w+)`", section)) == sorted(made)
