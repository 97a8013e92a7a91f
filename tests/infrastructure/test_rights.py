"""Rights beside what uses them: documented policies, and what functions send; `templates` list every statement."""

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
