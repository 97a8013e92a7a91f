"""What the pages say of the stack, held to what is synthesized: alarms, costs, and the policies that readers copy."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase

import pytest

from hotpartition.core.metrics import MetricName
from hotpartition_cdk.alarms import RUNBOOK
from infra.bundle import ROOT
from infrastructure.apps import App, constructs, imported_table
from infrastructure.template import Template

HOURS = 730
STARTS = HOURS * 60
RUN_SECONDS = 61.5
"""A run of the consumer works until its successor, a minute later, has caught up."""
NODE_HOUR = {"cache.t4g.micro": 0.0128, "cache.t4g.small": 0.0256, "cache.m7g.large": 0.1264}
GIGABYTE_SECOND = 13.33 / 1e6
START = (0.20 + 1.00) / 1e6
RULE = 0.50
BARS = {"lite": 6, "dev": 40, "prod": 250, "SMALL": 40, "PRODUCTION": 110}
"""Dollars a month at most, without the durable log, whose price no page that we could read says."""


def rows_of(page, header):
    """The cells of each row of a page's table."""
    table = (ROOT / "docs" / page).read_text().split(header)[1].split("\n\n")[0]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]


def test_each_alarm_is_on_the_operations_page_with_its_severity(templates):
    """Those of routes that lie in the table, and apart; mail can be sorted by the first words. All name a section."""
    alarms = templates["five"].alarms() | templates["prod"].alarms()
    made = {name: alarm["AlarmDescription"] for name, alarm in alarms.items()}
    rows = rows_of("operations.md", "| Alarm | Severity | It rings when |")
    severities = {name: severity for names, severity, _ in rows for name in re.findall(r"`(\w+)`", names)}
    words = {"Wake somebody": "wake", "Look tomorrow": "tomorrow"}
    assert {name: words[text.partition(".")[0]] for name, text in made.items()} == severities
    assert all(text.endswith(f"See {RUNBOOK}#{name.lower()}") for name, text in made.items())
    headings = set(re.findall(r"^#+ `?([A-Z][A-Za-z]+)`?$", (ROOT / RUNBOOK).read_text(), flags=re.MULTILINE))
    assert {each for each in headings if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", each)} <= severities.keys() <= headings


def test_the_operations_page_names_metrics_that_are_counted():
    """Powertools counts cold starts."""
    rows = rows_of("operations.md", "| Metric | Meaning |")
    named = {name for names, _ in rows for name in re.findall(r"`([\w-]+)…?`", names)}
    assert named - set(MetricName) == {"ColdStart", "Decision-"}


def price_standing(template: Template) -> dict[str, float]:
    """Price a template, in dollars for a month in which nothing happens, without the durable log."""
    nodes = [
        each["NumNodeGroups"] * (1 + each["ReplicasPerNodeGroup"]) * NODE_HOUR[each["CacheNodeType"]]
        for each in template.all("AWS::ElastiCache::ReplicationGroup")
    ]
    consumers = len(template.all("AWS::Scheduler::Schedule"))
    memory_mb = template.function("consume_reports")["MemorySize"] if consumers else 0
    watched = [alarm.get("Metrics", [{"MetricStat": alarm}]) for alarm in template.alarms().values()]
    tables = template.all("AWS::DynamoDB::Table")
    places = [each for table in tables for each in (table, *table.get("GlobalSecondaryIndexes", ()))]
    insights = [place.get("ContributorInsightsSpecification", {}).get("Enabled", False) for place in places]
    return {
        "Redis nodes": HOURS * sum(nodes),
        "consumer, running without pause": STARTS * RUN_SECONDS * memory_mb / 1024 * GIGABYTE_SECOND,
        "starts of the consumer, schedule": STARTS * consumers * START,
        "alarms": sum("MetricStat" in metric for metrics in watched for metric in metrics) * 0.10,
        "dashboard": len(template.all("AWS::CloudWatch::Dashboard")) * 3.00,
        "rules of Contributor Insights": 2 * sum(insights) * RULE,
        # ConsumerStarted, ConsumerLagMs, and ColdStart, each hour.
        "metrics of the consumer's own": 3 * consumers * 0.30,
    }


def in_size(name, folder):
    """Synthesize the construct in one of its sizes."""
    app = App(folder)
    stack = app.stack(name)
    options = getattr(constructs, name).changed({"alarms": {"is_silent": True}})
    constructs.HotPartition(stack, "Hot", table=imported_table(stack), options=options)
    return app.template()


@pytest.mark.parametrize("size", BARS)
def test_the_page_of_costs_says_what_stands(templates, tmp_path, size):
    """Each row of each size, without how many there are, and the sums."""
    standing = price_standing(templates[size] if size in templates else in_size(size, tmp_path))
    columns = ["standing", "formula", "price", *(f"`{name}`" if name.isupper() else name for name in BARS)]
    rows = rows_of("costs.md", f"| {' | '.join(columns)} |")
    column = 3 + list(BARS).index(size)
    found = {cells[0].strip("* "): re.sub(r"^.*: ", "", cells[column]) for cells in rows}
    whole = sum(standing.values())
    expected = {name: f"${dollars:.2f}" if dollars else "-" for name, dollars in standing.items()}
    assert found == {**expected, "all of it": f"**${whole:.0f}**"}
    assert whole <= BARS[size]


def test_the_page_of_costs_names_every_type_of_resource(templates):
    """With what of it costs, or as free."""
    section = (ROOT / "docs/costs.md").read_text().split("## Every resource of the template")[1]
    bodies = [templates[name].body for name in ("dev", "prod", "lite")]
    made = {resource["Type"] for body in bodies for resource in body["Resources"].values()}
    assert sorted(re.findall(r"`(AWS::\w+::\w+)`", section)) == sorted(made)


def statements_of(heading):
    """The statements of the first policy below a heading of the page of security."""
    page = (ROOT / "docs/security.md").read_text().split(heading, 1)[1]
    return json.loads(page.partition("```json")[2].partition("```")[0])["Statement"]


def test_the_documents_policy_admits_one_conversation(templates):
    """Each route of the API for `room-1`, and none for another conversation."""
    (statement,) = statements_of("\n")
    assert (statement["Effect"], statement["Action"]) == ("Allow", "execute-api:Invoke")
    prod = templates["prod"]
    stage = prod.only("AWS::ApiGatewayV2::Stage")["StageName"]
    for route in prod.all("AWS::ApiGatewayV2::Route"):
        method, path = route["RouteKey"].split()
        for conversation in ("room-1", "room-2", "room-10", "room"):
            named = path.format(conversation_id=conversation, message_id="01KAJVZHE0FZ5C1S9TQJ0V3YXM")
            arn = f"arn:aws:execute-api:REGION:ACCOUNT:API_ID/{stage}/{method}{named}"
            admits = any(fnmatchcase(arn, pattern) for pattern in statement["Resource"])
            assert admits is (conversation == "room-1")


def test_the_documents_policy_is_what_the_construct_grants(templates):
    """For a role of one's own, with routes in a table of their own."""
    documented = {
        (action, json.dumps(statement.get("Condition", {}), sort_keys=True))
        for statement in statements_of("## Without Redis")
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    rights = templates["in_band"].rights(templates["in_band"].function("collect"))
    granted = {(action, how) for action, resource, how in rights if "events" not in resource}
    assert documented == granted
