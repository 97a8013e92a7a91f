"""The local DynamoDB through boto3: prices, limits, faults, timeline. The partition model's clock is the test's.

Its tables name prices, throttles and rules of faults one by one: what a trial counts is what this server charges and
refuses.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from random import Random

import boto3
import moto.dynamodb.models as dynamodb_models
import pytest
from aiohttp import web
from botocore.config import Config
from botocore.exceptions import ClientError

from support.tables import define_table
from tools.limits import Partitions
from tools.local.dynamodb import LocalDynamoDB, Operations, PartitionedTable, call_moto
from tools.local.faults import Fault, FaultPolicy, ServiceError, delay_seconds, parse_rules
from tools.local.metering import Meter, TimelineRow
from tools.local.template import creation_request

pytestmark = pytest.mark.slow

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/t"
INDEX_ARN = f"{ARN}/index/idx"
TABLE = define_table("pk", "sk", indexes={"idx": ("g", "u")})
WRITE_LIMIT, READ_LIMIT = 10.0, 20.0
CREDENTIALS = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}


class Local:
    """A boto3 client of it, and the clock and timeline behind it."""

    def __init__(self):
        self.now, self.wall_ms = 0.0, 1_000
        self.meter = Meter(lambda: self.now, lambda: self.wall_ms)
        self.faults = FaultPolicy(Random(1))
        limits = Partitions(write_limit_wcu=WRITE_LIMIT, read_limit_rcu=READ_LIMIT, count=None)
        call_moto("CreateTable", creation_request("t", TABLE))
        self.runner = web.AppRunner(LocalDynamoDB(Operations(self.meter, limits), self.faults).app())

    async def serve(self):
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        place = {"endpoint_url": f"http://127.0.0.1:{self.runner.addresses[0][1]}", "region_name": "eu-central-1"}
        once = Config(retries={"total_max_attempts": 1, "mode": "standard"})
        self.client = boto3.client("dynamodb", **place, **CREDENTIALS, config=once)

    def ask(self, operation, **request):
        of_table = {} if operation.startswith(("batch", "transact")) else {"TableName": "t"}
        return getattr(self.client, operation)(**of_table, **request)

    def refused(self, operation, **request):
        """Ask for what is refused, and return the error's whole response."""
        with pytest.raises(ClientError) as caught:
            self.ask(operation, **request)
        return caught.value.response

    def store(self, *items):
        """Put items one after another, and let every bucket fill up after each."""
        for item in items:
            self.ask("put_item", Item=item)
            self.now += 1_000.0


@pytest.fixture
def local(loop, monkeypatch):
    monkeypatch.setattr(dynamodb_models, "Table", PartitionedTable)
    made = Local()
    loop.run(made.serve())
    yield made
    made.client.delete_table(TableName="t")
    made.client.close()
    loop.run(made.runner.cleanup())


def item(pk, sk, size, **more):
    """Build an item of exactly `size` bytes without what `more` adds: names pk, sk and b are 5 bytes."""
    filler = "x" * (size - 5 - len(pk) - len(sk))
    return {name: {"S": value} for name, value in {"pk": pk, "sk": sk, "b": filler, **more}.items()}


def key(pk, sk="0"):
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def query(value="a", *, name="pk", **more):
    condition = {"KeyConditionExpression": f"{name} = :v", "ExpressionAttributeValues": {":v": {"S": value}}}
    return {**condition, **more}


def puts(*keys):
    return [{"Put": {"TableName": "t", "Item": item(pk, "1", 100)}} for pk in keys]


def gets(*keys):
    return {"RequestItems": {"t": {"Keys": [key(pk) for pk in keys], "ConsistentRead": True}}}


def writes(*keys):
    return {"RequestItems": {"t": [{"PutRequest": {"Item": item(pk, "1", 100)}} for pk in keys]}}


KEY_RANGE = "KeyRangeThroughputExceeded"
ENTRY = {"IndexName": "idx", **query("hot", name="g")}


