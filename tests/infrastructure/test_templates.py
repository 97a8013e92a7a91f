"""The templates as text that a reviewer reads as a diff, and what holds whatever the diff says."""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path

import pytest

from hotpartition_messages.settings import MessageSettings
from infrastructure.apps import findings
from infrastructure.short_form import write_difference, write_short_form
from infrastructure.template import FUNCTIONS
from support.golden import assert_all_tested, assert_golden
from support.tables import TABLE_SCHEMA

PINNED = Path(__file__).parent / "templates"
WHOLE = ("prod", "lite", "five", "in_band")

KEPT = {
    "Table": "DynamoDB::Table",
    "Registry": "ElastiCache::ReplicationGroup",
    "ApiHttpApi4C294DC0": "ApiGatewayV2::Api",
}
"""What a moved construct would replace: data, and the address that clients have. All other ids are in `prod.txt`."""

STORES = ("AWS::S3", "AWS::RDS", "AWS::EFS", "AWS::Kinesis", "AWS::SecretsManager", "AWS::DynamoDB", "AWS::SSM")
WAYS_OUT = ("InternetGateway", "NatGateway", "EgressOnlyInternetGateway", "VPCGatewayAttachment", "EIP", "Route")


@pytest.mark.parametrize("name", WHOLE)
def test_the_short_form(request, name):
    """Of `prod`, `lite`, the document's app in five lines, and functions that find hot keys in band."""
    assert_golden(PINNED / f"{name}.txt", write_short_form(request.getfixturevalue(name)))


def test_what_options_change(prod, changed):
    """The lines in which `prod` with other options differs."""
    assert_golden(PINNED / "changed.txt", write_difference(prod, changed))


def test_every_text_has_its_template():
    """And there is one for each."""
    assert_all_tested(PINNED, [f"{name}.txt" for name in (*WHOLE, "changed")])


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_found(request, name):
    """By cdk-nag, errors and warnings alike; what is meant is acknowledged beside its resource."""
    assert findings(request.getfixturevalue(name)) == []


def test_has_no_way_out(any_template):
    """Nothing in the VPC reaches the internet or is reached from there, and no function has an address of its own.

    The access log names a route, and no conversation.
    """
    made = {resource["Type"] for resource in any_template.body["Resources"].values()}
    assert not made & {*(f"AWS::EC2::{way}" for way in WAYS_OUT), "AWS::Lambda::Url"}
    assert not any(subnet["MapPublicIpOnLaunch"] for subnet in any_template.all("AWS::EC2::Subnet"))
    assert "$context.path" not in any_template.only("AWS::ApiGatewayV2::Stage")["AccessLogSettings"]["Format"]


def test_what_holds_something_stays_where_it_is(any_template):
    """Whatever the code is cut into. A store that is added needs its identity pinned above."""
    resources = any_template.body["Resources"]
    expected = {id_: f"AWS::{type_}" for id_, type_ in KEPT.items() if id_ != "Registry" or not any_template.missing}
    assert {id_: resources[id_]["Type"] for id_ in expected} == expected
    assert [each["Type"] for each in resources.values() if each["Type"].startswith(STORES)] == ["AWS::DynamoDB::Table"]


def test_the_table_is_that_of_the_adapters_tests(any_template):
    """On demand, with their keys and index; restored to any second."""
    table = any_template.only("AWS::DynamoDB::Table")
    for index in (indexes := [dict(index) for index in table["GlobalSecondaryIndexes"]]):
        # What is watched has no part in how a table behaves.
        index.pop("ContributorInsightsSpecification", None)
    assert {name: table[name] for name in TABLE_SCHEMA} | {"GlobalSecondaryIndexes": indexes} == TABLE_SCHEMA
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


@pytest.mark.parametrize("folder", FUNCTIONS)
def test_a_functions_environment_parses(any_template, folder):
    """What is synthesized is what the function's own settings read, without surplus variables."""
    is_in_band = bool(any_template.missing)
    if folder in any_template.missing:
        return
    known_as = f"in-band {FUNCTIONS[folder]}" if is_in_band else FUNCTIONS[folder]
    assert any_template.settings(folder, known_as, MessageSettings).table_name == "Table"
    variables = any_template.variables(folder)
    assert any("REGISTRY" in name for name in variables) is not is_in_band


def test_local_is_dev_on_this_machine(dev, local):
    """The same resources, but for the registry's users; its functions take the interpreter and processor here."""
    # Ids of security group rules hold the stack's name, and those of layers follow their content.
    other = ("AWS::EC2::SecurityGroup", "AWS::ElastiCache::User", "AWS::Lambda::LayerVersion")
    ids, others = (
        [id_ for id_, resource in template.body["Resources"].items() if not resource["Type"].startswith(other)]
        for template in (dev, local)
    )
    assert ids == others
    architecture = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64"}[platform.machine()]
    functions = local.all("AWS::Lambda::Function")
    assert {(f["Runtime"], *f["Architectures"]) for f in functions} == {
        (f"python3.{sys.version_info.minor}", architecture)
    }
    assert {local.variables(folder)["HOTPARTITION_REGISTRY_TLS"] for folder in FUNCTIONS} == {"false"}
    assert local.of_type("AWS::ElastiCache::User") == {}


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
