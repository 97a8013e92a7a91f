"""Reads what `diagnosis.py` judges: the table, its metrics, and the reports of Contributor Insights. Writes nothing.

`enable_insights` alone changes something, once it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from hotpartition_cli.diagnosis import Cause, Insights, Leader, Place, Seen
from hotpartition_cli.errors import ToolError
from hotpartition_cli.sdk import Subject, open_client, open_session, translated

OPERATIONS = ("Read", "Write")
MINUTE = timedelta(minutes=1)
MOST_KEYS = 10
MOST_METRICS = 500
"""Metrics of one GetMetricData."""
_RIGHTS = "dynamodb:DescribeTable and DescribeContributorInsights, cloudwatch:GetMetricData and GetInsightRuleReport"
_RULES = {"-PKC-": "accessed", "-PKT-": "throttled"}
"""What a rule of partition keys counts, by a part of its name."""

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Reader:
    """Both services, with the caller's credentials."""

    dynamodb: Any
    cloudwatch: Any
    region: str

    @classmethod
    def connect(cls, region: str | None, profile: str | None) -> Reader:
        """Find credentials and region as every AWS tool does."""
        session = open_session(region, profile)
        dynamodb = open_client(session, "dynamodb")
        return cls(dynamodb, open_client(session, "cloudwatch"), dynamodb.meta.region_name)

    def read(self, table: str, hours: float, now: datetime) -> Seen:
        """Read the last hours of a table and its indexes.

        Raises:
            ToolError: there is no such table, or a right is missing.
        """
        described = self._call(table, partial(self.dynamodb.describe_table, TableName=table))["Table"]
        schemas = {None: described["KeySchema"]}
        schemas |= {index["IndexName"]: index["KeySchema"] for index in described.get("GlobalSecondaryIndexes", ())}
        span = now - timedelta(hours=hours), now
        figures = self._read_metrics(table, list(schemas), span)
        places: list[Place] = []
        unknown: list[str] = []
        for index, schema in schemas.items():
            try:
                insights = self._read_insights(table, index, span)
            except ToolError as error:
                insights = {"insights": Insights.UNREADABLE}
                unknown.append(f"Which keys lead: {error}.")
            place = Place(
                index=index,
                keys=tuple(key["AttributeName"] for key in sorted(schema, key=lambda key: key["KeyType"])),
                refused={(o, cause): figures[index, cause.metric(o)] for o in OPERATIONS for cause in Cause},
                units={operation: figures[index, f"Consumed{operation}CapacityUnits"] for operation in OPERATIONS},
                **insights,
            )
            places.append(place)
        return Seen(
            table=table,
            at=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            hours=hours,
            is_provisioned=described.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED") == "PROVISIONED",
            places=tuple(places),
            unknown=tuple(dict.fromkeys(unknown)),
        )

    def enable_insights(self, table: str, seen: Seen) -> list[str]:
        """Have the refused keys counted wherever nothing counts them yet; return where that was switched on."""
        off = [place.index for place in seen.places if place.insights is Insights.OFF]
        change = partial(
            self.dynamodb.update_contributor_insights,
            ContributorInsightsAction="ENABLE",
            ContributorInsightsMode="THROTTLED_KEYS",
        )
        for index in off:
            self._call(table, partial(change, **_name(table, index)), "dynamodb:UpdateContributorInsights")
        return [index or table for index in off]

    def _read_metrics(
        self, table: str, indexes: Sequence[str | None], span: Span
    ) -> Mapping[tuple[str | None, str], list[float]]:
        """Read the sums by minute of every metric, for the table and each index."""
        since, until = span
        names = [cause.metric(operation) for operation in OPERATIONS for cause in Cause]
        names += [f"Consumed{operation}CapacityUnits" for operation in OPERATIONS]
        wanted = {f"m{at}": pair for at, pair in enumerate((index, name) for index in indexes for name in names)}
        minutes = round((until - since) / MINUTE)
        sums = {pair: [0.0] * minutes for pair in wanted.values()}
        ids = list(wanted)
        for start in range(0, len(ids), MOST_METRICS):
            queries = [_build_query(id_, table, *wanted[id_]) for id_ in ids[start : start + MOST_METRICS]]
            read = self.cloudwatch.get_paginator("get_metric_data").paginate(
                MetricDataQueries=queries, StartTime=since, EndTime=until
            )
            pages = self._call(table, partial(list, read))
            for result in (result for page in pages for result in page["MetricDataResults"]):
                for moment, value in zip(result["Timestamps"], result["Values"], strict=True):
                    at = int((moment - since) / MINUTE)
                    if 0 <= at < minutes:
                        sums[wanted[result["Id"]]][at] += value
        return {pair: values if any(values) else [] for pair, values in sums.items()}

    def _read_insights(self, table: str, index: str | None, span: Span) -> dict[str, Any]:
        """Read what Contributor Insights counts of a place, and which keys lead: members of a `Place`."""
        describe = partial(self.dynamodb.describe_contributor_insights, **_name(table, index))
        found = self._call(table, describe)
        if found.get("ContributorInsightsStatus") not in {"ENABLED", "ENABLING"}:
            return {"insights": Insights.OFF}
        is_partly = found.get("ContributorInsightsMode") == "THROTTLED_KEYS"
        rules = found.get("ContributorInsightsRuleList", ())
        known = [(counted, rule) for rule in rules for part, counted in _RULES.items() if part in rule]
        leaders = {counted: self._read_leaders(table, rule, span) for counted, rule in known}
        return {"insights": Insights.THROTTLED if is_partly else Insights.ALL, **leaders}

    def _read_leaders(self, table: str, rule: str, span: Span) -> tuple[Leader, ...]:
        """Read the keys that lead a rule, each with its share."""
        since, until = span
        ask = partial(self.cloudwatch.get_insight_rule_report, RuleName=rule, StartTime=since, EndTime=until)
        report = self._call(table, partial(ask, Period=60, MaxContributorCount=MOST_KEYS, OrderBy="Sum"))
        total = report.get("AggregateValue") or 0.0
        listed = [(each["Keys"][0], each["ApproximateAggregateValue"]) for each in report.get("Contributors", ())]
        return tuple(Leader(key, min(1.0, value / total)) for key, value in listed) if total else ()

    def _call(self, table: str, call: Callable[[], Any], right: str = _RIGHTS) -> Any:
        subject = Subject("AWS", "table", table, right, "--table takes the name of a table")
        return translated(call, subject, self.region)


def _name(table: str, index: str | None) -> dict[str, str]:
    return {"TableName": table, **({"IndexName": index} if index else {})}


def _build_query(id_: str, table: str, index: str | None, name: str) -> dict[str, Any]:
    dimensions = [{"Name": "TableName", "Value": table}]
    dimensions += [{"Name": "GlobalSecondaryIndexName", "Value": index}] if index else []
    metric = {"Namespace": "AWS/DynamoDB", "MetricName": name, "Dimensions": dimensions}
    return {"Id": id_, "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}}
