"""The alarms: each watches a metric that exists, says what it means, and has its section in the documents."""

from __future__ import annotations

import json
import re

import pytest

from hotpartition.core.metrics import MetricName
from hotpartition_cdk.alarms import MAX_METRICS, RUNBOOK, Watched, list_alarms
from infrastructure.template import FUNCTIONS, short_name


@pytest.fixture(scope="module")
def severities(root):
    """The alarms that the operations page names: `wake` or `tomorrow`. An alarm is named there and in the code."""
    rows = rows_of(root, "| Alarm | Severity | It rings when |")
    return {name: severity for names, severity, _ in rows for name in re.findall(r"`(\w+)`", names)}


def test_each_alarm_is_on_the_operations_page_with_its_severity(prod, severities):
    """Those of a table whose routes lie in it, and apart. Mail can be sorted by the first words."""
    names = {"name": "n", "table": "t", "journal": "j", "index": "", "nodes": "n", "api": "a"}
    apart = list_alarms(Watched(**names, functions=dict.fromkeys(FUNCTIONS, "f"), has_consumer=True), slow_request_ms=1)
    made = {alarm.name: alarm.describe() for alarm in apart}
    made |= {name: alarm["AlarmDescription"] for name, alarm in prod.alarms().items()}
    words = {"Wake somebody": "wake", "Look tomorrow": "tomorrow"}
    assert {name: words[text.partition(".")[0]] for name, text in made.items()} == severities
    assert made.keys() - prod.alarms().keys() == {"JournalThrottled"}
    assert made.keys() - {alarm.name for alarm in apart} == {"IndexThrottled"}


def test_all_publish_and_say_which_section_to_open(template):
    """When each begins and when it ends."""
    (topic,) = template.of_type("AWS::SNS::Topic")
    stack = template.only("AWS::CloudWatch::Dashboard")["DashboardName"]
    for name, alarm in template.alarms().items():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": topic}]
        assert alarm["AlarmName"] == f"{stack}-{name}"
        assert alarm["AlarmDescription"].endswith(f"See {RUNBOOK}#{name.lower()}")


def stats_of(alarm):
    """What a synthesized alarm watches."""
    return [m["MetricStat"]["Metric"] for m in alarm.get("Metrics", []) if "MetricStat" in m] or [alarm]


def test_own_metrics_are_the_stack_s_alone(template):
    """Alarms and dashboard watch the namespace that this stack's functions write to: its name, no other stack's."""
    stack = template.only("AWS::CloudWatch::Dashboard")["DashboardName"]
    assert {template.variables(folder)["POWERTOOLS_METRICS_NAMESPACE"] for folder in FUNCTIONS} == {stack}
    stats = [s for alarm in template.all("AWS::CloudWatch::Alarm") for s in stats_of(alarm)]
    own = [s for s in stats if not s["Namespace"].startswith("AWS/")]
    assert {s["Namespace"] for s in own} == {stack}
    # Under the one dimension that Powertools gives: any other alarm would never ring.
    assert len({s["MetricName"] for s in own}) > 5
    assert {s["MetricName"] for s in own} <= set(MetricName)
    dimensions = [(each["Name"], each["Value"]) for s in own for each in s["Dimensions"]]
    assert len(dimensions) == len(own)
    assert set(dimensions) <= {("service", folder) for folder in FUNCTIONS}
    assert f'"{stack}"' in json.dumps(template.only("AWS::CloudWatch::Dashboard")["DashboardBody"]).replace("\\", "")


def metrics_in(alarm):
    """The CloudWatch metrics of a synthesized alarm: name and dimensions."""
    return [(s["MetricName"], {d["Name"]: short_name(d["Value"]) for d in s["Dimensions"]}) for s in stats_of(alarm)]


