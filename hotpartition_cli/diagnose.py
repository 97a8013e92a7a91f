"""What CloudWatch and Contributor Insights say of a DynamoDB table -> findings and advice.

`Reader` reads it, and writes nothing: `enable_insights` alone changes something, once it was asked for. `diagnose`
judges, and is pure. Its rules are `HOT` and `SHORT_OF`: the cause of refusals, and where they fell -> what it means and
what helps. A hot partition takes two signals: refusals for a key range, and keys that lead them. A key that leads the
traffic alone is traffic concentration. Nothing of hotpartition is advised where capacity, a quota or a maximum is the
cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import zip_longest
from math import ceil
from typing import Any, NamedTuple

from hotpartition_cli.errors import Status, ToolError
from hotpartition_cli.outcomes import Outcome
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
BARS = 60
"""Bars of the line over time."""
LEADS = 0.3
"""A key leads from this share of all refusals, or of all traffic, on."""
KEY_WCU, KEY_RCU = 1_000, 3_000
"""What one partition serves in a second (DynamoDB Developer Guide, "Designing partition keys")."""
TARGET_WCU = 330
"""Load of one shard that `in_band()` and `adaptive()` plan with by default."""
FAR_BELOW = 0.5
"""A provisioned table with less than this share of a partition's limit in its busiest minute is short of capacity."""


class Cause(StrEnum):
    """Why DynamoDB refused; the sixteen throttling reasons fall into these four."""

    KEY_RANGE = "KeyRangeThroughput"
    PROVISIONED = "ProvisionedThroughput"
    ACCOUNT = "AccountLimit"
    MAXIMUM = "MaxOnDemandThroughput"

    def metric(self, operation: str) -> str:
        """Name its metric; `operation` is `Read` or `Write`."""
        return f"{operation}{self}ThrottleEvents"


class Insights(StrEnum):
    """What Contributor Insights counts of a place."""

    OFF = "off"
    THROTTLED = "throttled keys"
    ALL = "accessed and throttled keys"
    UNREADABLE = "not readable"


class Leader(NamedTuple):
    """A key of Contributor Insights, and its share of the accesses, or of the refusals."""

    key: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The table, or one of its indexes, as it was seen.

    `refused` has counts by minute, of reads and writes by cause; `units` the consumed ones. `accessed` and `throttled`
    are the leading keys, the first one first.
    """

    index: str | None = None
    keys: tuple[str, ...] = ("PK",)
    """The names of its key attributes, the partition key first."""
    refused: Mapping[tuple[str, Cause], Sequence[float]]
    units: Mapping[str, Sequence[float]]
    insights: Insights = Insights.OFF
    accessed: tuple[Leader, ...] = ()
    throttled: tuple[Leader, ...] = ()

    def count(self, operation: str, cause: Cause) -> int:
        """Count what was refused."""
        return round(sum(self.refused.get((operation, cause), ())))

    def peak(self, operation: str) -> float:
        """Return the units a second of the busiest minute, refused requests as one unit each."""
        counted = [self.units.get(operation, ()), *(self.refused.get((operation, cause), ()) for cause in Cause)]
        return max(map(sum, zip_longest(*counted, fillvalue=0.0)), default=0.0) / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A table as it was seen, and for how long."""

    table: str
    at: str
    hours: float
    is_provisioned: bool
    places: tuple[Place, ...]
    unknown: tuple[str, ...] = ()
    """What could not be read, and why."""


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
        table = described["TableName"]  # CloudWatch knows no ARN
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


class Rule(NamedTuple):
    """What refusals mean, and what helps; `{…}` are figures of a place (`_figures`). A hot partition alone has code."""

    finding: str
    meaning: str
    advice: str
    code: tuple[str, ...] = ()

    @property
    def is_hot(self) -> bool:
        """Whether a partition is hot."""
        return bool(self.code)


_GROWS = (
    " If {sort} only grows, as a time does, DynamoDB's own split for heat does not help: new items all go to one end."
)
_READ = Rule(
    "read-hot partition",
    "One key range was asked for more reads than a partition serves (3,000 RCU/s).{who}",
    "Keep what is read most in memory; more shards would make each page dearer.",
    ("ReadCache(seconds=1).get(key, load=…)", "ShardedTable(table, shards=adaptive()).query(…, cache=True)"),
)
HOT: Mapping[tuple[str, bool], Rule] = {
    ("Write", False): Rule(
        "hot partition",
        "One key range was asked for more writes than a partition serves (1,000 WCU/s).{who}",
        "Spread the key over shards, by its load or by a number that you set.{grows}",
        ("ShardedTable(table, shards=in_band())", "ShardedTable(table, shards=fixed({n}))"),
    ),
    ("Write", True): Rule(
        "hot index partition",
        "One key range of the index was asked for more writes than a partition serves, and held up the table.{who}",
        "Spread the index's key over shards; the table's own keys may stay.",
        ('ShardedTable(table, shards=fixed(0), indexes=[ShardedIndex("{index}", "{hash}", fixed({n}))])',),
    ),
    ("Read", False): _READ,
    ("Read", True): _READ,
}
"""Refusals for a key range: the operation, and whether an index refused -> what it means."""
SHORT_OF: Mapping[Cause, Rule] = {
    Cause.PROVISIONED: Rule(
        "too little capacity",
        "The provisioned capacity was used up. This is not a hot key.",
        "Raise the provisioned {operation} capacity, let it scale, or switch to on-demand.",
    ),
    Cause.ACCOUNT: Rule(
        "account limit",
        "The account's limit for tables of the region was used up. This is not a hot key.",
        "Ask for a higher quota (Service Quotas, DynamoDB).",
    ),
    Cause.MAXIMUM: Rule(
        "on-demand maximum",
        "The table's own maximum of on-demand {operation} units was reached. This is not a hot key.",
        "Raise the maximum on-demand throughput, if the load is meant.",
    ),
}
"""Refusals for another cause, wherever they fell."""
SMALL = Rule(
    "too little capacity",
    "Refusals name a key range, and the provisioned capacity is used up far below a partition's limit: a small table"
    " has small partitions.",
    "Raise the provisioned {operation} capacity first, and look again.",
)
CONCENTRATED = Rule(
    "traffic concentration",
    "{who} No key range refused anything: this is no hot partition yet.",
    "Nothing is refused. Keep Contributor Insights on, and look again when it is.",
)
NOTHING = Rule(
    "nothing refused",
    "DynamoDB refused nothing in this time.",
    "You do not need hotpartition for this table. Metrics are some minutes late: a rush of now is not seen.",
)
UNUSED = Rule(
    "no data",
    "CloudWatch has no figures of this time: the table was not used, or its metrics are late.",
    "Look again in some minutes, or further back (--hours).",
)


