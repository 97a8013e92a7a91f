"""The local DynamoDB through boto3: prices, limits, faults, timeline. The partition model's clock is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import boto3
import moto.dynamodb.models as dynamodb_models
import pytest
from aiohttp import web
from botocore.config import Config
from botocore.exceptions import ClientError

from support.tables import define_table
from tools.limits import Demand, Kind
from tools.local.dynamodb import LocalDynamoDB, Moto, PartitionedTable
from tools.local.dynamodb_process import creation_request
from tools.local.faults import FaultPolicy, FaultRuleError, Injection, build_refusal, parse_rules
from tools.local.metering import Meter, PartitionModel, Timeline, TimelineRow

pytestmark = pytest.mark.slow

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/t"
WRITE_LIMIT, READ_LIMIT = 10.0, 20.0


class Local:
    """A boto3 client of it, and the clock and timeline behind it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meter = Meter(Timeline(), lambda: self.now, lambda: 1_000)
        self.client: Any = None

    def consumed(self, operation: str, **request: Any) -> dict[str, Any]:
        result = getattr(self.client, operation)(ReturnConsumedCapacity="INDEXES", **request)
        consumed: dict[str, Any] = result["ConsumedCapacity"]
        return consumed

    def rest(self) -> None:
        """Let every bucket fill up."""
        self.now += 1_000.0


