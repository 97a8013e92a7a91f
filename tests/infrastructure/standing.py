"""What stands idle in a template, at the list prices of docs/costs.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def price_standing(resources: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Price a template's resources, in dollars for a month in which nothing happens, without the durable log."""

    def of(type_: str) -> list[Mapping[str, Any]]:
        return [each["Properties"] for each in resources.values() if each["Type"] == type_]

    registries = of("AWS::ElastiCache::ReplicationGroup")
    nodes = sum(
        each["NumNodeGroups"] * (1 + each["ReplicasPerNodeGroup"]) * HOURS * NODE_HOUR[each["CacheNodeType"]]
        for each in registries
    )
    consumers = len(of("AWS::Scheduler::Schedule"))
    memory = sum(
        function["MemorySize"]
        for function in of("AWS::Lambda::Function")
        if function.get("Environment", {}).get("Variables", {}).get("POWERTOOLS_SERVICE_NAME") == "consume_reports"
    )
    seconds = STARTS * RUN_SECONDS * consumers * memory / 1024
    watched = sum(
        sum("MetricStat" in metric for metric in alarm.get("Metrics", [{"MetricStat": ...}]))
        for alarm in of("AWS::CloudWatch::Alarm")
    )
    tables = of("AWS::DynamoDB::Table")
    insights = [
        each.get("ContributorInsightsSpecification", {}).get("Enabled", False)
        for table in tables
        for each in (table, *table.get("GlobalSecondaryIndexes", ()))
    ]
    return {
        "Redis nodes": nodes,
        "consumer, running without pause": seconds * GIGABYTE_SECOND,
        "starts of the consumer, schedule": STARTS * consumers * START,
        "alarms": watched * ALARM_METRIC,
        "dashboard": len(of("AWS::CloudWatch::Dashboard")) * DASHBOARD,
        "rules of Contributor Insights": 2 * sum(insights) * RULE,
        "metrics of the consumer's own": OWN_METRICS * consumers * OWN_METRIC,
    }
