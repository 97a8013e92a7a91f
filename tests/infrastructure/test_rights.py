"""Who may do what: a walk over every policy of the template, held to a written list."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.fleet_load import Cell
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.core.store_clock import StoreClock
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.load_items import DynamoDBLoadItems
from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES
from hotpartition.dynamodb.table import LOAD_PREFIX, JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition_messages.keys import parse_conversation_id
from hotpartition_messages.messages import MESSAGE_ATTRIBUTES
from infrastructure.template import FUNCTIONS, Statement, short_name

JOINING_A_VPC = {
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
}
"""Lambda joins the VPC under the function's role, before there is an interface that could be named."""

ROOT = Path(__file__).resolve().parents[2]

TABLE = "${Table.Arn}"
INDEX = "${Table.Arn}/index/routing-index"


def only(attributes):
    """The condition that a request names some of these attributes and no others."""
    conditions = {
        "ForAllValues:StringEquals": {"dynamodb:Attributes": list(attributes)},
        # Without it a request that names no attribute at all would pass.
        "Null": {"dynamodb:Attributes": "false"},
    }
    return json.dumps(conditions, sort_keys=True)


READ_ITEM = Statement("dynamodb:GetItem", TABLE)
READ_ITEMS = Statement("dynamodb:BatchGetItem", TABLE)
PUT_MESSAGE = Statement("dynamodb:PutItem", TABLE, only(MESSAGE_ATTRIBUTES))
UPDATE_JOURNAL = Statement("dynamodb:UpdateItem", TABLE, only(("pk", "sk", *ROUTING_ATTRIBUTES)))
LIST_ROUTING_ITEMS = Statement("dynamodb:Query", INDEX)

COUNT_LOADS = Statement(
    "dynamodb:UpdateItem",
    TABLE,
    json.dumps(
        {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{LOAD_PREFIX}*"]},
            "Null": {"dynamodb:LeadingKeys": "false"},
        },
        sort_keys=True,
    ),
)

DATA = {
    # Cannot query or delete an item, change any, nor put one that is a route.
    "write_message": {READ_ITEM, READ_ITEMS, PUT_MESSAGE},
    # Cannot write at all.
    "read_messages": {READ_ITEM, READ_ITEMS, Statement("dynamodb:Query", TABLE)},
    "consume_reports": {READ_ITEM, UPDATE_JOURNAL, LIST_ROUTING_ITEMS},
    "operate": {READ_ITEM, UPDATE_JOURNAL, LIST_ROUTING_ITEMS},
}

IN_BAND_DATA = {
    "write_message": DATA["write_message"] | {UPDATE_JOURNAL, COUNT_LOADS},
    "read_messages": DATA["read_messages"],
    "operate": DATA["operate"],
}
"""Where writers raise by themselves."""


def expected_of(template, folder):
    """All that a function's role may do."""
    joining = {Statement(action, "*") for action in JOINING_A_VPC}
    return DATA[folder] | template.observing(folder) | joining | registry_of(template, folder)


def registry_of(template, folder):
    """The function's own user on the stack's own cluster; nothing where there are no users."""
    users = template.of_type("AWS::ElastiCache::User")
    if not users:
        return set()
    name = template.variables(folder)["HOTPARTITION_REGISTRY_USER"]
    (id_,) = [id_ for id_, user in users.items() if user["Properties"]["UserName"] == name]
    group = "arn:${AWS::Partition}:elasticache:${AWS::Region}:${AWS::AccountId}:replicationgroup:${Registry}"
    return {Statement("elasticache:Connect", group), Statement("elasticache:Connect", f"${{{id_}.Arn}}")}


@pytest.mark.parametrize("folder", FUNCTIONS)
def test_function(template, folder):
    """A function's role may do what is written above, and nothing else."""
    assert set(template.statements(template.role_id(folder))) == expected_of(template, folder)


@pytest.mark.parametrize("folder", IN_BAND_DATA)
@pytest.mark.parametrize("name", ["lite", "local-lite"])
def test_function_in_band(templates, name, folder):
    """Likewise where nothing stands beside the table."""
    template = templates[name]
    granted = set(template.statements(template.role_id(folder)))
    assert granted == IN_BAND_DATA[folder] | template.observing(folder)


def test_no_conversation_has_the_key_of_a_load_item():
    """So what the writer may change there is no message."""
    with pytest.raises(InvalidRequestError):
        parse_conversation_id(f"{LOAD_PREFIX}0")


def test_other_roles(template):
    """The schedule starts the consumer; the VPC writes its log."""
    roles = set(template.of_type("AWS::IAM::Role")) - {template.role_id(folder) for folder in FUNCTIONS}
    flow_log = template.only("AWS::EC2::FlowLog")
    flow_role = flow_log["DeliverLogsPermissionArn"]["Fn::GetAtt"][0]
    flow_group = f"${{{flow_log['LogGroupName']['Ref']}.Arn}}"
    (schedule_role,) = roles - {flow_role}
    assert set(template.statements(schedule_role)) == {
        Statement("lambda:InvokeFunction", f"${{{template.function_id('consume_reports')}.Arn}}"),
    }
    assert set(template.statements(flow_role)) == {
        Statement("logs:CreateLogStream", flow_group),
        Statement("logs:DescribeLogStreams", flow_group),
        Statement("logs:PutLogEvents", flow_group),
    }


