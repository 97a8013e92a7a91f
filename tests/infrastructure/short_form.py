"""A synthesized template as short text, whose lines a reviewer can read as a diff.

A resource is a heading with a line for each property, or one line; so is an alarm, a statement of a policy, a graph.
What all resources of a type say stands once, before them; so do all tags and receivers of alarms, with how many have
them. Assets are numbered in the order in which they appear, since their hashes change with every line of code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import ndiff
from typing import Any

from infrastructure.template import Template, short_name

WIDTH = 140
Resources = dict[str, list[str]]
"""The lines of the resources of one type, by logical id."""


def write_short_form(template: Template) -> str:
    """Write the short form of a template."""
    lines = [line for kind, resources in _describe(template).items() for line in _list(kind, resources)]
    return _number_assets("\n".join(lines))


def write_difference(old: Template, new: Template, alike: Mapping[str, str] | None = None) -> str:
    """Write the lines of the short form that differ, but for the stack's name; of what is gone the heading alone.

    Patterns that are `alike` are replaced in logical ids: they differ by the path of a construct. Headings have the new
    template's own ids.
    """
    (before, _), (after, ids) = (_make_alike(template, alike or {}) for template in (old, new))
    lines = []
    for kind in sorted({*before, *after}):
        had, has = before.get(kind, {}), after.get(kind, {})
        gone, added = had.keys() - has.keys(), has.keys() - had.keys()
        lines += [f"- {kind}, all {len(had)}"] if not has else [f"- {kind} {id_}" for id_ in sorted(gone)]
        changes = {ids.get(id_, id_): _differ(had[id_], has[id_]) for id_ in has if id_ in had}
        lines += _list(kind, changes, " in both")
        for id_ in sorted(added):
            lines += [f"+ {kind} {ids.get(id_, id_)}", *(f"  {line}" for line in has[id_])]
    return _number_assets("\n".join(lines))


def _make_alike(template: Template, alike: Mapping[str, str]) -> tuple[dict[str, Resources], dict[str, str]]:
    """Describe a template under plain logical ids, and return the real ones by these. Two of a name keep theirs."""
    ids: dict[str, str] = {}
    for id_ in template.body["Resources"]:
        plain = id_
        for pattern, text in alike.items():
            plain = re.sub(pattern, text, plain)
        ids[id_ if plain in ids else plain] = id_
    text = json.dumps(template.body)
    for plain, id_ in sorted(ids.items(), key=lambda item: -len(item[1])):
        text = text.replace(id_, plain)
    prefix = template.all("AWS::CloudWatch::Alarm")[0]["AlarmName"].rpartition("-")[0]
    # Names of users have a hash behind the stack's name.
    plain_text = re.sub(rf"{prefix}(-[0-9a-f]{{4}}\b)?", "STACK", text)
    return _describe(replace(template, body=json.loads(plain_text))), ids


def _differ(old: list[str], new: list[str]) -> list[str]:
    before, after = (_number_assets("\n".join(lines)).splitlines() for lines in (old, new))
    return [line for line in ndiff(before, after) if line[0] in "+-"]


def _list(kind: str, resources: Resources, where: str = "") -> Iterator[str]:
    """List the resources of a type; in a difference only those that have lines of their own."""
    first, *others = resources.values() if resources else [[]]
    common = [line for line in first if others and all(line in lines for lines in others)]
    if common:
        yield f"{kind}, all {len(resources)}{where}"
        yield from (f"  {line}" for line in common)
    for id_, lines in resources.items():
        own = [line for line in lines if line not in common]
        if len(own) == 1 and id_:
            yield f"{kind} {id_}: {own[0]}"
        elif own or not where:
            yield f"{kind} {id_}".strip()
            yield from (f"  {line}" for line in own)


def _number_assets(text: str) -> str:
    numbers: dict[str, int] = {}
    return re.sub(r"\b[0-9a-f]{64}\b", lambda found: f"asset{numbers.setdefault(found[0], len(numbers) + 1)}", text)


def _describe(template: Template) -> dict[str, Resources]:
    """Write the outputs, what is shared, and each resource, by type and logical id."""
    resources = sorted(template.body["Resources"].items(), key=lambda item: (item[1]["Type"], item[0]))
    tags = Counter(_inline(own) for _, resource in resources if (own := _own_tags(resource)))
    alarms = sorted(template.all("AWS::CloudWatch::Alarm"), key=lambda alarm: alarm["AlarmName"])
    receivers = Counter(f"to {_inline(each['AlarmActions'])}, over {_inline(each['OKActions'])}" for each in alarms)
    kinds: dict[str, Resources] = {
        "Outputs": {"": list(_write(template.body.get("Outputs", {})))},
        "Tags": {"": [f"{what}: {count}" for what, count in sorted(tags.items())]},
        "Receivers of alarms": {"": [f"{what}: {count}" for what, count in sorted(receivers.items())]},
        "Alarms": {"": list(map(_write_alarm, alarms))},
    }
    for id_, resource in resources:
        kind = resource["Type"].removeprefix("AWS::")
        if kind != "CloudWatch::Alarm":
            kinds.setdefault(kind, {})[id_] = list(_write_resource(id_, resource))
    return {kind: resources for kind, resources in kinds.items() if resources.get("") != []}


def _own_tags(resource: Mapping[str, Any]) -> dict[str, str]:
    """Find a resource's tags, but those that the CDK gives to parts of a network."""
    tags = resource.get("Properties", {}).get("Tags", {})
    named = {tag["Key"]: tag["Value"] for tag in tags} if isinstance(tags, list) else tags
    return {name: value for name, value in named.items() if name != "Name" and not name.startswith("aws-cdk:")}


