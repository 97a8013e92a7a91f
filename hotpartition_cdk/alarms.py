"""Every alarm as plain data: its metrics, its meaning, and the runbook's section of the same name.

`monitoring.py` makes CloudWatch alarms of it; tests hold the documents to it. Thresholds are for "a person should
look", not for "something happened": a rush is throttled for a second or two before it is cured, which rings nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hotpartition.core.metrics import MetricName
from hotpartition.core.shares import list_shares
from hotpartition_cdk.configuration import HotPartitionOptions

RUNBOOK = "docs/runbook.md"

OWN_NAMESPACE = "{stack}"
"""Namespace of the functions' own metrics: the stack's name, so that two stacks in one account and region do not ring
each other's alarms. Their one dimension is `service`, the function's folder."""

WRITER = "write_message"
READER = "read_messages"
"""The functions with metrics that no other function has: those of the messages API."""

MAX_METRICS = 10
"""An alarm on an expression takes no more metrics (CloudWatch, "Metric math")."""


class Subject(StrEnum):
    """The resource that a dimension's value names; known only to CloudFormation."""

    TABLE = "{table}"
    JOURNAL = "{journal}"
    INDEX = "{index}"
    API = "{api}"
    QUEUE = "{queue}"
    FUNCTION = "{function}"
    NODE = "{node}"


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
    """One CloudWatch metric.

    Attributes:
        namespace: CloudWatch's namespace, or `OWN_NAMESPACE`.
        name: CloudWatch's name.
        statistic: `Sum`, `Maximum`, `p99` …
        dimensions: Name to value, or to the resource that the value names.
        subject: Which function (its folder) or node (its number, from 0) a dimension names.
    """

    namespace: str
    name: str
    statistic: str
    dimensions: Mapping[str, str] = field(default_factory=dict)
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One alarm.

    Attributes:
        name: Its name after the stack's, and the heading of its section in the runbook.
        meaning: The problem that it reports, in a sentence or two.
        metrics: The watched metrics.
        severity: Whether it can wait until tomorrow.
        combination: How several become one.
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
        return f"{self.severity} {self.meaning} See {runbook}#{base_name(self).lower()}"


_TABLE = {"TableName": Subject.TABLE}
_JOURNAL = {"TableName": Subject.JOURNAL}
_INDEX = {"TableName": Subject.TABLE, "GlobalSecondaryIndexName": Subject.INDEX}


def list_alarms(
    options: HotPartitionOptions | None,
    *,
    functions: Sequence[str],
    slow_request_ms: int | None = None,
    node_count: int | None = None,
    is_journal_apart: bool = False,
) -> tuple[Alarm, ...]:
    """List the alarms of a table.

    Args:
        options: For the number of consumers, and of nodes; None: there are neither.
        functions: The functions' folders.
        slow_request_ms: Latency that 1 % of an API's requests may exceed; None: there is no API in front of them.
        node_count: How many of the registry's nodes are watched; None: all that the options ask for.
        is_journal_apart: Whether the routing items have a table of their own.
    """
    return (
        *_of_table(),
        _of_journal() if is_journal_apart else _of_index(),
        _of_limits(),
        *(() if slow_request_ms is None else _of_api(slow_request_ms)),
        *(() if options is None else (*_of_consumers(options.consumers), *_of_detection(functions))),
        _of_raises(functions),
        _of_routing_items(functions),
        *_of_functions(functions),
        *(() if options is None else _of_registry(options.registry.node_count if node_count is None else node_count)),
    )


def base_name(alarm: Alarm) -> str:
    """Strip the number that an alarm over many nodes carries: its section has no number."""
    return alarm.name.rstrip("0123456789")


def _of_table() -> Iterator[Alarm]:
    yield Alarm(
        name="TableWritesThrottled",
        meaning="Writes to one partition of the table have been refused for five minutes: salting has not cured it.",
        metrics=(_dynamodb("WriteKeyRangeThroughputThrottleEvents", _TABLE),),
        severity=Severity.WAKE,
        periods=5,
    )
    yield Alarm(
        name="TableReadsThrottled",
        meaning="Reads of one partition of the table have been refused for five minutes: a key of it is read-hot.",
        metrics=(_dynamodb("ReadKeyRangeThroughputThrottleEvents", _TABLE),),
        severity=Severity.WAKE,
        periods=5,
    )


