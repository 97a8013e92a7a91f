"""Several consumers share the report streams, where the option `consumers` asks for them."""

from __future__ import annotations

import json
from copy import deepcopy

from hotpartition.core.shares import Share, list_shares

SCHEDULE = "AWS::Scheduler::Schedule"


def test_each_share_has_a_schedule(staging, prod):
    """It starts the same function, with its share in the event, for whose runs concurrency is reserved."""
    schedules = deepcopy(staging.all(SCHEDULE))
    events = [json.loads(schedule["Target"].pop("Input")) for schedule in schedules]
    assert [Share.decode(event) for event in events] == list(list_shares(2))
    assert {event["time"] for event in events} == {"<aws.scheduler.scheduled-time>"}
    assert schedules == [prod.only(SCHEDULE)] * 2
    assert set(prod.of_type(SCHEDULE)) < set(staging.of_type(SCHEDULE))
    assert staging.function("consume_reports")["ReservedConcurrentExecutions"] == 8


def test_each_share_is_missed(staging):
    """By an alarm of its own, so that the others do not cover it up."""
    alarms = [
        a["Properties"] for id_, a in staging.of_type("AWS::CloudWatch::Alarm").items() if "ConsumerMissing" in id_
    ]
    watched = [{d["Name"]: d["Value"] for d in alarm["Dimensions"]} for alarm in alarms]
    assert watched == [{"service": "consume_reports", "share": str(index)} for index in range(2)]
    assert {(a["MetricName"], a["Threshold"], a["TreatMissingData"]) for a in alarms} == {
        ("ConsumerStarted", 1, "breaching")
    }
    assert {a["AlarmDescription"].rpartition("#")[2] for a in alarms} == {"consumermissing"}
