"""Every alarm as plain data: its metrics, its meaning, and the runbook's section of the same name.

`monitoring.py` makes CloudWatch alarms of it; tests hold the documents to it. Thresholds are for "a person should
look", not for "something happened": a rush is throttled for a second or two before it is cured, which rings nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hotpartition.core.metrics import MetricName

RUNBOOK = "docs/runbook.md"

WRITER = "write_message"
READER = "read_messages"
CONSUMER = "consume_reports"
"""The functions with metrics of their own, by their folders."""

MAX_METRICS = 10
"""An alarm on an expression takes no more metrics (CloudWatch, "Metric math")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The resources that are watched, by the names that CloudFormation fills in; functions by their folders.

    With `name` the names of alarms begin, and it is the namespace of the functions' own metrics: two stacks in one
    account and region do not ring each other's alarms. The one dimension of those metrics is `service`, the folder.

    Without an index the routing items have the journal to themselves; without a consumer there is no Redis.
    """

    name: str
    table: str
    journal: str
    index: str
    functions: Mapping[str, str]
    has_consumer: bool = False
    nodes: Sequence[str] = ()
    api: str = ""

    def own(self, metric: MetricName, folder: str) -> Metric:
        """Name a function's own metric."""
        statistic = "Maximum" if metric is MetricName.CONSUMER_LAG_MS else "Sum"
        return Metric(namespace=self.name, name=str(metric), statistic=statistic, dimensions={"service": folder})


class Severity(StrEnum):
    """How soon people must act; its value begins the alarm's description."""

    WAKE = "Wake somebody."
    """Requests are refused now, pages could have gaps, or a rush would not be noticed."""
    LOOK = "Look tomorrow."
    """Its effects on clients, if any, have an alarm of their own that wakes."""


class Combination(StrEnum):
    """How several metrics become one."""

    SUM = "sum"
    MAXIMUM = "maximum"
    PERCENTAGE = "percentage"
    """The first as a share of the second, in %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric, in CloudWatch's words."""

    namespace: str
    name: str
    statistic: str
    dimensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One alarm.

    Attributes:
        name: Its name after the stack's, and the heading of its section in the runbook.
        meaning: The problem that it reports, in a sentence or two.
        threshold: At least this rings; with `is_lack`, less than this does.
        is_lack: Whether it rings for too little. Then it rings for missing data as well.
        period_minutes: How long each value is gathered.
        periods: How many values are looked at.
        breaching: How many of them must be wrong; 0 stands for all.
    """

    name: str
    meaning: str
    metrics: tuple[Metric, ...]
    severity: Severity = Severity.LOOK
    combination: Combination = Combination.SUM
    threshold: float = 1
    is_lack: bool = False
    period_minutes: int = 1
    periods: int = 1
    breaching: int = 0

    def describe(self, runbook: str = RUNBOOK) -> str:
        """Write the text that CloudWatch shows and sends, with the alarm's section of the runbook."""
        # One of several over many nodes carries a number, its section does not.
        section = self.name.rstrip("0123456789").lower()
        return f"{self.severity} {self.meaning} See {runbook}#{section}"


def list_alarms(watched: Watched, *, slow_request_ms: int = 0) -> tuple[Alarm, ...]:
    """List the alarms; `slow_request_ms` is the latency that 1 % of an API's requests may exceed."""
    return (
        *_of_table(watched.table),
        _of_index(watched) if watched.index else _of_journal(watched),
        _of_limits(watched.table),
        *(_of_api(watched.api, slow_request_ms) if watched.api else ()),
        *(_of_detection(watched) if watched.has_consumer else ()),
        _of_routing_items(watched),
        *_of_functions(watched.functions.values()),
        *_of_registry(watched.nodes),
    )


def _of_table(table: str) -> Iterator[Alarm]:
    yield Alarm(
        name="TableWritesThrottled",
        meaning="Writes to one partition of the table have been refused for five minutes: salting has not cured it.",
        metrics=(_dynamodb("WriteKeyRangeThroughputThrottleEvents", TableName=table),),
        severity=Severity.WAKE,
        periods=5,
    )
    yield Alarm(
        name="TableReadsThrottled",
        meaning="Reads of one partition of the table have been refused for five minutes: a key of it is read-hot.",
        metrics=(_dynamodb("ReadKeyRangeThroughputThrottleEvents", TableName=table),),
        severity=Severity.WAKE,
        periods=5,
    )


def _of_index(watched: Watched) -> Alarm:
    names = {"TableName": watched.table, "GlobalSecondaryIndexName": watched.index}
    return Alarm(
        name="IndexThrottled",
        meaning="A partition of the routing index refuses requests: raises, or a rebuild of the registry, are held up.",
        metrics=tuple(_dynamodb(f"{kind}KeyRangeThroughputThrottleEvents", **names) for kind in ("Write", "Read")),
        periods=3,
    )


def _of_journal(watched: Watched) -> Alarm:
    return Alarm(
        name="JournalThrottled",
        meaning="The table of the routes refuses requests: raises, reads and changes are held up.",
        metrics=tuple(_dynamodb(f"{kind}ThrottleEvents", TableName=watched.journal) for kind in ("Write", "Read")),
        severity=Severity.WAKE,
        periods=3,
    )


def _of_limits(table: str) -> Alarm:
    return Alarm(
        name="TableLimitReached",
        meaning="DynamoDB refuses requests for the table's on-demand maximum or the account's quota, which no salting"
        " cures.",
        metrics=tuple(
            _dynamodb(f"{kind}{limit}ThrottleEvents", TableName=table)
            for kind in ("Write", "Read")
            for limit in ("MaxOnDemandThroughput", "AccountLimit")
        ),
        severity=Severity.WAKE,
    )


