"""Who may do what, whatever the templates' texts say: no outsider, and what functions send passes its rights.

The texts in `templates` list every statement of every role.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase

import pytest

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.fleet_load import Cell
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.core.times import StoreClock
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.load_items import DynamoDBLoadItems
from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES
from hotpartition.dynamodb.table import LOAD_PREFIX, JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition_messages.keys import parse_conversation_id
from infrastructure.template import FUNCTIONS, short_name

WITHOUT_A_NAME = {"ec2", "xray"}
"""Services of the actions whose resource has no name yet: Lambda's way into the VPC, and traces."""


def test_every_right_names_what_it_is_for(any_template):
    """Allowed to roles alone, by actions without wildcards, on the stack's own resources."""
    ids = any_template.body["Resources"].keys()
    for policy in any_template.all("AWS::IAM::Policy"):
        assert {role["Ref"] for role in policy["Roles"]} <= ids
        assert not {"Users", "Groups"} & policy.keys()
    kinds = {resource["Type"] for resource in any_template.body["Resources"].values()}
    assert {kind for kind in kinds if kind.startswith("AWS::IAM::")} == {"AWS::IAM::Policy", "AWS::IAM::Role"}
    for folder in FUNCTIONS.keys() - any_template.missing:
        rights = any_template.rights(any_template.function(folder))
        assert not [action for action, _, _ in rights if "*" in action]
        assert {action.partition(":")[0] for action, resource, _ in rights if resource == "*"} <= WITHOUT_A_NAME


def test_only_services_get_in(any_template):
    """Roles are for services, and the API's own routes alone invoke a function from outside of the account."""
    services = set()
    for role in any_template.all("AWS::IAM::Role"):
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        services |= {(name, *statement.get("Condition", ())) for name in statement["Principal"].values()}
    lambda_alone = {("lambda.amazonaws.com",)}
    scheduled = {("scheduler.amazonaws.com", "StringEquals"), ("vpc-flow-logs.amazonaws.com",)}
    assert services == lambda_alone | (set() if any_template.missing else scheduled)
    (api,) = any_template.of_type("AWS::ApiGatewayV2::Api")
    for permission in any_template.all("AWS::Lambda::Permission"):
        assert permission["Principal"] == "apigateway.amazonaws.com"
        assert f":${{{api}}}/" in short_name(permission["SourceArn"])


def policy_of(page, heading=""):
    """The first policy below a heading of the page of security."""
    return json.loads(page.split(heading, 1)[1].partition("```json")[2].partition("```")[0])


def test_the_documents_policy_admits_one_conversation(prod, root):
    """Each route of the API for `room-1`, and none for another conversation."""
    (statement,) = policy_of((root / "docs/security.md").read_text(), "\n")["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "execute-api:Invoke")
    stage = prod.only("AWS::ApiGatewayV2::Stage")["StageName"]
    for route in prod.all("AWS::ApiGatewayV2::Route"):
        method, path = route["RouteKey"].split()
        for conversation, expected in (("room-1", True), ("room-2", False), ("room-10", False), ("room", False)):
            named = path.format(conversation_id=conversation, message_id="01KAJVZHE0FZ5C1S9TQJ0V3YXM")
            arn = f"arn:aws:execute-api:REGION:ACCOUNT:API_ID/{stage}/{method}{named}"
            assert any(fnmatchcase(arn, pattern) for pattern in statement["Resource"]) is expected


def test_the_documents_policy_is_what_the_construct_grants(in_band, root):
    """For a role of one's own, with routes in a table of their own."""
    documented = set()
    for statement in policy_of((root / "docs/security.md").read_text(), "## Without Redis")["Statement"]:
        condition = json.dumps(statement.get("Condition", {}), sort_keys=True)
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        documented |= {(action, condition) for action in actions}
    (collect,) = [each for each in in_band.all("AWS::Lambda::Function") if each["Handler"] == "collect.handler"]
    granted = {(action, how) for action, resource, how in in_band.rights(collect) if "events" not in resource}
    assert documented == granted


def test_no_conversation_has_the_key_of_a_load_item():
    """So what the writer may change there is no message."""
    with pytest.raises(InvalidRequestError):
        parse_conversation_id(f"{LOAD_PREFIX}0")


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
