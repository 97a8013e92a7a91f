"""Each alarm has its section in the documents. Thresholds, metrics and receivers are in the templates' texts."""

from __future__ import annotations

import re

import pytest

from hotpartition.core.metrics import MetricName
from hotpartition_cdk.alarms import RUNBOOK, Watched, list_alarms
from infrastructure.template import FUNCTIONS


def rows_of(root, header):
    """The cells of each row of a table of the operations page."""
    table = (root / "docs/operations.md").read_text().split(header)[1].split("\n\n")[0]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]


@pytest.fixture(scope="module")
def severities(root):
    """The alarms that the operations page names: `wake` or `tomorrow`."""
    rows = rows_of(root, "| Alarm | Severity | It rings when |")
    return {name: severity for names, severity, _ in rows for name in re.findall(r"`(\w+)`", names)}


def test_each_alarm_is_on_the_operations_page_with_its_severity(prod, severities):
    """Those of a table whose routes lie in it, and apart; mail can be sorted by the first words. All name a section."""
    names = {"name": "n", "table": "t", "journal": "j", "index": "", "nodes": "n", "api": "a"}
    apart = list_alarms(Watched(**names, functions=dict.fromkeys(FUNCTIONS, "f"), has_consumer=True), slow_request_ms=1)
    made = {alarm.name: alarm.describe() for alarm in apart}
    made |= {name: alarm["AlarmDescription"] for name, alarm in prod.alarms().items()}
    words = {"Wake somebody": "wake", "Look tomorrow": "tomorrow"}
    assert {name: words[text.partition(".")[0]] for name, text in made.items()} == severities
    assert all(text.endswith(f"See {RUNBOOK}#{name.lower()}") for name, text in made.items())


def test_the_pages_name_what_there_is(root, severities):
    """Metrics of the operations page, and the runbook's sections. Powertools counts cold starts."""
    named = {name for names, _ in rows_of(root, "| Metric | Meaning |") for name in re.findall(r"`([\w-]+)…?`", names)}
    assert named - set(MetricName) == {"ColdStart", "Decision-"}
    headings = set(re.findall(r"^#+ `?([A-Z][A-Za-z]+)`?$", (root / RUNBOOK).read_text(), flags=re.MULTILINE))
    assert headings >= severities.keys()
    assert {h for h in headings if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", h)} <= severities.keys()
