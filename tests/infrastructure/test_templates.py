"""The templates as text that a reviewer reads as a diff: rights, encryption, identities, alarms, whatever they say.

What no text shows is below: what else of this project a template has to agree with.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hotpartition.core.fleet_load import Cell
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.core.times import StoreClock
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.load_items import DynamoDBLoadItems
from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES
from hotpartition.dynamodb.table import LOAD_PREFIX, JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.runtime.settings import Settings
from hotpartition_messages.settings import MessageSettings
from infrastructure.apps import findings
from infrastructure.short_form import write_difference, write_short_form
from infrastructure.template import FUNCTIONS, VARIANTS
from support.golden import assert_all_tested, assert_golden
from support.tables import TABLE_SCHEMA

PINNED = Path(__file__).parent / "templates"
WHOLE = ("prod", "in_band")
DIFFERING = ("changed", "five", "lite", "staging")
KNOWN_AS = {
    "lite": {name: f"in-band {known_as}" for name, known_as in FUNCTIONS.items() if name != "consume_reports"},
    "five": {"ingest": "adaptive()", "consume_reports": "consumer", "operate": "operate"},
    "in_band": {"collect": "in_band()", "look": "in_band()"},
}
"""The functions' names among the settings, where they are not those of `FUNCTIONS`."""
OF_TEAMS = {"five": (Settings, {"readings"}), "in_band": (Settings, {"events"})}
PATHS = {
    r"([0-9A-F]{8}6379)?([0-9A-F]{8}|[0-9a-f]{8})$": "",
    "^(Hot)?(Monitoring)?|SensorsHot|hotpartition(prod|staginganna)": "",
    "^ValkeyReplicationGroup$": "Registry",
}
"""What differs in logical ids by the constructs' paths."""


@pytest.mark.parametrize("name", WHOLE)
def test_the_short_form(templates, name):
    """Of `prod`, and of functions that find hot keys in band."""
    assert_golden(PINNED / f"{name}.txt", write_short_form(templates[name]))


@pytest.mark.parametrize("name", DIFFERING)
def test_what_differs_from_prod(templates, name):
    """With other options (`changed`, `staging`), in the document's app in five lines, and in `lite`."""
    alike = PATHS if name in {"five", "staging"} else {}
    assert_golden(PINNED / f"{name}.txt", write_difference(templates["prod"], templates[name], alike))


def test_every_text_has_its_template():
    """And there is one for each."""
    assert_all_tested(PINNED, [f"{name}.txt" for name in (*WHOLE, *DIFFERING)])


@pytest.mark.parametrize("name", ["prod", "in_band", "five", "lite"])
def test_nothing_is_found(templates, name):
    """By cdk-nag, errors and warnings alike; what is meant is acknowledged beside its resource."""
    assert findings(templates[name]) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_the_table_is_that_of_the_adapters_tests(templates, name):
    """On demand, with their keys and index; what is watched has no part in how a table behaves."""
    table = templates[name].only("AWS::DynamoDB::Table")
    for index in (indexes := [dict(index) for index in table["GlobalSecondaryIndexes"]]):
        index.pop("ContributorInsightsSpecification", None)
    assert {name: table[name] for name in TABLE_SCHEMA} | {"GlobalSecondaryIndexes": indexes} == TABLE_SCHEMA


@pytest.mark.parametrize("name", [*VARIANTS, "five", "in_band"])
def test_a_functions_environment_parses(templates, name):
    """What is synthesized is what the function's own settings read, without surplus variables."""
    kind, tables = OF_TEAMS.get(name, (MessageSettings, {"Table"}))
    functions = KNOWN_AS.get(name, FUNCTIONS)
    read = [templates[name].settings(function, known_as, kind) for function, known_as in functions.items()]
    assert {settings.table_name for settings in read} == tables


def test_without_bundling_nothing_can_be_deployed(templates):
    """The assembly carries an error, at which the CDK's command line stops before it asks AWS for anything."""
    dev = templates["dev"]
    artifact = json.loads((dev.folder / "manifest.json").read_text())["artifacts"]["hotpartition-dev"]
    metadata = json.loads((dev.folder / artifact["additionalMetadataFile"]).read_text())
    errors = [entry["data"] for entries in metadata.values() for entry in entries if entry["type"] == "aws:cdk:error"]
    assert ["bundling=off" in error for error in errors] == [True]
    assert len([path for path in dev.folder.glob("asset.*") if (path / "requirements.txt").is_file()]) == 1


@pytest.mark.parametrize("place", [JournalPlace("table"), JournalPlace("routes", sort_key="")])
def test_what_writers_do_in_band_passes_the_conditions_of_their_roles(place):
    """A raise names a routing item's attributes, its condition included; all else is under the keys of load items."""
    requests = {}

    def call(operation, request):
        assert operation == "UpdateItem"
        requests[request["Key"][place.partition_key]["S"]] = request
        return {"Attributes": {"generations": {"SS": ["4@1"]}}}

    calls = ThreadedCalls(call)
    DynamoDBJournal(calls, place).add("c", [Generation(4, 1)], cause=Cause("raised"), now_ms=9_000, pause_ms=1)
    DynamoDBLoadItems(calls, place, StoreClock(), lambda: 1).add("c", 0, Cell(1, 0, False), 10)
    raised = requests.pop("c")
    expressions = f"{raised['UpdateExpression']} {raised['ConditionExpression']}"
    assert set(re.findall(r"(?<![:\w])[a-z_]+(?=[ )])", expressions)) == set(ROUTING_ATTRIBUTES)
    assert [key.startswith(LOAD_PREFIX) for key in requests] == [True] * (1 + place.has_directory)
