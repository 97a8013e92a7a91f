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
_MODES = {"THROTTLED_KEYS": Insights.THROTTLED, "ACCESSED_AND_THROTTLED_KEYS": Insights.ALL}


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
        described = self._call(table, lambda: self.dynamodb.describe_table(TableName=table))["Table"]
        keys = {None: described["KeySchema"]}
        keys |= {index["IndexName"]: index["KeySchema"] for index in described.get("GlobalSecondaryIndexes", ())}
        since, until = now - timedelta(hours=hours), now
        figures = self._read_metrics(table, list(keys), since, until)
        unknown: list[str] = []
        places = tuple(
            self._read_place(table, index, schema, figures, (since, until), unknown) for index, schema in keys.items()
        )
        billing = described.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
        at = now.isoformat(timespec="seconds").replace("+00:00", "Z")
        return Seen(
            table=table,
            at=at,
            hours=hours,
            is_provisioned=billing == "PROVISIONED",
            places=places,
            unknown=tuple(dict.fromkeys(unknown)),
        )

    def enable_insights(self, table: str, seen: Seen) -> list[str]:
        """Have the refused keys counted wherever nothing counts them yet; return where that was switched on."""
        off = [place for place in seen.places if place.insights is Insights.OFF]
        for place in off:
            named = {"IndexName": place.index} if place.index else {}
            change = partial(
                self.dynamodb.update_contributor_insights,
                TableName=table,
                ContributorInsightsAction="ENABLE",
                ContributorInsightsMode="THROTTLED_KEYS",
                **named,
            )
            self._call(table, change, "dynamodb:UpdateContributorInsights")
        return [place.index or table for place in off]

    def _read_metrics(
        self, table: str, indexes: Sequence[str | None], since: datetime, until: datetime
    ) -> Mapping[tuple[str | None, str], list[float]]:
        """Read the sums by minute of every metric, for the table and each index."""
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

    def _read_place(
        self,
        table: str,
        index: str | None,
        schema: Sequence[Mapping[str, str]],
        figures: Mapping[tuple[str | None, str], list[float]],
        span: tuple[datetime, datetime],
        unknown: list[str],
    ) -> Place:
        insights = Insights.UNREADABLE
        leaders: dict[str, tuple[Leader, ...]] = {}
        try:
            insights, rules = self._find_rules(table, index)
            leaders = {rule: self._read_leaders(table, rule, span) for rule in rules}
        except ToolError as error:
            unknown.append(f"Which keys lead: {error}.")
        return Place(
            index=index,
            keys=tuple(key["AttributeName"] for key in sorted(schema, key=lambda key: key["KeyType"])),
            refused={(o, cause): figures[index, cause.metric(o)] for o in OPERATIONS for cause in Cause},
            units={operation: figures[index, f"Consumed{operation}CapacityUnits"] for operation in OPERATIONS},
            insights=insights,
            accessed=_pick(leaders, "-PKC-"),
            throttled=_pick(leaders, "-PKT-"),
        )

    def _find_rules(self, table: str, index: str | None) -> tuple[Insights, Sequence[str]]:
        named = {"IndexName": index} if index else {}
        described = self._call(table, lambda: self.dynamodb.describe_contributor_insights(TableName=table, **named))
        if described.get("ContributorInsightsStatus") not in {"ENABLED", "ENABLING"}:
            return Insights.OFF, ()
        mode = _MODES.get(described.get("ContributorInsightsMode", ""), Insights.ALL)
        return mode, described.get("ContributorInsightsRuleList", ())

    def _read_leaders(self, table: str, rule: str, span: tuple[datetime, datetime]) -> tuple[Leader, ...]:
        """Read the keys that lead a rule of partition keys, each with its share."""
        if "-PKC-" not in rule and "-PKT-" not in rule:
            return ()
        since, until = span
        report = self._call(
            table,
            lambda: self.cloudwatch.get_insight_rule_report(
                RuleName=rule, StartTime=since, EndTime=until, Period=60, MaxContributorCount=MOST_KEYS, OrderBy="Sum"
            ),
        )
        total = report.get("AggregateValue") or 0.0
        listed = [(each["Keys"][0], each["ApproximateAggregateValue"]) for each in report.get("Contributors", ())]
        return tuple(Leader(key, min(1.0, value / total)) for key, value in listed) if total else ()

    def _call(self, table: str, call: Callable[[], Any], right: str = _RIGHTS) -> Any:
        subject = Subject("AWS", "table", table, right, "--table takes the name of a table")
        return translated(call, subject, self.region)


def _build_query(id_: str, table: str, index: str | None, name: str) -> dict[str, Any]:
    dimensions = [{"Name": "TableName", "Value": table}]
    dimensions += [{"Name": "GlobalSecondaryIndexName", "Value": index}] if index else []
    metric = {"Namespace": "AWS/DynamoDB", "MetricName": name, "Dimensions": dimensions}
    return {"Id": id_, "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}}


def _pick(leaders: Mapping[str, tuple[Leader, ...]], kind: str) -> tuple[Leader, ...]:
    return next((found for rule, found in leaders.items() if kind in rule), ())
