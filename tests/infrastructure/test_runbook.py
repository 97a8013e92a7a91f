"""docs/runbook.md: what it says to type can be typed, and what it says to look for is there."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields

import pytest
from botocore import xform_name
from botocore.session import get_session

from hotpartition.control.consumer import RunSummary
from hotpartition.core.detector import Reason
from hotpartition.redis.acl import Role
from hotpartition_cli.arguments import parse_arguments
from infra.api import _ACCESS_LOG_FORMAT
from infra.environments import DEV, PROD
from infrastructure.templates import short_name

GLOBAL_OPTIONS = {"query", "output", "cli-binary-format"}
LAMBDA_FIELDS = {"type", "record", "status", "metrics", "durationMs", "initDurationMs", "maxMemoryUsedMB"}
CRASH_FIELDS = {"level", "errorType", "errorMessage", "requestId"}
FLOW_LOG_FIELDS = {"srcAddr", "dstPort"}
QUERY_WORDS = {
    *("fields", "filter", "stats", "sort", "limit", "by", "as", "and", "or", "in", "like", "desc"),
    *("count", "avg", "max", "pct", "timestamp"),
}


@pytest.fixture(scope="module")
def runbook(root):
    return (root / "docs/runbook.md").read_text()


@pytest.fixture(scope="module")
def commands(runbook):
    """Every line that an operator types, without the prompt."""
    blocks = re.findall(r"^```(?:console|bash)\n(.*?)^```", runbook, re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def queries(commands):
    """The queries of Logs Insights, with the group that each is for."""
    found = [match.groups() for line in commands for match in re.finditer(r"ask (\$?\w+) '(.*?)'(?:;|$)", line)]
    assert len(found) > 20
    return found


@pytest.fixture(scope="module")
def sources(root):
    paths = [path for name in ("layers", "lambdas", "hotpartition_cdk") for path in (root / name).rglob("*.py")]
    return "\n".join(path.read_text() for path in paths)


def test_every_command_of_the_tool_parses(commands):
    """With the options that it has today."""
    ours = [shlex.split(line)[1:] for line in commands if line.startswith("hotpartition ")]
    assert {arguments[0] for arguments in ours} >= {"hot", "route", "raise", "verify", "rebuild-registry", "plan"}
    for arguments in ours:
        parse_arguments(arguments, {"HOTPARTITION_URL": "http://u"})


def test_commands_within_sentences_parse_as_well(runbook):
    """Those in backticks that have more than a name."""
    inline = {text for text in re.findall(r"`hotpartition ([^`\n]+)`", runbook) if text not in {"raise", "plan"}}
    assert len(inline) > 3
    for text in inline:
        parse_arguments(shlex.split(text), {"HOTPARTITION_URL": "http://u"})


def test_every_make_target_exists(root, runbook):
    """No `make` leads nowhere."""
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^\$ )make ([a-z-]+)", runbook, re.MULTILINE)) <= targets


def test_every_call_of_aws_exists_with_its_options(commands):
    """Held to the service models that boto3 ships."""
    session = get_session()
    models = {}
    calls = [match for line in commands for match in re.findall(r"\baws ([a-z0-9-]+) (.+?)(?=\)\s*(?:;|$)|; |$)", line)]
    assert len(calls) > 30
    for service, rest in calls:
        if service not in models:
            models[service] = session.get_service_model(service)
        words = rest.split()
        if words[0] == "wait":
            waiters = session.get_waiter_model(service)
            (name,) = [w for w in waiters.waiter_names if xform_name(w, "-") == words[1]]
            operation = waiters.get_waiter(name).operation
        else:
            (operation,) = [o for o in models[service].operation_names if xform_name(o, "-") == words[0]]
        shape = models[service].operation_model(operation).input_shape
        known = {xform_name(member, "-") for member in shape.members} if shape else set()
        # What stands within $(...) has options of its own.
        options = set(re.findall(r"(?<=\s)--([a-z-]+)", re.sub(r'"\$\(.*?\)"', "VALUE", rest)))
        unknown = {option for option in options - known - GLOBAL_OPTIONS if option.removeprefix("no-") not in known}
        assert not unknown, (service, rest, unknown)


def test_every_log_line_that_is_looked_for_is_written(queries, sources):
    """By the very words of the code."""
    looked_for = {
        text for _, query in queries for clause in re.findall(r"message (?:= |in \[)([^\]|]*)", query)
        for text in re.findall(r'"([^"]+)"', clause.split(" and ")[0])
    }  # fmt: skip
    assert len(looked_for) > 6
    assert [text for text in sorted(looked_for) if f'"{text}"' not in sources] == []


def test_every_field_that_is_asked_for_is_logged(queries, sources):
    """Of our lines by the code, of the API's by its format; those of Lambda are Lambda's."""
    ours = set(re.findall(r'"(\w+)":|(\w+)=', sources))
    logged = {name for pair in ours for name in pair} | {field.name for field in fields(RunSummary)}
    logged |= CRASH_FIELDS | LAMBDA_FIELDS | {"message"}
    for group, query in queries:
        known = {**_ACCESS_LOG_FORMAT, "caller": ""}.keys() if group == "AccessLog" else logged
        known = FLOW_LOG_FIELDS if group.startswith("Network") else known
        bare = re.sub(r'"[^"]*"|/[^/]*/|bin\(\w+\)', "", query)
        named = set(re.findall(r"[A-Za-z_]\w*", bare)) - set(re.findall(r" as (\w+)", bare)) - QUERY_WORDS
        assert named <= set(known), (query, named - set(known))


def test_every_log_group_that_is_asked_is_there(prod, queries):
    """Each name is the beginning of one group's logical id."""
    groups = prod.of_type("AWS::Logs::LogGroup")
    for group in {group for group, _ in queries if group != "$group"} | {"OperateLogs"}:
        assert len([id_ for id_ in groups if id_.startswith(group)]) == 1, group