@pytest.fixture
def spent(local):
    """Partition key `hot` and the index's `hot` have nothing left: 10 units of writes and 21 of reads are taken."""
    local.ask("put_item", Item=item("hot", "0", 10_000, g="hot", u="1"))
    for _ in range(7):
        local.ask("get_item", Key=key("hot"), ConsistentRead=True)
    for _ in range(14):
        local.ask("query", **ENTRY)
    return local


@pytest.mark.parametrize(
    ("operation", "request_", "reason", "resource"),
    [
        ("put_item", {"Item": item("hot", "more", 100)}, "TableWrite", ARN),
        ("put_item", {"Item": item("other", "0", 100, g="hot", u="1")}, "IndexWrite", INDEX_ARN),
        ("get_item", {"Key": key("hot")}, "TableRead", ARN),
        ("query", query("hot"), "TableRead", ARN),
        ("query", ENTRY, "IndexRead", INDEX_ARN),
        # Two keys of one partition are one reason; a batch of writes never says why.
        ("batch_get_item", {"RequestItems": {"t": {"Keys": [key("hot"), key("hot", "1")]}}}, "TableRead", ARN),
        ("batch_write_item", writes("hot"), None, ARN),
    ],
)
def test_a_hot_partition_throttles_with_its_reason_and_recovers(spent, operation, request_, reason, resource):
    """As a table on demand does; its neighbour notices nothing, and time cures it."""
    response = spent.refused(operation, **request_)
    assert response["Error"]["Code"] == "ThrottlingException"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400
    reasons = [{"reason": f"{reason}{KEY_RANGE}", "resource": resource}] if reason else None
    assert response.get("throttlingReasons") == reasons
    spent.ask("put_item", Item=item("cold", "0", 100))
    spent.ask("get_item", Key=key("cold"))
    spent.now += 0.1
    spent.ask(operation, **request_)


def test_the_timeline_shows_the_tables_keys_alone(spent):
    """What was taken and refused in slots of 250 ms, by whichever of a write's indexes; old slots are dropped."""
    spent.refused("put_item", Item=item("hot", "more", 100))
    spent.refused("put_item", Item=item("other", "0", 100, g="hot", u="1"))
    spent.refused("get_item", Key=key("hot"))
    taken = {"writes": 1, "write_wcu": 10, "reads": 7, "read_rcu": 21}
    first = [
        TimelineRow(1_000, "hot", table="t", throttled_writes=1, throttled_wcu=1, throttled_reads=1, **taken),
        TimelineRow(1_000, "other", table="t", throttled_writes=1, throttled_wcu=1),
    ]
    for spent.wall_ms in (1_249, 1_250):
        spent.ask("get_item", Key=key("cold"))
    second = [TimelineRow(1_250, "cold", table="t", reads=1, read_rcu=0.5)]
    assert spent.meter.rows_since(1_250) == second
    assert spent.meter.rows_since(0) == [*first, replace(second[0], at_ms=1_000), *second]
    spent.meter.max_rows = 2
    for spent.wall_ms in (1_500, 1_750):
        spent.ask("get_item", Key=key("cold"))
    assert [row.at_ms for row in spent.meter.rows_since(0)] == [1_500, 1_750]


def test_of_several_items_those_of_a_hot_partition_are_refused(spent):
    """A batch returns them unprocessed and does the rest; a transaction is cancelled, and names them."""
    read = spent.ask("batch_get_item", **gets("hot", "cold"), ReturnConsumedCapacity="TOTAL")
    written = spent.ask("batch_write_item", **writes("hot", "cold"), ReturnConsumedCapacity="TOTAL")
    assert (read["UnprocessedKeys"], written["UnprocessedItems"]) == tuple(
        each["RequestItems"] for each in (gets("hot"), writes("hot"))
    )
    for response in (read, written):
        assert response["ConsumedCapacity"] == [{"TableName": "t", "CapacityUnits": 1.0}]
    assert spent.ask("batch_get_item", **gets("cold", "none"))["Responses"] == {"t": []}
    cancelled = spent.refused("transact_write_items", TransactItems=puts("hot", "cold"))
    assert cancelled["Error"]["Code"] == "TransactionCanceledException"
    assert [reason["Code"] for reason in cancelled["CancellationReasons"]] == ["ThrottlingError", "None"]