def _write_resource(id_: str, resource: Mapping[str, Any]) -> Iterator[str]:
    """Write all but what the CDK always adds: a policy's name, and that a function waits for its role."""
    about = {key: value for key, value in resource.items() if key not in {"Type", "Properties", "Metadata"}}
    waits_for = [each for each in about.pop("DependsOn", []) if not re.search(r"Role(DefaultPolicy)?\w{0,8}$", each)]
    yield from _write({**about, "DependsOn": waits_for} if waits_for else about)
    properties = {name: value for name, value in resource.get("Properties", {}).items() if value != id_}
    for name, value in sorted(properties.items()):
        if name == "DashboardBody":
            yield from map(_write_widget, json.loads(short_name(value))["widgets"])
        elif name.endswith("PolicyDocument"):
            yield from map(_write_statement, value["Statement"])
        elif name == "Environment":
            yield from (f"{each} = {_inline(text)}" for each, text in sorted(value["Variables"].items()))
        elif name != "Tags":
            yield from _write({name: value})


def _write(values: Any, path: str = "") -> Iterator[str]:
    """Write values by their paths; lists of names, and what fits into one line, in one line."""
    for name, value in sorted(values.items()) if isinstance(values, dict) else enumerate(values):
        line = f"{path}{name}: {_inline(value)}"
        is_filled_in = isinstance(value, dict) and next(iter(value), "").startswith(("Ref", "Fn::"))
        is_short = len(line) <= WIDTH or is_filled_in or not isinstance(value, (dict, list))
        if is_short or (isinstance(value, list) and "{" not in line.replace("${", "")):
            yield line
        else:
            yield from _write(value, f"{path}{name}.")


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
    text = str(statement["Effect"])
    for word, name in (("", "Action"), (" on", "Resource"), (" to", "Principal"), (" if", "Condition")):
        value = statement.get(name, [])
        listed = " ".join(sorted(map(_inline, value if isinstance(value, list) else [value])))
        text += f"{word} {listed}" if listed else ""
    return text


def _write_alarm(alarm: Mapping[str, Any]) -> str:
    """Write an alarm's name, severity, metrics and threshold; the rest of its text is the runbook's."""
    severity = {"Wake somebody": "wakes", "Look tomorrow": "tomorrow"}[alarm["AlarmDescription"].partition(".")[0]]
    only = {"Metric": alarm, "Stat": alarm.get("Statistic") or alarm.get("ExtendedStatistic"), **alarm}
    metrics = alarm.get("Metrics", [{"MetricStat": only}])
    combined = "".join(f"{each['Expression']} of " for each in metrics if "Expression" in each)
    watched = dict.fromkeys(_write_metric(each["MetricStat"]) for each in metrics if "MetricStat" in each)
    points = f"{alarm['DatapointsToAlarm']}/{alarm['EvaluationPeriods']}"
    return (
        f"{alarm['AlarmName']} {severity}: {combined}{'; '.join(watched)} {alarm['ComparisonOperator']}"
        f" {alarm['Threshold']} in {points}, missing {alarm['TreatMissingData']}"
    )


def _write_metric(stat: Mapping[str, Any]) -> str:
    metric = stat["Metric"]
    dimensions = {each["Name"]: each["Value"] for each in metric.get("Dimensions", [])}
    return f"{metric['Namespace']}/{metric['MetricName']}{_inline(dimensions)} {stat['Stat']} {stat['Period']} s"


def _write_widget(widget: Mapping[str, Any]) -> str:
    """Write a graph of a dashboard: its title, and the names of what it draws."""
    shown = widget["properties"]
    names = [each[-1].get("expression", "") if len(each) == 1 else each[1] for each in shown.get("metrics", [])]
    return f"{widget['type']}: {shown.get('title', shown.get('markdown', ''))}: " + ", ".join(dict.fromkeys(names))
