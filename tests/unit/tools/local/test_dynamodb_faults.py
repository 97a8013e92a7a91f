from __future__ import annotations

import random
from collections import Counter

import pytest

from tools.local.faults import (
    WRITE_REASONS,
    Fault,
    FaultPolicy,
    FaultRule,
    FaultRuleError,
    Injection,
    build_refusal,
    parse_rules,
)

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/t"
ALWAYS, NEVER = 1.0, 0.0
REASON = "TableWriteAccountLimitExceeded"


def policy(*rules, seed=1):
    return FaultPolicy(random.Random(seed), rules)


def test_a_request_meets_all_rules_of_its_operation():
    """Delays add up and come with other faults; a response can be late where the request is not."""
    faults = policy(
        FaultRule("PutItem", Fault.DELAY, ALWAYS, delay_ms=100),
        FaultRule("PutItem", Fault.DELAY, ALWAYS, delay_ms=50),
        FaultRule("PutItem", Fault.LOSE_ANSWER, ALWAYS),
        FaultRule("UpdateItem", Fault.LATE_ANSWER, ALWAYS, delay_ms=800),
    )
    assert faults.choose("GetItem") == Injection()
    assert faults.choose("PutItem") == Injection(delay_ms=150, is_response_lost=True)
    assert faults.choose("UpdateItem") == Injection(response_delay_ms=800)
    assert faults.injected == Counter(delay=2, lose_answer=1, late_answer=1)


def test_the_first_refusal_decides_and_its_response_arrives():
    """A request that was refused was not carried out, so its response cannot be the lost one."""
    throttle = FaultRule("PutItem", Fault.THROTTLE, ALWAYS, reason=REASON)
    faults = policy(
        FaultRule("PutItem", Fault.LOSE_ANSWER, ALWAYS),
        FaultRule("PutItem", Fault.ERROR, NEVER),
        throttle,
        FaultRule("PutItem", Fault.ERROR, ALWAYS),
    )
    assert faults.choose("PutItem") == Injection(refusal=throttle)
    assert faults.injected == Counter(throttle=1)


def test_a_probability_is_met_and_a_seed_repeats_it():
    """About the share that was asked for, and the same requests with the same seed."""
    rule = FaultRule("PutItem", Fault.LOSE_ANSWER, 0.3)
    first, second = policy(rule), policy(rule)
    lost = [first.choose("PutItem").is_response_lost for _ in range(2_000)]
    assert lost == [second.choose("PutItem").is_response_lost for _ in range(2_000)]
    assert 500 < sum(lost) < 700


def test_rules_are_read_from_json():
    """Each fault with what it needs; the probability is 1 unless it is named."""
    rules = parse_rules(
        [
            {"operation": "Query", "fault": "delay", "probability": 0.2, "delay_ms": 150},
            {"operation": "Query", "fault": "late_answer", "delay_ms": 1},
            {"operation": "PutItem", "fault": "error", "probability": 0.5},
            {"operation": "PutItem", "fault": "lose_answer"},
            {"operation": "PutItem", "fault": "throttle", "reason": REASON},
            {"operation": "UpdateItem", "fault": "deny"},
        ]
    )
    assert rules == (
        FaultRule("Query", Fault.DELAY, 0.2, delay_ms=150),
        FaultRule("Query", Fault.LATE_ANSWER, 1.0, delay_ms=1),
        FaultRule("PutItem", Fault.ERROR, 0.5),
        FaultRule("PutItem", Fault.LOSE_ANSWER, 1.0),
        FaultRule("PutItem", Fault.THROTTLE, 1.0, reason=REASON),
        FaultRule("UpdateItem", Fault.DENY),
    )
    assert parse_rules([]) == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "the body should be a list of rules"),
        ([{"operation": "PutItem", "fault": "error", "delay_ms": 1}], "rule 0: .*no other fault, have a delay_ms"),
        (
            [{"operation": "PutItem", "fault": "error", "probability": 1.1}],
            "rule 0: probability: .* less than",
        ),
        ([{"operation": "Put", "fault": "error"}], "rule 0: operation: Input should be 'PutItem', "),
        ([{"operation": "PutItem", "fault": "error", "often": 1}], "rule 0: often: Unexpected"),
        ([{"operation": "PutItem", "fault": "delay"}], "rule 0: .*delay and late_answer, .* have a delay_ms"),
        ([{"operation": "PutItem", "fault": "delay", "delay_ms": 60_001}], "rule 0: delay_ms: .* equal to 60000"),
        ([{"operation": "Query", "fault": "throttle", "reason": REASON}], "Query and throttle should be IndexRead"),
        ([{"operation": "BatchWriteItem", "fault": "throttle"}], "BatchWriteItem and throttle should be none"),
    ],
)
def test_a_rule_that_would_do_nothing_is_refused(value, message):
    """A trial would count it as survived."""
    with pytest.raises(FaultRuleError, match=message):
        parse_rules(value)


def test_an_error_is_dynamodbs_internal_server_error():
    """Status 500, which clients try again."""
    error = build_refusal(FaultRule("PutItem", Fault.ERROR), "")
    assert (error.status, error.code) == (500, "InternalServerError")


@pytest.mark.parametrize(
    ("limit", "code", "member"),
    [
        ("ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException", "ThrottlingReasons"),
        ("AccountLimitExceeded", "RequestLimitExceeded", "ThrottlingReasons"),
        ("KeyRangeThroughputExceeded", "ThrottlingException", "throttlingReasons"),
        ("MaxOnDemandThroughputExceeded", "ThrottlingException", "throttlingReasons"),
    ],
)
def test_a_throttle_names_its_reason_as_its_exception_spells_it(limit, code, member):
    """Clients read the reason from either spelling; two exceptions have one, the third the other."""
    for reason in (f"TableWrite{limit}", f"IndexWrite{limit}"):
        assert reason in WRITE_REASONS
        error = build_refusal(FaultRule("PutItem", Fault.THROTTLE, reason=reason), ARN)
        assert (error.status, error.code) == (400, code)
        assert error.body[member] == [{"reason": reason, "resource": ARN}]


def test_a_denial_is_iams():
    """It names the right that is missing, and on what."""
    error = build_refusal(FaultRule("UpdateItem", Fault.DENY), ARN)
    assert (error.status, error.code) == (400, "AccessDeniedException")
    assert f"dynamodb:UpdateItem on resource: {ARN}" in error.body["Message"]
