"""Alarms, their receivers, and the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from hotpartition.core.metrics import MetricName
from hotpartition_cdk.alarms import CONSUMER, READER, RUNBOOK, WRITER, Alarm, Combination, Metric, Watched, list_alarms
from hotpartition_cdk.configuration import AlarmOptions, CommonOptions
from hotpartition_cdk.names import follow_name

_WIDTH = 12
"""Two graphs stand beside each other: a dashboard is 24 wide."""
_GRAPHS: Mapping[str, Mapping[str, Sequence[MetricName]]] = {
    "Messages": {
        WRITER: (
            MetricName.MESSAGES_WRITTEN,
            MetricName.MESSAGES_REPLAYED,
            MetricName.MESSAGES_EDITED,
            MetricName.MESSAGES_DELETED,
        ),
        READER: (MetricName.PAGES_READ, MetricName.MESSAGES_READ),
    },
    "Throttles as writers and readers meet them": {
        WRITER: (MetricName.WRITES_THROTTLED,),
        READER: (MetricName.READS_RETRIED, MetricName.QUERIES_HEDGED),
    },
    "Cached pages": {
        READER: (
            MetricName.PAGES_FROM_L1,
            MetricName.PAGES_FROM_REDIS,
            MetricName.PAGES_FROM_DYNAMODB,
            MetricName.PAGE_FILLS,
            MetricName.PAGE_FILLS_FAILED,
            MetricName.PAGES_MALFORMED,
        )
    },
    "Decisions": {
        CONSUMER: (
            MetricName.RAISES,
            MetricName.CLOSES,
            MetricName.DECISION_RAISED,
            MetricName.DECISION_AT_CAP,
            MetricName.DECISION_TOO_MANY,
            MetricName.DECISION_READ_HOT,
        )
    },
    "Stream consumer: age of what it decides on, in ms": {CONSUMER: (MetricName.CONSUMER_LAG_MS,)},
}
"""The functions' own metrics: each graph's title, and which function counts which."""


class Monitoring(Construct):
    """Makes CloudWatch alarms of the alarms as data, and one dashboard.

    Plain constructs: the watched metrics are mostly the functions' own, for which a library has no
    more to offer than these few lines.
    """

    def __init__(
        self, scope: Construct, id_: str, *, watched: Watched, options: CommonOptions, slow_request_ms: int = 0
    ) -> None:
        super().__init__(scope, id_)
        self._watched = watched
        self._runbook = options.alarms.runbook_url or RUNBOOK
        receiver = actions.SnsAction(self._topic(options.alarms))
        alarms = list_alarms(watched, slow_request_ms=slow_request_ms)
        self._made = {alarm.name: self._make(alarm) for alarm in alarms}
        for made in self._made.values():
            made.add_alarm_action(receiver)
            made.add_ok_action(receiver)
        self._dashboard = self._make_dashboard(alarms) if options.has_dashboard else None

    def follow_names(self) -> None:
        """Let the logical ids follow the names, for a construct that may be renamed or moved."""
        for name, alarm in self._made.items():
            follow_name(alarm.node.default_child, "Alarm", f"{self._watched.name}-{name}")
        if self._dashboard is not None:
            follow_name(self._dashboard.node.default_child, "Dashboard", self._watched.name)

    def _topic(self, options: AlarmOptions) -> sns.ITopic:
        if options.topic_arn is not None:
            return sns.Topic.from_topic_arn(self, "Told", options.topic_arn)
        # Not encrypted with a key: AWS's own for SNS keeps CloudWatch out, and another would cost more each month than
        # it guards. An alarm names the stack and a number, no conversation.
        topic = sns.Topic(self, "Topic", display_name="hotpartition alarms", enforce_ssl=True)
        # This policy replaces the default one, by which CloudWatch was admitted.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}},
            )
        )
        if options.email is not None:
            topic.add_subscription(subscriptions.EmailSubscription(options.email))
        return topic

    def _make(self, alarm: Alarm) -> cloudwatch.Alarm:
        operators, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        at_least = operators.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        return cloudwatch.Alarm(
            self,
            alarm.name,
            alarm_name=f"{self._watched.name}-{alarm.name}",
            alarm_description=alarm.describe(self._runbook),
            metric=self._combine(alarm),
            threshold=alarm.threshold,
            comparison_operator=operators.LESS_THAN_THRESHOLD if alarm.is_lack else at_least,
            evaluation_periods=alarm.periods,
            datapoints_to_alarm=alarm.breaching or alarm.periods,
            treat_missing_data=missing.BREACHING if alarm.is_lack else missing.NOT_BREACHING,
        )

    def _combine(self, alarm: Alarm) -> cloudwatch.IMetric:
        period = cdk.Duration.minutes(alarm.period_minutes)
        metrics = [_draw(metric, period) for metric in alarm.metrics]
        if len(metrics) == 1:
            return metrics[0]
        # Unique among all that one graph shows; CloudWatch wants them to begin with a small letter.
        names = [f"m{alarm.name}{number}" for number in range(len(metrics))]
        match alarm.combination:
            case Combination.PERCENTAGE:
                expression = f"100 * {names[0]} / {names[1]}"
            case Combination.MAXIMUM:
                expression = f"MAX([{', '.join(names)}])"
            case Combination.SUM:
                # A metric without data would make a sum with `+` vanish.
                expression = f"SUM([{', '.join(f'FILL({name}, 0)' for name in names)}])"
        using = dict(zip(names, metrics, strict=True))
        return cloudwatch.MathExpression(expression=expression, using_metrics=using, period=period, label=alarm.name)

    def _make_dashboard(self, alarms: Sequence[Alarm]) -> cloudwatch.Dashboard:
        hours = cdk.Duration.hours(3)
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=self._watched.name, default_interval=hours)
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(self._made.values()), width=24, height=5)
        )
        graphs = [(title, self._own_metrics(counted)) for title, counted in _GRAPHS.items()]
        for title, is_shown in _WATCHED:
            graphs.append((title, [self._labelled(alarm) for alarm in alarms if is_shown(alarm)]))
        drawn = [cloudwatch.GraphWidget(title=title, left=lines, width=_WIDTH) for title, lines in graphs if lines]
        for first in range(0, len(drawn), 2):
            dashboard.add_widgets(*drawn[first : first + 2])
        return dashboard

    def _labelled(self, alarm: Alarm) -> cloudwatch.IMetric:
        metric = self._combine(alarm)
        return metric.with_(label=alarm.name) if isinstance(metric, cloudwatch.Metric) else metric

    def _own_metrics(self, counted: Mapping[str, Sequence[MetricName]]) -> list[cloudwatch.IMetric]:
        minute = cdk.Duration.minutes(1)
        made = {folder: names for folder, names in counted.items() if folder in self._watched.functions}
        return [
            _draw(self._watched.own(name, folder), minute, label=name)
            for folder, names in made.items()
            for name in names
        ]


def _draw(metric: Metric, period: cdk.Duration, *, label: str | None = None) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=metric.namespace,
        metric_name=metric.name,
        statistic=metric.statistic,
        period=period,
        dimensions_map=metric.dimensions,
        label=label,
    )


def _is_of(alarm: Alarm, namespace: str) -> bool:
    return any(metric.namespace == namespace for metric in alarm.metrics)


_WATCHED: tuple[tuple[str, Callable[[Alarm], bool]], ...] = (
    ("API: 5xx, %", lambda alarm: alarm.name == "ApiFailing"),
    ("API: p99 latency, ms", lambda alarm: alarm.name == "ApiSlow"),
    ("DynamoDB: throttles of one partition", lambda alarm: _is_of(alarm, "AWS/DynamoDB")),
    ("Functions: errors and throttles", lambda alarm: _is_of(alarm, "AWS/Lambda")),
    ("Redis: memory and CPU, %", lambda alarm: alarm.combination is Combination.MAXIMUM),
)
"""Graphs of the watched metrics: title, and of which alarms. A graph without lines is left out."""