def _of_api(api: str, slow_request_ms: int) -> Iterator[Alarm]:
    """Watch all routes together: the API's access log names the route."""
    dimensions = {"ApiId": api, "Stage": "$default"}

    def metric(name: str, statistic: str) -> Metric:
        return Metric(namespace="AWS/ApiGateway", name=name, statistic=statistic, dimensions=dimensions)

    yield Alarm(
        name="ApiFailing",
        meaning="More than 1 % of the API's requests got a 5xx response.",
        metrics=(metric("5xx", "Sum"), metric("Count", "Sum")),
        severity=Severity.WAKE,
        combination=Combination.PERCENTAGE,
        threshold=1,
        periods=5,
        breaching=3,
    )
    yield Alarm(
        name="ApiSlow",
        meaning=f"1 % of the API's requests have taken {slow_request_ms} ms or more for five minutes.",
        metrics=(metric("Latency", "p99"),),
        threshold=slow_request_ms,
        periods=5,
    )


def _of_detection(watched: Watched) -> Iterator[Alarm]:
    yield Alarm(
        name="ConsumerMissing",
        meaning="No stream consumer has started for five minutes: hot keys stay throttled.",
        metrics=(watched.own(MetricName.CONSUMER_STARTED, CONSUMER),),
        severity=Severity.WAKE,
        is_lack=True,
        period_minutes=5,
    )
    yield Alarm(
        name="ConsumerBehind",
        meaning="The stream consumer has decided on reports more than five seconds old for three minutes.",
        metrics=(watched.own(MetricName.CONSUMER_LAG_MS, CONSUMER),),
        threshold=5000,
        periods=3,
    )
    yield Alarm(
        name="RegistryUnreachable",
        meaning="Calls to Redis have failed in each of five minutes: routes come from the journal, no heat is seen.",
        metrics=tuple(watched.own(MetricName.REGISTRY_UNAVAILABLE, folder) for folder in watched.functions),
        severity=Severity.WAKE,
        periods=5,
    )
    yield Alarm(
        name="RaisesLimited",
        meaning="A partition key is hot and is not raised: it has max_shard_count shards, or the hour had"
        " max_raises_per_hour raises.",
        metrics=(
            watched.own(MetricName.DECISION_AT_CAP, CONSUMER),
            watched.own(MetricName.DECISION_TOO_MANY, CONSUMER),
        ),
        severity=Severity.WAKE,
    )
    if READER in watched.functions:
        yield Alarm(
            name="RegistryAhead",
            meaning="Redis knew a route that the journal did not: the table was restored, or Redis was written to.",
            metrics=(watched.own(MetricName.REGISTRY_AHEAD_OF_JOURNAL, READER),),
            severity=Severity.WAKE,
        )


def _of_routing_items(watched: Watched) -> Alarm:
    return Alarm(
        name="RoutingItemUnreadable",
        meaning="A partition key's routing item cannot be read: reads of that key fail.",
        metrics=tuple(watched.own(MetricName.JOURNAL_MALFORMED, folder) for folder in watched.functions),
        severity=Severity.WAKE,
    )


def _of_functions(functions: Iterable[str]) -> Iterator[Alarm]:
    """Watch all functions together: each has a log group of its own."""

    def metrics(what: str) -> tuple[Metric, ...]:
        return tuple(
            Metric(namespace="AWS/Lambda", name=what, statistic="Sum", dimensions={"FunctionName": function})
            for function in functions
        )

    yield Alarm(
        name="FunctionErrors",
        meaning="A function crashed, timed out or could not start.",
        metrics=metrics("Errors"),
    )
    yield Alarm(
        name="FunctionThrottled",
        meaning="Lambda refused to start a function: its concurrency, or the account's, is used up.",
        metrics=metrics("Throttles"),
    )


def _of_registry(nodes: Sequence[str]) -> Iterator[Alarm]:
    """Watch all nodes: one alarm of each kind for as many of them as one alarm takes."""
    for alarm in _OF_A_NODE:
        at_once = MAX_METRICS // len(alarm.metrics)
        for number, first in enumerate(range(0, len(nodes), at_once)):
            yield replace(
                alarm,
                name=f"{alarm.name}{number + 1 if number else ''}",
                metrics=tuple(
                    replace(metric, dimensions={"CacheClusterId": node})
                    for node in nodes[first : first + at_once]
                    for metric in alarm.metrics
                ),
            )


def _dynamodb(name: str, **dimensions: str) -> Metric:
    return Metric(namespace="AWS/DynamoDB", name=name, statistic="Sum", dimensions=dimensions)


def _node(name: str, statistic: str) -> Metric:
    return Metric(namespace="AWS/ElastiCache", name=name, statistic=statistic)


_OF_A_NODE = (
    Alarm(
        name="RegistryMemory",
        meaning="A node of Redis has used three quarters of its memory; a full one refuses routes and reports.",
        metrics=(_node("DatabaseMemoryUsagePercentage", "Maximum"),),
        combination=Combination.MAXIMUM,
        threshold=75,
        periods=5,
    ),
    Alarm(
        name="RegistryCpu",
        meaning="The one thread of a Redis node that serves commands has been busy for 80 % of five minutes.",
        metrics=(_node("EngineCPUUtilization", "Average"),),
        combination=Combination.MAXIMUM,
        threshold=80,
        periods=5,
    ),
    Alarm(
        name="RegistryRefusals",
        meaning="Redis refused a client without a valid token, or a command that a user may not run.",
        metrics=(_node("AuthenticationFailures", "Sum"), _node("CommandAuthorizationFailures", "Sum")),
    ),
)
"""The alarms of the registry's nodes, each with the metrics of one node."""
