"""A `HotPartition` that is renamed, moved, given a shared registry and taken away: what keeps its place and name."""

from __future__ import annotations

from importlib import import_module

import pytest

from infrastructure.apps import App, constructs, dynamodb, imported_table, make_function
from infrastructure.template import Template, short_name

NAMED = {
    "AWS::DynamoDB::Table": "TableName",
    "AWS::ElastiCache::User": "UserId",
    "AWS::ElastiCache::UserGroup": "UserGroupId",
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::CloudWatch::Dashboard": "DashboardName",
}
"""What has a name that is unique in account and region."""


def app(folder, *, is_moved=False, is_sharing=False, has_events=True, is_named=True):
    """Two tables, imported and made here; the second one's registry is its own, or the first one's."""
    made = App(folder)
    stack = made.stack("Moving")
    first = constructs.HotPartition(stack, "First", table=imported_table(stack), name="first")
    if not has_events:
        return made.template()
    events = dynamodb.Table(
        stack,
        "Events",
        partition_key=dynamodb.Attribute(name="Sensor", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="At", type=dynamodb.AttributeType.NUMBER),
    )
    constructs.HotPartition(
        import_module("constructs").Construct(stack, "Wrapped") if is_moved else stack,
        "Hotter" if is_moved else "Hot",
        table=events,
        functions=[make_function(stack, "Collect")],
        registry=first.registry if is_sharing else None,
        name="events" if is_named else None,
        is_joining=True,
    )
    return made.template()


def names(template: Template) -> dict[tuple[str, str], str]:
    """Every name that is given, by type, with the logical id that has it."""
    return {
        (type_, short_name(resource["Properties"][name])): id_
        for type_, name in NAMED.items()
        for id_, resource in template.of_type(type_).items()
        if name in resource["Properties"]
    }


def journals(template):
    return {name: id_ for (type_, name), id_ in names(template).items() if type_ == "AWS::DynamoDB::Table"}


CHANGES = {
    "before": {},
    "renamed and wrapped": {"is_moved": True},
    "sharing": {"is_sharing": True},
    "moved, without a name": {"is_moved": True, "is_named": False},
    "away": {"has_events": False},
}


@pytest.fixture(scope="module")
def apps(tmp_path_factory):
    """The app as it was, and with each change."""
    return {name: app(tmp_path_factory.mktemp("app"), **change) for name, change in CHANGES.items()}


@pytest.mark.parametrize("change", CHANGES)
def test_no_name_is_taken_by_another_resource(apps, change):
    """CloudFormation creates before it deletes: a name that stays has the logical id that it had, both ways."""
    old, new = names(apps["before"]), names(apps[change])
    assert {key: id_ for key, id_ in new.items() if key in old} == {key: id_ for key, id_ in old.items() if key in new}


@pytest.mark.parametrize("change", [change for change in CHANGES if change != "away"])
def test_the_journal_stays(apps, change):
    """Under its name, which is that of the table, and its logical id: it is the truth about where items lie."""
    kept = journals(apps[change])
    assert kept == journals(apps["before"])
    assert len(kept) == 2
    assert all(name.startswith("hp-routes-") for name in kept)


def test_a_journal_that_is_left_behind_is_in_the_way(apps):
    """Taken away it is retained; made again, it has the name that is taken, and the deployment fails."""
    ((name, id_),) = journals(apps["before"]).items() - journals(apps["away"]).items()
    resource = apps["before"].body["Resources"][id_]
    assert resource["DeletionPolicy"] == "RetainExceptOnCreate"
    assert short_name(resource["Properties"]["TableName"]) == name


def test_a_table_on_another_registry_has_other_users(apps):
    """Both exist for a while."""

    def users(template):
        return {name for type_, name in names(template) if type_ == "AWS::ElastiCache::User" and name[:6] == "events"}

    after = users(apps["sharing"])
    assert len(after) == 4
    assert not after & users(apps["before"])