def test_every_resource_that_is_named_is_there(prod, commands):
    """`resource TYPE PREFIX` finds one."""
    asked = {match for line in commands for match in re.findall(r"\(resource (AWS::\S+) (\w+)\)", line)}
    assert len(asked) > 2
    for type_, prefix in asked:
        assert len([id_ for id_ in prod.of_type(type_) if id_.startswith(prefix)]) == 1, (type_, prefix)


def test_every_output_that_is_used_is_there(prod, runbook):
    """And those that a deployment is said to print are those that it prints."""
    made = set(prod.body["Outputs"])
    assert set(re.findall(r"\(output (\w+)\)", runbook)) <= made
    assert set(re.findall(r"^hotpartition-prod\.(\w+) = ", runbook, re.MULTILINE)) == made


def test_every_metric_that_is_asked_for_is_counted(commands, sources):
    """`own METRIC FUNCTION` names a metric of the code."""
    asked = {match for line in commands for match in re.findall(r"^own (\S+)", line)}
    assert len(asked) > 8
    assert [name for name in sorted(asked) if f'"{name}"' not in sources] == []


def test_every_widget_of_the_dashboard_is_explained_and_no_other(prod, runbook):
    """By its title, in the dashboard's order."""
    body = short_name(prod.only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    titles = [json.loads(f'"{title}"') for title in re.findall(r'"title":"([^"]*)"', body)]
    table = runbook.split("| Widget | How to read it |")[1].split("\n\n")[0]
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == titles


def test_the_floors_of_quotas_are_those_of_the_environments(root, runbook):
    """Lambda keeps 100 unreserved beside what is reserved; where nothing is, a new account's 10 do."""
    table = runbook.split("| Quota | `dev` | `prod` | Why |")[1].split("\n\n")[0]
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:4]]
        for line in table.splitlines()[2:]
        if (cells := line.split("|"))
    }
    assert DEV.reserved_concurrency is None
    assert PROD.reserved_concurrency is not None
    floor = 100 + PROD.reserved_concurrency
    assert rows["Lambda, concurrent executions"] == ["10", str(floor)]
    assert f"at least {floor}" in (root / "README.md").read_text()
    assert rows["API Gateway, requests a second"] == [f"{each.api.write_rate:,}" for each in (DEV, PROD)]
    roles = len(Role)
    nodes = [f"{each.registry.node_count} and {roles} free" for each in (DEV, PROD)]
    assert rows["ElastiCache, nodes and users"] == nodes


def test_decisions_that_are_named_exist(runbook):
    """A word after "decisions" is a reason of the detector."""
    named = set(re.findall(r"decisions? `([a-z-]+)`", runbook))
    assert named
    assert named <= {str(reason) for reason in Reason}


def test_links_lead_to_sections(runbook):
    """An anchor is a heading in small letters, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", runbook, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", runbook)) <= anchors


def test_every_alarm_s_section_says_what_an_operator_asks(runbook):
    """What it means, what clients see, how to look, what to do, when it is harmless."""
    alarms = runbook.split("\n## Alarms\n")[1].split("\n## ")[0]
    sections = re.split(r"^### ", alarms, flags=re.MULTILINE)[1:]
    assert len(sections) > 30
    for section in sections:
        for word in ("Means", "Clients see", "Look", "do|Do", "armless"):
            assert re.search(rf"\*\*[^*]*(?:{word})", section), (section.splitlines()[0], word)
