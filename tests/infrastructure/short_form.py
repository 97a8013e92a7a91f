"""A synthesized template as short text, whose lines a reviewer can read as a diff.

Each resource is a heading and one line for each property; an alarm, a statement of a policy and a graph are one line.
What many resources share, their tags and the receivers of alarms, stands once, with how many have it. Assets are
numbered in the order in which they appear, since their hashes change with every line of code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import ndiff
from typing import Any

from infrastructure.template import Template, short_name

WIDTH = 118
_ASSET = re.compile(r"\b[0-9a-f]{64}\b")


def write_short_form(template: Template) -> str:
    """Write the short form of a template."""
    return _number_assets("\n".join(line for lines in _sections(template).values() for line in lines))


def write_difference(old: Template, new: Template) -> str:
    """Write the lines of the short form that differ, but for the stack's name; of what is gone the heading alone."""

    def sections(template: Template) -> dict[str, list[str]]:
        texts = {heading: _number_assets("\n".join(lines)) for heading, lines in _sections(template).items()}
        return {heading: text.replace(template.name, "STACK").splitlines() for heading, text in texts.items()}

    before, after = sections(old), sections(new)
    lines = [f"- {heading}" for heading in before if heading not in after]
    for heading, section in after.items():
        found = [line for line in ndiff(before.get(heading, [heading]), section) if line[0] in "+-"]
        lines += [heading if heading in before else f"+ {heading}", *found] if found else []
    return "\n".join(lines)


def _number_assets(text: str) -> str:
    numbers: dict[str, int] = {}
    return _ASSET.sub(lambda found: f"asset{numbers.setdefault(found.group(), len(numbers) + 1)}", text)


def _sections(template: Template) -> dict[str, list[str]]:
    """Write the outputs, what is shared, and each resource, by heading."""
    resources = sorted(template.body["Resources"].items(), key=lambda item: (item[1]["Type"], item[0]))
    tags = Counter(_inline(own) for _, resource in resources if (own := _own_tags(resource)))
    alarms = template.all("AWS::CloudWatch::Alarm")
    receivers = Counter(f"to {_inline(each['AlarmActions'])}, over {_inline(each['OKActions'])}" for each in alarms)
    sections = {"Outputs": ["Outputs", *_list_lines(template.body.get("Outputs", {}), "  ")]}
    for heading, counts in (("Tags", tags), ("Receivers of alarms", receivers)):
        lines = [heading, *(f"  {what}: {count}" for what, count in sorted(counts.items()))]
        sections[heading] = lines if counts else []
    for id_, resource in resources:
        kind = resource["Type"].removeprefix("AWS::")
        is_alarm = kind == "CloudWatch::Alarm"
        sections[f"{kind} {id_}"] = [_write_alarm(resource["Properties"])] if is_alarm else _write(kind, id_, resource)
    return sections


def _own_tags(resource: Mapping[str, Any]) -> dict[str, str]:
    """Find a resource's tags, but those that the CDK gives to parts of a network."""
    tags = resource.get("Properties", {}).get("Tags", {})
    named = {tag["Key"]: tag["Value"] for tag in tags} if isinstance(tags, list) else tags
    return {name: value for name, value in named.items() if name != "Name" and not name.startswith("aws-cdk:")}


def _write(kind: str, id_: str, resource: Mapping[str, Any]) -> list[str]:
    rest = {name: value for name, value in resource.items() if name not in {"Type", "Properties", "Metadata"}}
    lines = [f"{kind} {id_}", *(f"  {name}: {_inline(value)}" for name, value in sorted(rest.items()))]
    for name, value in sorted(resource.get("Properties", {}).items()):
        lines += _list_property(name, value)
    return lines


def _list_property(name: str, value: Any) -> Iterator[str]:
    if name == "DashboardBody":
        yield from map(_write_widget, json.loads(short_name(value))["widgets"])
    elif name.endswith("PolicyDocument"):
        yield from map(_write_statement, value["Statement"])
    elif name != "Tags":
        yield from _list_lines({name: value}, "  ")


def _list_lines(values: Any, indent: str) -> Iterator[str]:
    """Write values by name; lists of names, and what fits into one line, in one line."""
    pairs = sorted(values.items()) if isinstance(values, dict) else [("-", each) for each in values]
    for name, value in pairs:
        label = indent + (name if name == "-" else f"{name}:")
        line = f"{label} {_inline(value)}"
        is_filled_in = isinstance(value, dict) and next(iter(value), "").startswith(("Ref", "Fn::"))
        is_short = len(line) <= WIDTH or is_filled_in or not isinstance(value, (dict, list))
        if is_short or (isinstance(value, list) and "{" not in line.replace("${", "")):
            yield line
        else:
            yield f"{indent}{name}:"
            yield from _list_lines(value, indent + "  ")


def _inline(value: Any) -> str:
    match value:
        case {"Fn::GetAtt": _} | {"Ref": _} | {"Fn::Join": _}:
            return short_name(value)
        case {"S3Key": key}:
            return str(key)
        case dict():
            return "{" + ", ".join(f"{name}: {_inline(each)}" for name, each in sorted(value.items())) + "}"
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case _:
            return json.dumps(value) if isinstance(value, bool) else str(value)


def _write_statement(statement: Mapping[str, Any]) -> str:
    text = f"  {statement['Effect']}"
    for word, name in (("", "Action"), (" on", "Resource"), (" to", "Principal"), (" if", "Condition")):
        value = statement.get(name, [])
        listed = " ".join(map(_inline, value if isinstance(value, list) else [value]))
        text += f"{word} {listed}" if listed else ""
    return text


def _write_alarm(alarm: Mapping[str, Any]) -> str:
    """Write an alarm's name, severity, metrics and threshold; the rest of its text is the runbook's."""
    severity = {"Wake somebody": "wakes", "Look tomorrow": "tomorrow"}[alarm["AlarmDescription"].partition(".")[0]]
    points = f"{alarm['DatapointsToAlarm']}/{alarm['EvaluationPeriods']}"
    return (
        f"alarm {alarm['AlarmName']} {severity}: {_write_metrics(alarm)} {alarm['ComparisonOperator']}"
        f" {alarm['Threshold']} in {points}, missing {alarm['TreatMissingData']}"
    )


def _write_metrics(alarm: Mapping[str, Any]) -> str:
    if "Metrics" not in alarm:
        return _write_metric(alarm, alarm.get("Statistic") or alarm["ExtendedStatistic"], alarm["Period"])
    expressions = [each["Expression"] for each in alarm["Metrics"] if "Expression" in each]
    stats = [each["MetricStat"] for each in alarm["Metrics"] if "MetricStat" in each]
    watched = [_write_metric(each["Metric"], each["Stat"], each["Period"]) for each in stats]
    return f"{' '.join(expressions)} of " + "; ".join(dict.fromkeys(watched))


def _write_metric(metric: Mapping[str, Any], statistic: str, period: int) -> str:
    dimensions = {each["Name"]: each["Value"] for each in metric.get("Dimensions", [])}
    return f"{metric['Namespace']}/{metric['MetricName']}{_inline(dimensions)} {statistic} {period} s"


def _write_widget(widget: Mapping[str, Any]) -> str:
    """Write a graph of a dashboard: its title, and the names of what it draws."""
    shown = widget["properties"]
    names = [each[-1].get("expression", "") if len(each) == 1 else each[1] for each in shown.get("metrics", [])]
    return f"  {widget['type']}: {shown.get('title', shown.get('markdown', ''))}: " + ", ".join(dict.fromkeys(names))