def test_a_batch_costs_each_of_its_tables(local):
    """What is read of one table, and of another one, is said and charged there."""
    call_moto("CreateTable", creation_request("u", TABLE))
    asked = {**gets("a")["RequestItems"], "u": {"Keys": [key(pk) for pk in "abc"]}}
    read = local.ask("batch_get_item", RequestItems=asked, ReturnConsumedCapacity="TOTAL")
    local.client.delete_table(TableName="u")
    assert {each["TableName"]: each["CapacityUnits"] for each in read["ConsumedCapacity"]} == {"t": 1.0, "u": 1.5}
    rows = local.meter.rows_since(0)
    assert Counter((row.table, row.read_rcu) for row in rows) == Counter({("t", 1.0): 1, ("u", 0.5): 3})


def setting(name, size):
    values = {"ExpressionAttributeValues": {":v": {"S": "y" * size}}}
    return {"Key": key("a"), "UpdateExpression": f"SET {name} = :v", **values}


STRONG = {"ConsistentRead": True}
NAMES_ALONE = {"ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "sk"}}
FOUR = [item("a", str(number), 1500) for number in range(4)]
ONE, LARGE, IN_INDEX = (
    [item("a", "0", size, **more)] for size, more in ((500, {}), (3000, {}), (100, {"g": "00", "u": "1"}))
)
NESTED = {"m": {"M": {"x": {"L": [{"B": b"y"}]}}}}  # 3 bytes, and 8 of overhead
IN_TWO_KEYS = [item(pk, "0", 3000, g="hot", u="1") for pk in "ab"]


@pytest.mark.parametrize(
    ("stored", "operation", "request_", "units", "of_index"),
    [
        ([], "put_item", {"Item": item("a", "0", 1024)}, 1.0, None),
        ([], "put_item", {"Item": item("a", "0", 1025)}, 2.0, None),
        ([], "put_item", {"Item": item("a", "0", 1013) | NESTED}, 1.0, None),
        ([item("a", "0", 1014) | NESTED], "put_item", {"Item": item("a", "0", 100)}, 2.0, None),
        (LARGE, "put_item", {"Item": item("a", "0", 100)}, 3.0, None),  # the larger of both
        ([], "put_item", {"Item": IN_INDEX[0]}, 2.0, 1.0),  # an entry of the index is one more
        (IN_INDEX, "update_item", setting("u", 1), 3.0, 2.0),  # one that moves is two
        (IN_INDEX, "put_item", {"Item": IN_INDEX[0]}, 1.0, None),  # one that stays is free
        (IN_INDEX, "delete_item", {"Key": key("a")}, 2.0, 1.0),
        (ONE, "update_item", setting("c", 2000), 3.0, None),  # the item after it
        ([], "update_item", setting("c", 1), 1.0, None),
        ([], "delete_item", {"Key": key("a")}, 1.0, None),
        (FOUR, "get_item", {"Key": key("a")}, 0.5, None),
        (FOUR, "get_item", {"Key": key("a"), **STRONG}, 1.0, None),
        (FOUR, "get_item", {"Key": key("a"), **STRONG, **NAMES_ALONE}, 1.0, None),
        (FOUR, "get_item", {"Key": key("a", "none")}, 0.5, None),
        (FOUR, "query", query(**STRONG), 2.0, None),  # 6,000 bytes, rounded by page
        (FOUR, "query", query(), 1.0, None),
        (FOUR, "query", query(Select="COUNT", **STRONG), 2.0, None),
        (FOUR, "query", query(**NAMES_ALONE, **STRONG), 2.0, None),
        (FOUR, "query", query(FilterExpression="b = :v", **STRONG), 2.0, None),
        (FOUR, "query", query("nobody"), 0.5, None),
        (IN_TWO_KEYS, "query", ENTRY, 1.0, 1.0),  # of as many partition keys of the table
        (FOUR, "scan", {}, 1.0, None),
    ],
)
def test_prices(local, stored, operation, request_, units, of_index):
    """What an operation costs, by what was stored before: units of a KB written, of 4 KB read, half when eventual."""
    local.store(*stored)
    consumed = local.ask(operation, ReturnConsumedCapacity="INDEXES", **request_)["ConsumedCapacity"]
    assert consumed["CapacityUnits"] == units
    indexes = {} if of_index is None else {"idx": {"CapacityUnits": of_index}}
    assert consumed.get("GlobalSecondaryIndexes", {}) == indexes
    assert consumed["Table"] == {"CapacityUnits": units - (of_index or 0)}


def test_a_failed_condition_costs_and_an_invalid_request_does_not(local):
    """A refused put is charged for the larger item, which is returned when asked; units of an invalid one go back.

    So is a transaction that a condition cancels, at twice the cost.
    """
    condition = {"ConditionExpression": "attribute_not_exists(pk)"}
    unused = {**condition, "ExpressionAttributeNames": {"#unused": "x"}}
    bad = local.refused("put_item", Item=item("a", "0", 9_000), **unused)
    assert bad["Error"]["Code"] == "ValidationException"
    local.store(item("a", "0", 9_000))
    refused = local.refused("put_item", Item=item("a", "0", 100), **condition)
    assert (refused["Error"]["Code"], "Item" in refused) == ("ConditionalCheckFailedException", False)
    local.now += 1_000.0
    asked = {**condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    assert local.refused("put_item", Item=item("a", "0", 100), **asked)["Item"] == item("a", "0", 9_000)
    local.now += 1_000.0
    cancelled = [{"Put": {"TableName": "t", "Item": item("a", "0", 100), **condition}}]
    local.refused("transact_write_items", TransactItems=cancelled)
    (row,) = local.meter.rows_since(0)
    assert (row.writes, row.write_wcu) == (4, 27 + 2 * 9)


def test_a_transaction_costs_twice_and_with_a_token_is_written_once(spent):
    """Its repetition costs reads and changes nothing; another one is refused, unless the first was cancelled."""

    def add(pk, amount):
        values = {"ExpressionAttributeValues": {":n": {"N": amount}}}
        update = {"TableName": "t", "Key": key(pk), "UpdateExpression": "ADD n :n", **values}
        again = {"ClientRequestToken": "token", "ReturnConsumedCapacity": "TOTAL"}
        return {"TransactItems": [{"Update": update}, *puts(f"{pk}-{amount}")], **again}

    assert spent.refused("transact_write_items", **add("hot", "1"))["Error"]["Code"] == "TransactionCanceledException"
    first, second = (spent.ask("transact_write_items", **add("counter", "5"))["ConsumedCapacity"] for _ in range(2))
    assert first == [{"TableName": "t", "CapacityUnits": 4.0, "WriteCapacityUnits": 4.0}]
    assert second == [{"TableName": "t", "CapacityUnits": 4.0, "ReadCapacityUnits": 4.0}]
    refused = spent.refused("transact_write_items", **add("counter", "6"))
    assert refused["Error"]["Code"] == "IdempotentParameterMismatchException"
    assert spent.ask("get_item", Key=key("counter"))["Item"]["n"] == {"N": "5"}


def test_keys_share_a_given_number_of_partitions(local):
    """With one partition for all, other keys use up what is left; an index has partitions of its own."""
    operations = Operations(local.meter, Partitions(write_limit_wcu=3, count=1))
    *first, last = ({"TableName": "t", "Item": item(pk, "0", 100, g=pk, u="1")} for pk in "abcd")
    for request in first:
        operations.carry_out("PutItem", request)
    with pytest.raises(ServiceError, match="exceeds"):
        operations.carry_out("PutItem", last)


def rule(fault, operation="PutItem", **more):
    return {"operation": operation, "fault": fault, **more}


DELAYS = [rule("delay", delay_ms=100), rule("delay", delay_ms=50), rule("lose_answer")]
(THROTTLE,) = parse_rules(json.dumps([rule("throttle", reason="TableWriteAccountLimitExceeded")]))


@pytest.mark.parametrize(
    ("rules", "struck", "delays"),
    [
        ([rule("delay", "GetItem", delay_ms=1)], [], (0, 0)),
        (DELAYS, ["delay", "delay", "lose_answer"], (0.15, 0)),
        ([rule("late_answer", delay_ms=800)], ["late_answer"], (0, 0.8)),
        # What was refused was not carried out, so its response arrives.
        ([rule("lose_answer"), rule("error", probability=0.0)], ["lose_answer"], (0, 0)),
        ([rule("lose_answer"), asdict(THROTTLE), rule("error")], ["throttle"], (0, 0)),
        ([*DELAYS, rule("error")], ["delay", "delay", "error"], (0.15, 0)),
    ],
)
def test_a_request_meets_all_rules_of_its_operation_until_one_refuses_it(rules, struck, delays):
    """Delays add up and come with other faults."""
    policy = FaultPolicy(Random(1), parse_rules(json.dumps(rules)))
    met = policy.strike("PutItem")
    assert [rule.fault for rule in met] == struck
    assert policy.injected == Counter(struck)
    assert (delay_seconds(met, Fault.DELAY), delay_seconds(met, Fault.LATE_ANSWER)) == delays


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "the body should be a list of rules"),
        ([rule("error", delay_ms=1)], "rule 0: .*no other fault, have a delay_ms"),
        ([rule("error", probability=1.1)], "rule 0: probability: .* less than"),
        ([rule("error", "Put")], "rule 0: operation: Input should be 'PutItem', "),
        ([rule("error", often=1)], "rule 0: often: Unexpected"),
        ([rule("delay")], "rule 0: .*delay and late_answer, .* have a delay_ms"),
        ([rule("delay", delay_ms=60_001)], "rule 0: delay_ms: .* equal to 60000"),
        ([rule("throttle", "Query", reason=THROTTLE.reason)], "Query and throttle should be IndexRead"),
        ([rule("throttle", "BatchWriteItem")], "BatchWriteItem and throttle should be none"),
    ],
)
def test_a_rule_that_would_do_nothing_is_refused(value, message):
    """A trial would count it as survived."""
    with pytest.raises(ValueError, match=message):
        parse_rules(json.dumps(value))