def _of_index() -> Alarm:
    return Alarm(
        name="IndexThrottled",
        meaning="A partition of the routing index refuses requests: raises, or a rebuild of the registry, are held up.",
        metrics=tuple(_dynamodb(f"{kind}KeyRangeThroughputThrottleEvents", _INDEX) for kind in ("Write", "Read")),
        periods=3,
    )


def _of_journal() -> Alarm:
    return Alarm(
        name="JournalThrottled",
        meaning="The table of the routes refuses requests: raises, reads and changes are held up.",
        metrics=tuple(_dynamodb(f"{kind}ThrottleEvents", _JOURNAL) for kind in ("Write", "Read")),
        severity=Severity.WAKE,
        periods=3,
    )


def _of_limits() -> Alarm:
    return Alarm(
        name="TableLimitReached",
        meaning="DynamoDB refuses requests for the table's on-demand maximum or the account's quota, which no salting"
        " cures.",
        metrics=tuple(
            _dynamodb(f"{kind}{limit}ThrottleEvents", _TABLE)
            for kind in ("Write", "Read")
            for limit in ("MaxOnDemandThroughput", "AccountLimit")
        ),
        severity=Severity.WAKE,
    )


def _of_api(slow_request_ms: int) -> Iterator[Alarm]:
    """Watch all routes together: the API's access log names the route."""
    dimensions = {"ApiId": Subject.API, "Stage": "$default"}

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


def _of_consumers(consumers: int) -> Iterator[Alarm]:
    """Watch each consumer by itself: among others, one that is missing would not be noticed."""
    for share in list_shares(consumers):
        dimensions = {} if share.is_whole else {"share": str(share.index)}
        yield Alarm(
            name=f"ConsumerMissing{share.index + 1 if share.index else ''}",
            meaning="No stream consumer has started for five minutes: hot keys stay throttled.",
            metrics=(_own(MetricName.CONSUMER_STARTED, "consume_reports", **dimensions),),
            severity=Severity.WAKE,
            is_lack=True,
            period_minutes=5,
        )


def _of_detection(functions: Sequence[str]) -> Iterator[Alarm]:
    yield Alarm(
        name="ConsumerBehind",
        meaning="The stream consumer has decided on reports more than five seconds old for three minutes.",
        metrics=(_own(MetricName.CONSUMER_LAG_MS, "consume_reports", "Maximum"),),
        threshold=5000,
        periods=3,
    )
    if WRITER in functions:
        yield Alarm(
            name="ReportsLost",
            meaning="Writers could not send a hundred reports of load in five minutes: detection sees less than there"
            " is.",
            metrics=(_own(MetricName.REPORTS_DROPPED, WRITER),),
            threshold=100,
            period_minutes=5,
        )
    yield Alarm(
        name="RegistryUnreachable",
        meaning="Calls to Redis have failed in each of five minutes: routes come from the journal, no heat is seen.",
        metrics=tuple(_own(MetricName.REGISTRY_UNAVAILABLE, folder) for folder in functions),
        severity=Severity.WAKE,
        periods=5,
    )
    yield Alarm(
        name="RegistryRefilled",
        meaning="Redis, or a node of it, was empty and was filled again from the journal.",
        metrics=(_own(MetricName.REGISTRY_REBUILT, "consume_reports"),),
    )
    yield Alarm(
        name="RaiseAtCap",
        meaning="A partition key is hot and has max_shard_count shards already: it stays throttled.",
        metrics=(_own(MetricName.DECISION_AT_CAP, "consume_reports"),),
        severity=Severity.WAKE,
    )
    yield Alarm(
        name="RaisesLimited",
        meaning="An hour had max_raises_per_hour raises: what gets hot until it is over is not raised.",
        metrics=(_own(MetricName.DECISION_TOO_MANY, "consume_reports"),),
        severity=Severity.WAKE,
    )
    if READER in functions:
        yield Alarm(
            name="RegistryAhead",
            meaning="Redis knew a route that the journal did not: the table was restored, or Redis was written to.",
            metrics=(_own(MetricName.REGISTRY_AHEAD_OF_JOURNAL, READER),),
            severity=Severity.WAKE,
        )
    yield Alarm(
        name="DeadLetters",
        meaning="Starts of the stream consumer failed and lie in the dead-letter queue.",
        metrics=(
            Metric(
                namespace="AWS/SQS",
                name="ApproximateNumberOfMessagesVisible",
                statistic="Maximum",
                dimensions={"QueueName": Subject.QUEUE},
            ),
        ),
    )


