"""The environment without Redis: what is not in its template, and what its functions may do."""

from __future__ import annotations

import json

import pytest

from hotpartition.core.errors import InvalidRequestError
from hotpartition.dynamodb.table import LOAD_PREFIX
from hotpartition_messages.keys import parse_conversation_id
from hotpartition_messages.settings import MessageSettings
from infrastructure.template import Statement, Template
from infrastructure.test_policies import (
    LIST_ROUTING_ITEMS,
    PUT_MESSAGE,
    READ_ITEM,
    READ_ITEMS,
    TABLE,
    UPDATE_JOURNAL,
)

ABSENT = ("AWS::EC2::", "AWS::ElastiCache::", "AWS::Scheduler::", "AWS::SQS::", "AWS::CloudWatch::Dashboard")
FUNCTIONS = {"write_message": "write", "read_messages": "read", "operate": "operate"}
LOAD_KEYS = "hotpartition#load#*"
COUNT_LOADS = Statement(
    "dynamodb:UpdateItem",
    TABLE,
    json.dumps(
        {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [LOAD_KEYS]},
            "Null": {"dynamodb:LeadingKeys": "false"},
        },
        sort_keys=True,
    ),
)
DATA = {
    "write_message": {READ_ITEM, READ_ITEMS, PUT_MESSAGE, UPDATE_JOURNAL, COUNT_LOADS},
    "read_messages": {READ_ITEM, READ_ITEMS, Statement("dynamodb:Query", TABLE)},
    "operate": {READ_ITEM, UPDATE_JOURNAL, LIST_ROUTING_ITEMS},
}
ALARMS = {
    "TableWritesThrottled",
    "TableReadsThrottled",
    "IndexThrottled",
    "TableLimitReached",
    "ApiFailing",
    "ApiSlow",
    "ManyRaises",
    "RoutingItemUnreadable",
    "FunctionErrors",
    "FunctionThrottled",
}


@pytest.fixture(params=["lite", "local-lite"])
def stack(request, templates) -> Template:
    return templates[request.param]


def test_nothing_stands_beside_the_table(stack):
    """No VPC, no ElastiCache, no schedule, no queue, and no dashboard, which would cost most of it all."""
    types = {resource["Type"] for resource in stack.body["Resources"].values()}
    assert [type_ for type_ in types if type_.startswith(ABSENT)] == []


def test_its_logs_are_kept_as_its_options_say(templates):
    """As everywhere."""
    kept = [
        {group["RetentionInDays"] for group in templates[n].all("AWS::Logs::LogGroup")} for n in ("lite", "local-lite")
    ]
    assert kept == [{7}, {30}]


def test_its_table_is_that_of_the_other_environments(lite, dev):
    """Items and routes mean the same, whoever finds what is hot; here Contributor Insights names throttled keys."""
    mine, theirs = ({**each.body["Resources"]["Table"]["Properties"], "Tags": []} for each in (lite, dev))
    for watched in (mine, *(indexes := [dict(each) for each in mine["GlobalSecondaryIndexes"]])):
        assert watched.pop("ContributorInsightsSpecification")["Mode"] == "THROTTLED_KEYS"
    assert {**mine, "GlobalSecondaryIndexes": indexes} == theirs


@pytest.mark.parametrize("folder", FUNCTIONS)
def test_function(stack, folder):
    """Each is what its settings read, in no VPC, and may do what is written above, and nothing else."""
    assert set(stack.of_type("AWS::Lambda::Function")) == {stack.function_id(name) for name in FUNCTIONS}
    variables = stack.variables(folder)
    assert MessageSettings.from_env(variables, f"in-band {FUNCTIONS[folder]}").table_name == "hotpartition-table"
    assert [name for name in variables if "REGISTRY" in name] == []
    if folder == "operate":
        (index,) = stack.only("AWS::DynamoDB::Table")["GlobalSecondaryIndexes"]
        assert variables["HOTPARTITION_ROUTING_INDEX_NAME"] == index["IndexName"]
    assert "VpcConfig" not in stack.function(folder)
    assert set(stack.statements(stack.role_id(folder))) == DATA[folder] | stack.observing(folder)


def test_no_conversation_has_the_key_of_a_load_item():
    """So what the writer may change there is no message."""
    assert f"{LOAD_PREFIX}*" == LOAD_KEYS
    with pytest.raises(InvalidRequestError):
        parse_conversation_id(f"{LOAD_PREFIX}0")


def test_alarms(stack):
    """Only those of what there is."""
    assert set(stack.alarms()) == ALARMS


def test_outputs(stack, dev):
    """The outputs name what one needs to use the stack."""
    assert stack.body["Outputs"].keys() == dev.body["Outputs"].keys() - {
        "RegistryEndpoint",
        "ConsumeReportsFunctionName",
    }
