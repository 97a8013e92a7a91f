"""What stands idle, by the list prices of the page of costs: each size's bar, and the page's own table."""

from __future__ import annotations

import re

import pytest

from infrastructure.standing import price_standing
from infrastructure.test_constructs import App, constructs, imported_table

BARS = {"lite": 6, "dev": 40, "prod": 250, "SMALL": 40, "PRODUCTION": 110}
"""Dollars a month at most."""


@pytest.fixture(scope="module")
def resources(templates, tmp_path_factory):
    """The stacks, and the construct in each size."""
    found = {name: templates[name].body["Resources"] for name in ("lite", "dev", "prod", "large")}
    for name in ("SMALL", "PRODUCTION", "LARGE"):
        app = App(tmp_path_factory.mktemp(name))
        stack = app.stack(name)
        options = getattr(constructs, name).changed({"alarms": {"is_silent": True}})
        constructs.HotPartition(stack, "Hot", table=imported_table(stack), options=options)
        found[name] = app.template().body["Resources"]
    return found


@pytest.mark.parametrize(("name", "bar"), BARS.items())
def test_little_stands_idle(resources, name, bar):
    """Without the durable log, whose price no page that we could read says."""
    assert 0 < sum(price_standing(resources[name]).values()) <= bar


def test_the_page_says_what_stands(resources, root):
    """Each row of each size, and the sums."""
    section = (root / "docs/costs.md").read_text().split("## What stands, used or not")[1].split("\n## ")[0]
    rows = {
        cells[0].strip("* "): cells[3:]
        for line in section.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) > 5
    }
    header = rows.pop("standing")
    assert [name.strip("`") for name in header] == list(resources)
    for column, found in enumerate(resources.values()):
        standing = price_standing(found)
        for name, dollars in standing.items():
            expected = "-" if dollars == 0 else f"${dollars:.2f}"
            assert re.sub(r"^.*: ", "", rows[name][column]) == expected, name
        assert rows["all of it"][column] == f"**${sum(standing.values()):.0f}**"