def throttled(reason, code, member, resource):
    return rule("throttle", reason=reason), 400, code, {member: [{"reason": reason, "resource": resource}]}


DENIED = "User is not authorized to perform: dynamodb:PutItem on resource: "
SLOW_DOWN = "ThrottlingException", "throttlingReasons"
PROVISIONED = "ProvisionedThroughputExceededException", "ThrottlingReasons"


@pytest.mark.parametrize(
    ("fault", "status", "code", "members"),
    [
        (rule("error"), 500, "InternalServerError", {"message": "Internal server error"}),
        (rule("deny"), 400, "AccessDeniedException", {"Message": DENIED}),
        throttled("TableWriteProvisionedThroughputExceeded", *PROVISIONED, ARN),
        throttled("TableWriteAccountLimitExceeded", "RequestLimitExceeded", "ThrottlingReasons", ARN),
        throttled("TableWriteKeyRangeThroughputExceeded", *SLOW_DOWN, ARN),
        throttled("IndexWriteMaxOnDemandThroughputExceeded", *SLOW_DOWN, INDEX_ARN),
    ],
)
def test_a_refusal_is_what_aws_sends(local, fault, status, code, members):
    """A throttle has its reason in the member that its exception spells; a denial names the right that is missing."""
    local.faults.rules = parse_rules(json.dumps([fault]))
    response = local.refused("put_item", Item=item("a", "0", 100))
    assert (response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]) == (status, code)
    assert {name: response.get(name) or response["Error"].get("Message") for name in members} == members