def diagnose(seen: Seen) -> Outcome:
    """Name what was refused, by which keys, and what helps. Status 1 where a partition is hot."""
    findings = [finding for place in seen.places for finding in _findings_of(place, is_provisioned=seen.is_provisioned)]
    if not findings:
        is_used = any(sum(units) for place in seen.places for units in place.units.values())
        findings.append(_describe(NOTHING if is_used else UNUSED, seen.places[0]))
    document = {
        "table": seen.table,
        "at": seen.at,
        "hours": seen.hours,
        "findings": findings,
        "insights": [{"index": place.index, "counts_keys": str(place.insights)} for place in seen.places],
        "unknown": [*seen.unknown, *_unknown_keys(seen)],
    }
    return Outcome(document, Status.FINDING if any(finding["is_hot"] for finding in findings) else Status.FINE)


def _findings_of(place: Place, *, is_provisioned: bool) -> Iterator[dict[str, Any]]:
    for operation, limit in (("Write", KEY_WCU), ("Read", KEY_RCU)):
        is_short = is_provisioned and place.count(operation, Cause.PROVISIONED)
        hot = (
            SMALL if is_short and place.peak(operation) < FAR_BELOW * limit else HOT[operation, place.index is not None]
        )
        for cause in Cause:
            if place.count(operation, cause):
                yield _describe(SHORT_OF.get(cause, hot), place, operation, cause)
    is_refused = any(place.count(operation, Cause.KEY_RANGE) for operation in OPERATIONS)
    if not is_refused and place.accessed and place.accessed[0].share >= LEADS:
        yield _describe(CONCENTRATED, place)


def _describe(rule: Rule, place: Place, operation: str | None = None, cause: Cause | None = None) -> dict[str, Any]:
    by_cause = place.refused.get((operation, cause), ()) if operation and cause else ()
    leaders = place.accessed if rule is CONCENTRATED else place.throttled if rule.is_hot else ()
    figures = _figures(place, operation or "", leaders)
    return {
        "finding": rule.finding,
        "is_hot": rule.is_hot,
        "index": place.index,
        "operation": operation and operation.lower(),
        "cause": cause and str(cause),
        "refused": round(sum(by_cause)),
        "refused_over_time": gather_bars(by_cause),
        "keys": [{"key": leader.key, "share": round(leader.share, 3)} for leader in leaders],
        "meaning": rule.meaning.format(**figures).strip(),
        "advice": rule.advice.format(**figures),
        "code": [line.format(**figures) for line in rule.code],
    }


def _figures(place: Place, operation: str, leaders: Sequence[Leader]) -> dict[str, object]:
    """Build what the rules' sentences name: the index, N, the leading key, the sort key."""
    shares = [each[0].share for each in (place.accessed, leaders) if each]
    who = ""
    if leaders:
        spread = "; no key leads, so neighbours in one range share the load" if leaders[0].share < LEADS else ""
        who = f" {leaders[0].key!r} leads with {leaders[0].share:.0%}{spread}."
    return {
        "index": place.index or "",
        "hash": place.keys[0],
        "n": max(2, ceil(place.peak("Write") * (max(shares, default=0.0) or 1.0) / TARGET_WCU)),
        "operation": operation.lower(),
        "who": who,
        "grows": _GROWS.format(sort=place.keys[1]) if len(place.keys) > 1 else "",
    }


def _unknown_keys(seen: Seen) -> Iterator[str]:
    """Say of each place whose keys are hot which ones cannot be known, and what it takes to know them."""
    for place in seen.places:
        is_hot = any(place.count(operation, Cause.KEY_RANGE) for operation in OPERATIONS)
        if not is_hot or place.throttled:
            continue
        where = f"index {place.index}" if place.index else f"table {seen.table}"
        if place.insights is Insights.OFF:
            yield (
                f"Which keys of the {where} were refused: Contributor Insights is off. `hotpartition diagnose --table"
                f" {seen.table} --enable` turns it on for refused keys; DynamoDB charges for each refused request that"
                " it counts, and nothing while none is."
            )
        elif place.insights is not Insights.UNREADABLE:
            yield f"Which keys of the {where} were refused: Contributor Insights has no report of this time yet."


def gather_bars(minutes: Sequence[float], bars: int = BARS) -> list[int]:
    """Sum counts by minute up to at most `bars` figures, the newest last."""
    width = max(1, ceil(len(minutes) / bars))
    return [round(sum(minutes[start : start + width])) for start in range(0, len(minutes), width)]