def test_every_policy_belongs_to_a_role(template):
    """No policy escapes the walk: none is attached to a user, a group or to nothing."""
    roles = {json.dumps({"Ref": id_}) for id_ in template.of_type("AWS::IAM::Role")}
    for policy in template.all("AWS::IAM::Policy"):
        assert not {"Users", "Groups"} & policy.keys()
        assert {json.dumps(role) for role in policy["Roles"]} <= roles
    kinds = {r["Type"] for r in template.body["Resources"].values() if r["Type"].startswith("AWS::IAM::")}
    assert kinds == {"AWS::IAM::Policy", "AWS::IAM::Role"}


def test_roles_are_taken_by_services_only(template):
    """Each role is for one AWS service, and the schedule's only for this account's Scheduler."""
    services = {}
    for role in template.all("AWS::IAM::Role"):
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Action"] == "sts:AssumeRole"
        (service,) = statement["Principal"].values()
        services.setdefault(service, []).append(statement.get("Condition"))
    assert services == {
        "lambda.amazonaws.com": [None] * len(FUNCTIONS),
        "scheduler.amazonaws.com": [{"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}],
        "vpc-flow-logs.amazonaws.com": [None],
    }


def test_functions_are_invoked_by_the_api_only(template):
    """Only the routes of this API may invoke a function from outside the account, and no URL leads to one."""
    (api,) = template.of_type("AWS::ApiGatewayV2::Api")
    assert template.of_type("AWS::Lambda::Url") == {}
    for permission in template.all("AWS::Lambda::Permission"):
        assert permission["Principal"] == "apigateway.amazonaws.com"
        source = short_name(permission["SourceArn"])
        assert source.startswith(
            "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${" + api + "}/*/*/"
        )


def test_the_documents_policy_admits_one_conversation(template):
    """Each route of the API for `room-1`, and none for another conversation."""
    text = (ROOT / "docs/security.md").read_text()
    policy = json.loads(text.partition("```json")[2].partition("```")[0])
    (statement,) = policy["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "execute-api:Invoke")
    stage = template.only("AWS::ApiGatewayV2::Stage")["StageName"]
    for route in template.all("AWS::ApiGatewayV2::Route"):
        method, path = route["RouteKey"].split()
        for conversation, expected in (("room-1", True), ("room-2", False), ("room-10", False), ("room", False)):
            named = path.format(conversation_id=conversation, message_id="01KAJVZHE0FZ5C1S9TQJ0V3YXM")
            arn = f"arn:aws:execute-api:REGION:ACCOUNT:API_ID/{stage}/{method}{named}"
            assert any(fnmatchcase(arn, pattern) for pattern in statement["Resource"]) is expected


def test_resources_admit_who_must_get_in(template):
    """The topic turns away what is not TLS; alarms of this account may publish, and nothing else is named."""
    statements = template.only("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    denied = [s for s in statements if s["Effect"] == "Deny"]
    assert [s["Condition"] for s in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]
    (allowed,) = [s for s in statements if s["Effect"] == "Allow"]
    assert (allowed["Principal"], allowed["Action"]) == ({"Service": "cloudwatch.amazonaws.com"}, "sns:Publish")
    assert allowed["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_what_writers_do_in_band_passes_the_conditions_of_their_roles():
    """A raise names a routing item's attributes, its condition included; all else is under the keys of load items."""
    requests = []

    def call(operation, request):
        requests.append((operation, request))
        return {"Attributes": {"generations": {"SS": ["4@1"]}}}

    for place in (JournalPlace("table"), JournalPlace("routes", sort_key="")):
        requests.clear()
        calls = ThreadedCalls(call)
        DynamoDBJournal(calls, place).add("c", [Generation(4, 1)], cause=Cause("raised"), now_ms=9_000, pause_ms=1)
        DynamoDBLoadItems(calls, place, StoreClock(), lambda: 1).add("c", 0, Cell(1, 0, False), 10)
        raises = [request for _, request in requests if request["Key"][place.partition_key]["S"] == "c"]
        others = {request["Key"][place.partition_key]["S"] for _, request in requests if request not in raises}
        (request,) = raises
        expressions = f"{request['UpdateExpression']} {request['ConditionExpression']}"
        words = set(re.findall(r"(?<![:\w])[a-z_]+(?=[ )])", expressions))
        assert {operation for operation, _ in requests} == {"UpdateItem"}
        assert words == set(ROUTING_ATTRIBUTES)
        assert len(others) == 1 + place.has_directory
        assert all(key.startswith(LOAD_PREFIX) for key in others)