def _of_raises(functions: Sequence[str]) -> Alarm:
    detector = "consume_reports" if "consume_reports" in functions else WRITER
    return Alarm(
        name="ManyRaises",
        meaning="A hundred raises within an hour: a large event, or somebody who makes many keys dear to read.",
        metrics=tuple(_own(MetricName.RAISES, folder) for folder in functions if folder in (detector, "operate")),
        threshold=100,
        period_minutes=60,
    )


def _of_routing_items(functions: Sequence[str]) -> Alarm:
    return Alarm(
        name="RoutingItemUnreadable",
        meaning="A partition key's routing item cannot be read: reads of that key fail.",
        metrics=tuple(_own(MetricName.JOURNAL_MALFORMED, folder) for folder in functions),
        severity=Severity.WAKE,
    )


def _of_functions(folders: Sequence[str]) -> Iterator[Alarm]:
    """Watch all functions together: each has a log group of its own."""

    def metrics(what: str) -> tuple[Metric, ...]:
        dimensions = {"FunctionName": Subject.FUNCTION}
        return tuple(
            Metric(namespace="AWS/Lambda", name=what, statistic="Sum", dimensions=dimensions, subject=folder)
            for folder in folders
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


def _of_registry(node_count: int) -> Iterator[Alarm]:
    """Watch all nodes: one alarm of each kind for each ten of them."""
    for alarm in _OF_A_NODE:
        for number, first in enumerate(range(0, node_count, MAX_METRICS)):
            nodes = range(first, min(first + MAX_METRICS, node_count))
            yield replace(
                alarm,
                name=f"{alarm.name}{number + 1 if number else ''}",
                metrics=tuple(replace(metric, subject=str(node)) for node in nodes for metric in alarm.metrics),
            )


def _dynamodb(name: str, dimensions: Mapping[str, str]) -> Metric:
    return Metric(namespace="AWS/DynamoDB", name=name, statistic="Sum", dimensions=dimensions)


def _own(name: MetricName, folder: str, statistic: str = "Sum", **dimensions: str) -> Metric:
    dimensions = {"service": folder, **dimensions}
    return Metric(namespace=OWN_NAMESPACE, name=str(name), statistic=statistic, dimensions=dimensions)


def _node(name: str, statistic: str, **dimensions: str) -> Metric:
    dimensions = {"CacheClusterId": Subject.NODE, **dimensions}
    return Metric(namespace="AWS/ElastiCache", name=name, statistic=statistic, dimensions=dimensions)


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
        name="RegistryEvictions",
        meaning="Redis evicted keys, which its policy noeviction rules out: a routing table must never be evicted.",
        metrics=(_node("Evictions", "Sum"),),
    ),
    Alarm(
        name="RegistryRefusals",
        meaning="Redis refused a client that gave no valid token.",
        metrics=(_node("AuthenticationFailures", "Sum"),),
    ),
    Alarm(
        name="RegistryCommandsRefused",
        meaning="A user of Redis tried a command that it may not run: a function and its user do not fit together.",
        metrics=(_node("CommandAuthorizationFailures", "Sum"),),
    ),
    Alarm(
        name="RegistryLoginsThrottled",
        meaning="ElastiCache refused to check tokens (IAM) because there were too many at a time: connections fail.",
        # There is no such metric without the node's own id, which is the same in each of a group's clusters.
        metrics=(_node("IamAuthenticationThrottling", "Sum", CacheNodeId="0001"),),
    ),
)
"""The watched metrics of each node of the registry."""
