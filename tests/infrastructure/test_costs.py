"""What stands idle, by the list prices of the page of costs: each size's bar, and the page's own table."""

from __future__ import annotations

import re

import pytest

from infrastructure.apps import App, constructs, imported_table
from infrastructure.template import Template

HOURS = 730
STARTS = HOURS * 60
RUN_SECONDS = 61.5
"""A run of the consumer works until its successor, a minute later, has caught up."""
OWN_METRICS = 3
"""Of each consumer, each hour: ConsumerStarted, ConsumerLagMs, and ColdStart."""

NODE_HOUR = {"cache.t4g.micro": 0.0128, "cache.t4g.small": 0.0256, "cache.m7g.large": 0.1264}
GIGABYTE_SECOND = 13.33 / 1e6
START = (0.20 + 1.00) / 1e6
ALARM_METRIC = 0.10
DASHBOARD = 3.00
RULE = 0.50
OWN_METRIC = 0.30

BARS = {"lite": 6, "dev": 40, "prod": 250, "SMALL": 40, "PRODUCTION": 110}
"""Dollars a month at most, without the durable log, whose price no page that we could read says."""


def price_standing(template: Template) -> dict[str, float]:
    """Price a template, in dollars for a month in which nothing happens, without the durable log."""
    nodes = [
        each["NumNodeGroups"] * (1 + each["ReplicasPerNodeGroup"]) * NODE_HOUR[each["CacheNodeType"]]
        for each in template.all("AWS::ElastiCache::ReplicationGroup")
    ]
    consumers = len(template.all("AWS::Scheduler::Schedule"))
    memory_mb = template.function("consume_reports")["MemorySize"] if consumers else 0
    alarms = [alarm.get("Metrics", [{"MetricStat": alarm}]) for alarm in template.alarms().values()]
    watched = sum("MetricStat" in metric for metrics in alarms for metric in metrics)
    tables = template.all("AWS::DynamoDB::Table")
    insights = [
        each.get("ContributorInsightsSpecification", {}).get("Enabled", False)
        for table in tables
        for each in (table, *table.get("GlobalSecondaryIndexes", ()))
    ]
    return {
        "Redis nodes": HOURS * sum(nodes),
        "consumer, running without pause": STARTS * RUN_SECONDS * memory_mb / 1024 * GIGABYTE_SECOND,
        "starts of the consumer, schedule": STARTS * consumers * START,
        "alarms": watched * ALARM_METRIC,
        "dashboard": len(template.all("AWS::CloudWatch::Dashboard")) * DASHBOARD,
        "rules of Contributor Insights": 2 * sum(insights) * RULE,
        "metrics of the consumer's own": OWN_METRICS * consumers * OWN_METRIC,
    }


def in_size(name, folder):
    """Synthesize the construct in one of its sizes."""
    app = App(folder)
    stack = app.stack(name)
    options = getattr(constructs, name).changed({"alarms": {"is_silent": True}})
    constructs.HotPartition(stack, "Hot", table=imported_table(stack), options=options)
    return app.template()


def read_table(page):
    """The cells of the page's table below their sizes, by row, without how many there are."""
    section = page.split("## What stands, used or not")[1].split("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    return {cells[0].strip("* "): [re.sub(r"^.*: ", "", cell) for cell in cells[3:]] for cells in lines if cells[5:]}


@pytest.mark.parametrize("size", BARS)
def test_the_page_says_what_stands(templates, root, tmp_path, size):
    """Each row of each size, and the sums."""
    standing = price_standing(templates[size] if size in templates else in_size(size, tmp_path))
    rows = read_table((root / "docs/costs.md").read_text())
    column = rows["standing"].index(f"`{size}`" if size.isupper() else size)
    found = {name: cells[column] for name, cells in rows.items() if name in standing}
    assert found == {name: f"${dollars:.2f}" if dollars else "-" for name, dollars in standing.items()}
    assert rows["all of it"][column] == f"**${sum(standing.values()):.0f}**"
    assert sum(standing.values()) <= BARS[size]
