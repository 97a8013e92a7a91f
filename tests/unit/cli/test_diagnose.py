"""`diagnose`: seventeen situations and what is said of each; and what is read for it, over botocore's stubs."""

import io
import json
import re
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.stub import ANY, Stubber

import hotpartition
from hotpartition_cli.diagnose import HOT, SHORT_OF, Cause, Insights, Leader, Place, Reader, Seen, diagnose, gather_bars
from hotpartition_cli.errors import FailedError, Status
from hotpartition_cli.main import run
from hotpartition_cli.views import VIEWS, draw_bars

AT = datetime(2026, 11, 24, 18, 0, tzinfo=UTC)
RANGE, PROVISIONED, ACCOUNT, MAXIMUM = Cause
ONE, FEW = (Leader("room-1", 0.9),), (Leader("room-1", 0.1),)


def place(write=None, read=None, units=60_000.0, index=None, insights=Insights.ALL, **leaders):
    """What was refused in one minute, by cause, and units consumed in it."""
    counts = {("Write", cause): (count,) for cause, count in (write or {}).items()}
    counts |= {("Read", cause): (count,) for cause, count in (read or {}).items()}
    return Place(
        index=index, keys=("PK", "SK"), refused=counts, units={"Write": (units,)}, insights=insights, **leaders
    )


def seen(*places, is_provisioned=False):
    return Seen(table="readings", at="now", hours=1.0, is_provisioned=is_provisioned, places=places)


def provisioned(*places):
    return seen(*places, is_provisioned=True)


SHORT, HOT_WRITES, HOT_READS = "too little capacity", "hot partition", "read-hot partition"
INDEX, HOT_INDEX = {"index": "by-owner"}, "hot index partition"
BOTH = {PROVISIONED: 60, RANGE: 60}
ROOM_1, RATHER_SMALL = "'room-1' leads with 90%.", "far below a partition's limit"
# What was seen; the findings; what the text says.
SITUATIONS = {
    "one key is written too fast": (seen(place({RANGE: 9}, throttled=ONE, accessed=ONE)), [HOT_WRITES], ROOM_1),
    "neighbours share the load": (seen(place({RANGE: 9}, throttled=FEW)), [HOT_WRITES], "no key leads"),
    "nothing counts keys": (seen(place({RANGE: 9}, insights=Insights.OFF)), [HOT_WRITES], "--enable"),
    "insights have no report yet": (seen(place({RANGE: 9})), [HOT_WRITES], "no report of this time yet"),
    "an index is written too fast": (seen(place(), place({RANGE: 9}, **INDEX)), [HOT_INDEX], "ShardedIndex"),
    "one key is read too fast": (seen(place(read={RANGE: 9}, throttled=ONE)), [HOT_READS], "ReadCache"),
    "an index is read too fast": (seen(place(), place(read={RANGE: 9}, **INDEX)), [HOT_READS], "3,000 RCU/s"),
    "both are too fast": (seen(place({RANGE: 6}, {RANGE: 6})), [HOT_WRITES, HOT_READS], "fixed("),
    "capacity is used up": (provisioned(place({PROVISIONED: 9})), [SHORT], "provisioned write capacity"),
    "a table has small partitions": (provisioned(place(BOTH, units=300)), [SHORT, SHORT], RATHER_SMALL),
    "capacity and a hot key": (provisioned(place(BOTH)), [HOT_WRITES, SHORT], "in_band()"),
    "capacity is left": (provisioned(place({RANGE: 60}, units=300)), [HOT_WRITES], "in_band()"),
    "the account's limit is reached": (seen(place({ACCOUNT: 9})), ["account limit"], "higher quota"),
    "the table's maximum is reached": (seen(place(read={MAXIMUM: 6})), ["on-demand maximum"], "read units"),
    "a key leads, nothing is refused": (
        seen(place(accessed=ONE)),
        ["traffic concentration"],
        "'room-1' leads with 90%",
    ),
    "nothing is refused": (seen(place(accessed=FEW)), ["nothing refused"], "You do not need hotpartition"),
    "nothing was used": (seen(place(units=0)), ["no data"], "--hours"),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_has_its_finding_and_its_advice(situation):
    """And a status: 1 where a partition is hot, whatever else is short."""
    given, findings, said = SITUATIONS[situation]
    outcome = diagnose(given)
    is_hot = {HOT_WRITES, HOT_READS, HOT_INDEX} & set(findings)
    assert outcome.status is (Status.FINDING if is_hot else Status.FINE)
    assert [finding["finding"] for finding in outcome.document["findings"]] == findings
    text = "\n".join(str(part) for part in VIEWS["diagnose"](outcome.document).renderables)
    assert said in text


def test_each_advice_names_what_there_is():
    """Public names alone; and every cause has its rule."""
    code = " ".join(line for rule in HOT.values() for line in rule.code)
    named = set(re.findall(r"(?<![.\w])([A-Za-z_]+)\(", code))
    assert named
    assert named <= set(hotpartition.__all__)
    assert all(rule.is_hot for rule in HOT.values())
    assert SHORT_OF.keys() == {*Cause} - {RANGE}
    assert not any(rule.is_hot for rule in SHORT_OF.values())


@pytest.mark.parametrize(("units", "share", "n"), [(60_000, 1.0, 4), (60_000, 0.5, 2), (300_000, 0.9, 14)])
def test_n_is_what_the_leading_keys_load_asks_for(units, share, n):
    """330 WCU/s for each shard; the busiest minute, refused writes included."""
    given = seen(place({RANGE: 60}, units=units, throttled=(Leader("room-1", share),)))
    assert f"fixed({n})" in diagnose(given).document["findings"][0]["code"][1]


def test_counts_over_time_are_bars():
    """At most sixty; zero is a dot."""
    assert gather_bars([1.0] * 120) == [2] * 60
    assert draw_bars([0, 1, 4, 8]) == "·▁▄█"
    assert draw_bars([]) == ""


@pytest.fixture
def reader(aws_environment):
    dynamodb, cloudwatch = (boto3.client(name, region_name="eu-central-1") for name in ("dynamodb", "cloudwatch"))
    with Stubber(dynamodb) as tables, Stubber(cloudwatch) as metrics:
        yield Reader(dynamodb, cloudwatch, "eu-central-1"), tables, metrics
        tables.assert_no_pending_responses()


KEYS = [{"AttributeName": "SK", "KeyType": "RANGE"}, {"AttributeName": "PK", "KeyType": "HASH"}]
TABLE = {"TableName": "readings", "KeySchema": KEYS, "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"}}
NAMED = {"TableName": "readings"}
RULE = "DynamoDBContributorInsights-PKT-readings-1"
ON = {
    "ContributorInsightsStatus": "ENABLED",
    "ContributorInsightsMode": "THROTTLED_KEYS",
    "ContributorInsightsRuleList": [RULE, "DynamoDBContributorInsights-SKT-readings-1"],
}
LEADING = [{"Keys": ["room-1"], "ApproximateAggregateValue": 40.0, "Datapoints": []}]