@pytest.fixture
def local(loop: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    monkeypatch.setattr(dynamodb_models, "Table", PartitionedTable)
    made = Local()
    moto = Moto(PartitionModel(WRITE_LIMIT, READ_LIMIT))
    moto.call("CreateTable", creation_request("t", TABLE))

    async def start() -> web.AppRunner:
        runner = web.AppRunner(LocalDynamoDB(moto, made.meter, FaultPolicy(Random(1))).app())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = loop.run(start())
    made.client = boto3.client(
        "dynamodb",
        endpoint_url=f"http://127.0.0.1:{runner.addresses[0][1]}",
        region_name="eu-central-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
    )
    yield made
    made.client.delete_table(TableName="t")
    made.client.close()
    loop.run(runner.cleanup())


TABLE = define_table("pk", "sk", indexes={"idx": ("g", "u")})


def _item(pk: str, sk: str, size: int, **more: str) -> dict[str, Any]:
    """An item of exactly `size` bytes without what `more` adds: names pk, sk and b are 5 bytes."""
    filler = "x" * (size - 5 - len(pk) - len(sk))
    return {name: {"S": value} for name, value in {"pk": pk, "sk": sk, "b": filler, **more}.items()}


def _key(pk: str, sk: str) -> dict[str, Any]:
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def _throttle(call: Any, **request: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        call(**request)
    response: dict[str, Any] = dict(caught.value.response)
    return response


def test_a_hot_partition_throttles_with_dynamodbs_error_and_recovers(local: Local) -> None:
    """An on-demand table responds with ThrottlingException with the reason and the table's ARN; time cures it."""
    for number in range(10):
        local.client.put_item(TableName="t", Item=_item("hot", str(number), 100))
    response = _throttle(local.client.put_item, TableName="t", Item=_item("hot", "more", 100))
    assert response["Error"]["Code"] == "ThrottlingException"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert response["throttlingReasons"] == [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": ARN}]
    local.client.put_item(TableName="t", Item=_item("cold", "0", 100))
    local.now += 0.1
    local.client.put_item(TableName="t", Item=_item("hot", "more", 100))
    row = next(row for row in local.meter.timeline.rows_since(0) if row.key == "hot")
    assert (row.writes, row.write_wcu, row.throttled_writes, row.throttled_wcu) == (11, 11, 1, 1)


def test_reads_throttle_with_their_own_reason(local: Local) -> None:
    """Reads have a bucket of their own; it throttles once nothing is left in it."""
    for _ in range(20):
        local.client.get_item(TableName="t", Key=_key("hot", "0"), ConsistentRead=True)
    both = {"t": {"Keys": [_key("hot", "0"), _key("hot", "1")]}}
    for response in (
        _throttle(local.client.get_item, TableName="t", Key=_key("hot", "0")),
        _throttle(local.client.batch_get_item, RequestItems=both),
    ):
        assert response["throttlingReasons"] == [{"reason": "TableReadKeyRangeThroughputExceeded", "resource": ARN}]
    local.client.put_item(TableName="t", Item=_item("hot", "0", 100))
    (row,) = local.meter.timeline.rows_since(0)
    assert (row.reads, row.throttled_reads, row.writes) == (20, 3, 1)


def test_a_hot_index_throttles_with_its_own_reasons(local: Local) -> None:
    """It refuses its table's writes and its own queries; the timeline shows the table's keys alone."""
    for number in range(10):
        local.client.put_item(TableName="t", Item=_item(str(number), "0", 100, g="hot", u="1"))
    more = _item("more", "0", 100, g="hot", u="1")
    refused = [_throttle(local.client.put_item, TableName="t", Item=more)]
    of_index = {"KeyConditionExpression": "g = :g", "ExpressionAttributeValues": {":g": {"S": "hot"}}}
    for _ in range(40):
        local.client.query(TableName="t", IndexName="idx", Limit=1, **of_index)
    refused.append(_throttle(local.client.query, TableName="t", IndexName="idx", **of_index))
    assert [response["throttlingReasons"] for response in refused] == [
        [{"reason": f"Index{kind}KeyRangeThroughputExceeded", "resource": f"{ARN}/index/idx"}]
        for kind in ("Write", "Read")
    ]
    assert {row.key for row in local.meter.timeline.rows_since(0)} == {*map(str, range(10)), "more"}
    local.rest()
    assert local.client.query(TableName="t", IndexName="idx", **of_index)["Count"] == 10  # of as many partition keys


def _query(pk: str = "a", **more: Any) -> dict[str, Any]:
    condition = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": pk}}}
    return {**condition, **more}


def _set(name: str, size: int) -> dict[str, Any]:
    return {"UpdateExpression": f"SET {name} = :v", "ExpressionAttributeValues": {":v": {"S": "y" * size}}}


ITEM, STRONG = {"Key": _key("a", "0")}, {"ConsistentRead": True}
NAMES_ALONE = {"ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "sk"}}
FOUR = [_item("a", str(number), 1500) for number in range(4)]
ONE, LARGE = [_item("a", "0", 500)], [_item("a", "0", 3000)]
IN_INDEX = [_item("a", "0", 100, g="00", u="1")]


@pytest.mark.parametrize(
    ("stored", "operation", "request_", "units", "of_index"),
    [
        ([], "put_item", {"Item": _item("a", "0", 1024)}, 1.0, None),
        ([], "put_item", {"Item": _item("a", "0", 1025)}, 2.0, None),
        (LARGE, "put_item", {"Item": _item("a", "0", 100)}, 3.0, None),  # the larger of both
        ([], "put_item", {"Item": IN_INDEX[0]}, 2.0, 1.0),  # an entry of the index is one more
        (IN_INDEX, "update_item", {**ITEM, **_set("u", 1)}, 3.0, 2.0),  # one that moves is two
        (IN_INDEX, "put_item", {"Item": IN_INDEX[0]}, 1.0, None),  # one that stays is free
        (IN_INDEX, "delete_item", ITEM, 2.0, 1.0),
        (ONE, "update_item", {**ITEM, **_set("c", 2000)}, 3.0, None),  # the item after it
        ([], "update_item", {**ITEM, **_set("c", 1)}, 1.0, None),
        ([], "delete_item", ITEM, 1.0, None),
        (FOUR, "get_item", ITEM, 0.5, None),
        (FOUR, "get_item", {**ITEM, **STRONG}, 1.0, None),
        (FOUR, "get_item", {**ITEM, **STRONG, **NAMES_ALONE}, 1.0, None),
        (FOUR, "get_item", {"Key": _key("a", "none")}, 0.5, None),
        (FOUR, "query", _query(**STRONG), 2.0, None),  # 6,000 bytes, rounded by page
        (FOUR, "query", _query(), 1.0, None),
        (FOUR, "query", _query(Select="COUNT", **STRONG), 2.0, None),
        (FOUR, "query", _query(**NAMES_ALONE, **STRONG), 2.0, None),
        (FOUR, "query", _query("nobody"), 0.5, None),
        (FOUR, "scan", {}, 1.0, None),
    ],
)
def test_prices(
    local: Local,
    stored: list[dict[str, Any]],
    operation: str,
    request_: dict[str, Any],
    units: float,
    of_index: float | None,
) -> None:
    """What an operation costs, by what was stored before: units of a KB written, of 4 KB read, half when eventual."""
    for item in stored:
        local.client.put_item(TableName="t", Item=item)
        local.rest()
    consumed = local.consumed(operation, TableName="t", **request_)
    assert consumed["CapacityUnits"] == units
    indexes = {} if of_index is None else {"idx": {"CapacityUnits": of_index}}
    assert consumed.get("GlobalSecondaryIndexes", {}) == indexes
    assert consumed["Table"] == {"CapacityUnits": units - (of_index or 0)}


def test_a_failed_condition_costs_and_returns_the_blocking_item_only_when_asked(local: Local) -> None:
    """A refused put is charged for the larger item, although nothing was written."""
    local.client.put_item(TableName="t", Item=_item("a", "0", 4000))
    request = {"TableName": "t", "Item": _item("a", "0", 100), "ConditionExpression": "attribute_not_exists(pk)"}
    refused = _throttle(local.client.put_item, **request)
    assert refused["Error"]["Code"] == "ConditionalCheckFailedException"
    assert "Item" not in refused
    blocked = _throttle(local.client.put_item, **request, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    assert blocked["Item"] == _item("a", "0", 4000)
    (row,) = local.meter.timeline.rows_since(0)
    assert (row.writes, row.write_wcu) == (3, 12)


def test_a_batch_returns_what_a_partition_refused(local: Local) -> None:
    """Keys of a throttled partition are unprocessed, the rest is read; only refused keys are an error."""
    local.client.put_item(TableName="t", Item=_item("cold", "0", 100))
    for _ in range(20):
        local.client.get_item(TableName="t", Key=_key("hot", "0"), ConsistentRead=True)
    keys = [_key("hot", "0"), _key("cold", "0")]
    result = local.client.batch_get_item(
        RequestItems={"t": {"Keys": keys, "ConsistentRead": True}}, ReturnConsumedCapacity="TOTAL"
    )
    assert result["UnprocessedKeys"] == {"t": {"Keys": [_key("hot", "0")], "ConsistentRead": True}}
    assert result["Responses"]["t"] == [_item("cold", "0", 100)]
    assert result["ConsumedCapacity"] == [{"TableName": "t", "CapacityUnits": 1.0}]
    refused = _throttle(local.client.batch_get_item, RequestItems={"t": {"Keys": [_key("hot", "0")]}})
    assert refused["Error"]["Code"] == "ThrottlingException"
    assert refused["throttlingReasons"] == [{"reason": "TableReadKeyRangeThroughputExceeded", "resource": ARN}]


def test_a_batch_write_returns_what_a_partition_refused_and_names_no_reason(local: Local) -> None:
    """As on AWS, BatchWriteItem says which items are left and never why."""
    local.client.put_item(TableName="t", Item=_item("hot", "0", 10_000))
    entries = [{"PutRequest": {"Item": _item(pk, "1", 100)}} for pk in ("hot", "cold")]
    result = local.client.batch_write_item(RequestItems={"t": entries}, ReturnConsumedCapacity="TOTAL")
    assert result["UnprocessedItems"] == {"t": entries[:1]}
    assert result["ConsumedCapacity"] == [{"TableName": "t", "CapacityUnits": 1.0}]
    assert "throttlingReasons" not in _throttle(local.client.batch_write_item, RequestItems={"t": entries[:1]})


def test_a_transaction_costs_twice_and_is_cancelled_by_one_hot_partition(local: Local) -> None:
    """Two puts of 1 WCU cost 4; later one refused partition names itself among the cancellation reasons."""
    puts = [{"Put": {"TableName": "t", "Item": _item(pk, "1", 100)}} for pk in ("hot", "cold")]
    result = local.client.transact_write_items(TransactItems=puts, ReturnConsumedCapacity="TOTAL")
    assert result["ConsumedCapacity"] == [{"TableName": "t", "CapacityUnits": 4.0, "WriteCapacityUnits": 4.0}]
    local.client.put_item(TableName="t", Item=_item("hot", "0", 8_000))
    cancelled = _throttle(local.client.transact_write_items, TransactItems=puts)
    assert cancelled["Error"]["Code"] == "TransactionCanceledException"
    assert [reason["Code"] for reason in cancelled["CancellationReasons"]] == ["ThrottlingError", "None"]


def test_a_request_that_is_invalid_costs_nothing(local: Local) -> None:
    """The units taken on admission are given back."""
    bad = {
        "TableName": "t",
        "Item": _item("a", "0", 9_000),
        "ConditionExpression": "attribute_not_exists(pk)",
        "ExpressionAttributeNames": {"#unused": "x"},
    }
    assert _throttle(local.client.put_item, **bad)["Error"]["Code"] == "ValidationException"
    local.client.put_item(TableName="t", Item=_item("a", "0", 9_000))


def test_a_transaction_with_a_token_is_written_once(local: Local) -> None:
    """Its repetition costs reads and changes nothing; another one is refused, unless the first was cancelled."""

    def add(key: str, amount: str) -> dict[str, Any]:
        values = {"ExpressionAttributeValues": {":n": {"N": amount}}}
        update = {"TableName": "t", "Key": _key(key, "c#"), "UpdateExpression": "ADD n :n", **values}
        return {"TransactItems": [{"Update": update}], "ClientRequestToken": "token"}

    for number in range(10):
        local.client.put_item(TableName="t", Item=_item("hot", str(number), 100))
    cancelled = _throttle(local.client.transact_write_items, **add("hot", "1"))
    assert cancelled["Error"]["Code"] == "TransactionCanceledException"
    (first,) = local.consumed("transact_write_items", **add("counter", "5"))
    (second,) = local.consumed("transact_write_items", **add("counter", "5"))
    assert (first["WriteCapacityUnits"], second["ReadCapacityUnits"]) == (2.0, 2.0)
    refused = _throttle(local.client.transact_write_items, **add("counter", "6"))
    assert refused["Error"]["Code"] == "IdempotentParameterMismatchException"
    assert local.client.get_item(TableName="t", Key=_key("counter", "c#"))["Item"]["n"] == {"N": "5"}


RESOURCE = PartitionModel().resource(ARN)
REASON = "TableWriteAccountLimitExceeded"


def test_keys_share_a_given_number_of_partitions() -> None:
    """With one partition for all, a key's neighbour uses up what is left; an index has partitions of its own."""
    model = PartitionModel(write_limit_wcu=3, partitions=1)
    table, index = model.resource(ARN), model.resource(f"{ARN}/index/i", is_index=True)
    assert table.write("hot", 3, 0.0) is None
    assert model.resource(ARN).write("cold", 1, 0.0) is not None
    assert index.write("03", 3, 0.0) is None


def test_the_timeline_counts_by_slot_and_key_and_drops_its_oldest_slots() -> None:
    """Rows are aligned to 250 ms and filtered by their start; their number is bounded."""
    timeline = Timeline(max_rows=10)
    for kind, key, units, at_ms, is_refused in (
        (Kind.WRITE, "hot", 2, 1_000, False),
        (Kind.WRITE, "hot", 1, 1_249, False),
        (Kind.WRITE, "hot", 3, 1_250, True),
        (Kind.READ, "cold", 0.5, 1_300, False),
    ):
        timeline.note(Demand(RESOURCE, kind, key, units), at_ms, is_refused=is_refused)
    assert timeline.rows_since(1_250) == [
        TimelineRow(1_250, "hot", table="t", throttled_writes=1, throttled_wcu=3),
        TimelineRow(1_250, "cold", table="t", reads=1, read_rcu=0.5),
    ]
    assert timeline.rows_since(0)[0] == TimelineRow(1_000, "hot", table="t", writes=2, write_wcu=3)
    for number in range(100):
        timeline.note(Demand(RESOURCE, Kind.WRITE, "hot", 1), number * 250)
    assert [row.at_ms // 250 for row in timeline.rows_since(0)] == list(range(90, 100))


def _policy(*rules: dict[str, Any], seed: int = 1) -> FaultPolicy:
    return FaultPolicy(Random(seed), parse_rules(list(rules)))


def _rule(fault: str, operation: str = "PutItem", **more: Any) -> dict[str, Any]:
    return {"operation": operation, "fault": fault, **more}


def test_a_request_meets_all_rules_of_its_operation_until_one_refuses_it() -> None:
    """Delays add up and come with other faults; what was refused was not carried out, so its response arrives."""
    late = _rule("late_answer", "UpdateItem", delay_ms=800)
    faults = _policy(_rule("delay", delay_ms=100), _rule("delay", delay_ms=50), _rule("lose_answer"), late)
    assert faults.choose("GetItem") == Injection()
    assert faults.choose("PutItem") == Injection(delay_ms=150, is_response_lost=True)
    assert faults.choose("UpdateItem") == Injection(response_delay_ms=800)
    assert faults.injected == {"delay": 2, "lose_answer": 1, "late_answer": 1}
    never, throttle = _rule("error", probability=0.0), _rule("throttle", reason=REASON)
    faults = _policy(_rule("lose_answer"), never, throttle, _rule("error"))
    assert faults.choose("PutItem") == Injection(refusal=faults.rules[2])
    assert faults.injected == {"throttle": 1}


def test_a_probability_is_met_and_a_seed_repeats_it() -> None:
    """About the share that was asked for, and the same requests with the same seed."""
    first, second = (_policy(_rule("lose_answer", probability=0.3)) for _ in range(2))
    lost = [first.choose("PutItem").is_response_lost for _ in range(2_000)]
    assert lost == [second.choose("PutItem").is_response_lost for _ in range(2_000)]
    assert 500 < sum(lost) < 700


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "the body should be a list of rules"),
        ([_rule("error", delay_ms=1)], "rule 0: .*no other fault, have a delay_ms"),
        ([_rule("error", probability=1.1)], "rule 0: probability: .* less than"),
        ([_rule("error", "Put")], "rule 0: operation: Input should be 'PutItem', "),
        ([_rule("error", often=1)], "rule 0: often: Unexpected"),
        ([_rule("delay")], "rule 0: .*delay and late_answer, .* have a delay_ms"),
        ([_rule("delay", delay_ms=60_001)], "rule 0: delay_ms: .* equal to 60000"),
        ([_rule("throttle", "Query", reason=REASON)], "Query and throttle should be IndexRead"),
        ([_rule("throttle", "BatchWriteItem")], "BatchWriteItem and throttle should be none"),
    ],
)
def test_a_rule_that_would_do_nothing_is_refused(value: Any, message: str) -> None:
    """A trial would count it as survived."""
    with pytest.raises(FaultRuleError, match=message):
        parse_rules(value)


@pytest.mark.parametrize(
    ("rule", "status", "code", "member"),
    [
        (_rule("error"), 500, "InternalServerError", None),
        (_rule("deny"), 400, "AccessDeniedException", None),
        *(
            (_rule("throttle", reason=f"{target}Write{limit}"), 400, code, member)
            for target in ("Table", "Index")
            for limit, code, member in (
                ("ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException", "ThrottlingReasons"),
                ("AccountLimitExceeded", "RequestLimitExceeded", "ThrottlingReasons"),
                ("KeyRangeThroughputExceeded", "ThrottlingException", "throttlingReasons"),
                ("MaxOnDemandThroughputExceeded", "ThrottlingException", "throttlingReasons"),
            )
        ),
    ],
)
def test_a_refusal_is_what_aws_sends(rule: dict[str, Any], status: int, code: str, member: str | None) -> None:
    """The reason in the member that its exception spells; a denial names the right that is missing, and on what."""
    (parsed,) = parse_rules([rule])
    error = build_refusal(parsed, ARN)
    assert (error.status, error.code) == (status, code)
    if member:
        assert error.body[member] == [{"reason": rule["reason"], "resource": ARN}]
    if rule["fault"] == "deny":
        assert f"dynamodb:PutItem on resource: {ARN}" in error.body["Message"]