def test_dimensions_name_the_stack_s_own_resources(prod):
    """Table, index, API, functions and each node of the registry, by what CloudFormation calls them."""
    made = {name: metrics_in(alarm) for name, alarm in prod.alarms().items()}
    (api,) = prod.of_type("AWS::ApiGatewayV2::Api")
    table = {"TableName": "${Table}"}
    stage = {"ApiId": f"${{{api}}}", "Stage": "$default"}
    index = {**table, "GlobalSecondaryIndexName": "routing-index"}
    functions = [{"FunctionName": f"${{{prod.function_id(folder)}}}"} for folder in FUNCTIONS]
    nodes = [f"${{Registry}}-0001-{node:03d}" for node in (1, 2)]
    assert made["TableWritesThrottled"] == [("WriteKeyRangeThroughputThrottleEvents", table)]
    assert ("ReadKeyRangeThroughputThrottleEvents", index) in made["IndexThrottled"]
    assert made["ApiFailing"] == [("5xx", stage), ("Count", stage)]
    assert made["FunctionErrors"] == [("Errors", function) for function in functions]
    assert made["RegistryRefusals"] == [
        (f"{kind}Failures", {"CacheClusterId": node})
        for node in nodes
        for kind in ("Authentication", "CommandAuthorization")
    ]


def test_silence_of_the_consumer_rings(prod):
    """No data from the consumer is the trouble itself; no other missing data is."""
    missing = {name: alarm["TreatMissingData"] for name, alarm in prod.alarms().items()}
    assert {name for name, treatment in missing.items() if treatment == "breaching"} == {"ConsumerMissing"}
    assert set(missing.values()) == {"breaching", "notBreaching"}


def test_expressions_count_missing_data_as_none(prod):
    """A sum over functions is there although one of them counted nothing."""
    metrics = prod.alarms()["RegistryUnreachable"]["Metrics"]
    (expression,) = [m["Expression"] for m in metrics if "Expression" in m]
    assert expression.count("FILL(") == len(FUNCTIONS)


def test_no_alarm_watches_more_than_cloudwatch_takes(changed):
    """Twelve nodes are two alarms of one metric and three of two, which share their section."""
    alarms = changed.alarms()
    assert max(len(stats_of(alarm)) for alarm in alarms.values()) == MAX_METRICS
    watched = {name: len(stats_of(alarm)) for name, alarm in alarms.items()}
    assert [watched[name] for name in ("RegistryMemory", "RegistryMemory2")] == [10, 2]
    assert [watched[f"RegistryRefusals{number}"] for number in ("", 2, 3)] == [10, 10, 4]
    sections = {alarms[name]["AlarmDescription"].rpartition("#")[2] for name in alarms if "Refusals" in name}
    assert sections == {"registryrefusals"}


def rows_of(root, header):
    """The cells of each row of a table of the operations page."""
    table = (root / "docs/operations.md").read_text().split(header)[1].split("\n\n")[0]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]


def test_no_row_of_the_operations_page_outlives_its_metric(root):
    """The other way round is a test of the documents. Powertools counts cold starts."""
    rows = rows_of(root, "| Metric | Meaning |")
    named = {name for names, _ in rows for name in re.findall(r"`([\w-]+)…?`", names)}
    assert named - set(MetricName) == {"ColdStart", "Decision-"}


def test_every_alarm_is_a_section_of_the_runbook_and_the_other_way_round(root, severities):
    """What to do stands under the alarm's own name."""
    text = (root / RUNBOOK).read_text()
    headings = set(re.findall(r"^#+ `?([A-Z][A-Za-z]+)`?$", text, flags=re.MULTILINE))
    assert headings >= severities.keys()
    looks_like_an_alarm = {h for h in headings if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", h)}
    assert looks_like_an_alarm <= severities.keys()


def test_every_widget_of_the_dashboard_is_explained_and_no_other(prod, root):
    """By its title, in the dashboard's order."""
    body = short_name(prod.only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    titles = [json.loads(f'"{title}"') for title in re.findall(r'"title":"([^"]*)"', body)]
    assert [title for title, _ in rows_of(root, "| Widget | How to read it |")] == titles