def test_a_table_is_read_by_read_rights_alone(reader):
    """Metrics of each minute, in parts; the mode of Contributor Insights; the keys that lead, with their share."""
    reads, tables, metrics = reader
    counted = {"Id": "m4", "Timestamps": [AT - timedelta(minutes=2)], "Values": [50.0]}
    span = dict.fromkeys(("StartTime", "EndTime", "Period", "MaxContributorCount", "OrderBy"), ANY)
    arn = "arn:aws:dynamodb:eu-central-1:1:table/readings"
    tables.add_response("describe_table", {"Table": TABLE}, {"TableName": arn})
    tables.add_response("describe_contributor_insights", ON, NAMED)
    metrics.add_response("get_metric_data", {"MetricDataResults": [], "NextToken": "t"})
    metrics.add_response("get_metric_data", {"MetricDataResults": [counted]})
    report = {"AggregateValue": 50.0, "Contributors": LEADING}
    metrics.add_response("get_insight_rule_report", report, {"RuleName": RULE, **span})
    found = reads.read(arn, 1.0, AT)
    (table,) = found.places
    assert found.table == "readings"
    assert (table.keys, table.insights, found.is_provisioned) == (("PK", "SK"), Insights.THROTTLED, False)
    assert table.throttled == (Leader("room-1", 0.8),)
    assert list(table.refused["Write", RANGE]) == [0.0] * 58 + [50.0, 0.0]


def test_a_right_that_is_missing_is_said_and_the_rest_is_shown(reader):
    """Of keys only; without the table's description nothing can be said."""
    reads, tables, metrics = reader
    tables.add_response("describe_table", {"Table": TABLE})
    metrics.add_response("get_metric_data", {"MetricDataResults": []})
    tables.add_client_error("describe_contributor_insights", "AccessDeniedException", "no", 400)
    found = reads.read("readings", 1.0, AT)
    assert found.places[0].insights is Insights.UNREADABLE
    assert "DescribeContributorInsights" in found.unknown[0]
    tables.add_client_error("describe_table", "ResourceNotFoundException", "no", 400)
    with pytest.raises(FailedError, match="there is no table readings in eu-central-1"):
        reads.read("readings", 1.0, AT)


@pytest.mark.parametrize("answer", ["n", "y"])
def test_the_command_asks_before_it_switches_anything_on(reader, capsys, monkeypatch, answer):
    """For refused keys, the mode that may stay on, where nothing counts; it prints one document, also without a table.

    The index counts already.
    """
    reads, tables, metrics = reader
    monkeypatch.setattr(Reader, "connect", lambda *_, **__: reads)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
    index = {"IndexName": "by-owner", "KeySchema": KEYS}
    tables.add_response("describe_table", {"Table": {**TABLE, "GlobalSecondaryIndexes": [index]}})
    metrics.add_response("get_metric_data", {"MetricDataResults": []})
    for status in ("DISABLED", "ENABLED"):
        tables.add_response("describe_contributor_insights", {"ContributorInsightsStatus": status})
    if answer == "y":
        wanted = {"ContributorInsightsAction": "ENABLE", "ContributorInsightsMode": "THROTTLED_KEYS"}
        enabling = {"ContributorInsightsStatus": "ENABLING"}
        tables.add_response("update_contributor_insights", enabling, {**NAMED, **wanted})
    assert run(["diagnose", "--table", "readings", "--enable"], {}, now=lambda: AT) == Status.FINE
    captured = capsys.readouterr()
    assert captured.out.startswith("no data, table readings")
    assert "Count the refused keys of readings" in captured.err
    assert ("of readings from now on" in captured.err) == (answer == "y")
    tables.add_client_error("describe_table", "ResourceNotFoundException", "no", 400)
    assert run(["diagnose", "--table", "elsewhere", "--json"], {}) == Status.FAILED
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "not-found"
