"""docs/costs.md: every resource of the template is in it, and its figures are what the formulas give today."""

from __future__ import annotations

import re

import pytest

from hotpartition.runtime.settings import WriterSettings
from hotpartition_cli.main import run
from infra.costs import (
    USES,
    Use,
    list_standing,
    list_used,
    main,
    render_amplification,
    render_standing,
    render_used,
)
from infra.environments import PROD
from infra.options import override

BUSY = Use(
    name="busy",
    writes_per_second=100,
    pages_per_second=200,
    messages_per_second=10,
    hot_share=0.5,
    shard_count=8,
)


@pytest.fixture(scope="module")
def document(root):
    return (root / "docs/costs.md").read_text()


def counts(quantities):
    return {quantity.what: quantity.count for quantity in quantities}


def test_every_type_of_resource_is_named_and_no_other(document, dev, prod):
    """With what of it costs, or among those that cost nothing."""
    made = {resource["Type"] for t in (dev, prod) for resource in t.body["Resources"].values()}
    assert set(re.findall(r"`(AWS::\w+::\w+)`", document)) == made


def test_what_costs_has_a_row_of_its_own(document):
    """A resource that is billed by itself is not hidden among those that cost nothing."""
    rows = set(re.findall(r"^\| `(AWS::\w+::\w+)` \|", document, re.MULTILINE))
    assert rows > {"AWS::DynamoDB::Table", "AWS::ElastiCache::ReplicationGroup", "AWS::Lambda::Function"}
    free = document.split("These cost nothing by themselves")[1].split("\n\n")[0]
    assert not rows & set(re.findall(r"AWS::\w+::\w+", free))
    paid = {"NatGateway", "Key", "Instance", "Cluster", "Bucket"}
    assert not paid & {name.rpartition("::")[2] for name in re.findall(r"AWS::\w+::\w+", free)}


def test_the_figures_are_this_version_s(document):
    """Each table is the one that `python -m infra.costs` prints."""
    amplification = render_amplification(item_bytes=500, page=50, shard_counts=(2, 4, 10, 32, 128))
    for table in (render_standing(), render_used(USES), amplification):
        assert table in document


def test_the_sizes_of_use_are_those_that_are_counted(document):
    """The table of what is assumed says what the code assumes."""
    table = document.split("## Three sizes of use")[1].split("## ")[0]
    figures = [
        [cell.strip().replace(",", "") for cell in line.split("|")[2:-1]]
        for line in table.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    columns = [
        [use.name]
        + [
            f"{figure:g}"
            for figure in (
                use.writes_per_second,
                use.pages_per_second,
                use.messages_per_second,
                use.item_bytes,
                use.page,
                use.hot_share,
            )
        ]
        + [str(use.shard_count) if use.hot_share else ""]
        for use in USES
    ]
    assert figures == [list(row) for row in zip(*columns, strict=True)]


def test_the_plan_is_what_the_tool_prints(document, capsys):
    """Its figures are this version's."""
    run(["plan", "--rate", "1050", "--item-bytes", "500", "--page", "50"], {})
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in printed if line and line not in document] == []


def test_alarms_are_billed_by_the_metrics_they_watch(prod):
    """As many as the template's alarms name."""
    watched = sum(
        len([m for m in alarm["Properties"].get("Metrics", ()) if "MetricStat" in m]) or 1
        for alarm in prod.of_type("AWS::CloudWatch::Alarm").values()
    )
    assert counts(list_standing(PROD))["alarms"] == watched


def test_routes_are_as_many_as_the_template_s(prod):
    """Six metrics for each of them."""
    routes = prod.of_type("AWS::ApiGatewayV2::Route")
    assert counts(list_standing(PROD))["metrics of the API's routes"] == 6 * len(routes)


def test_salting_adds_read_units_and_no_write_units():
    """The same use, with and without raised conversations."""
    plain = Use(name="plain", writes_per_second=100, pages_per_second=200, messages_per_second=10)
    salted, unsalted = counts(list_used(PROD, BUSY)), counts(list_used(PROD, plain))
    assert salted["DynamoDB, writes"] == unsalted["DynamoDB, writes"]
    assert salted["DynamoDB, reads"] == pytest.approx(unsalted["DynamoDB, reads"] + salted["… of which salting"])
    assert salted["… of which salting"] > 0
    assert unsalted["… of which salting"] == 0


def test_more_nodes_are_more_node_hours():
    """Three Redis shards with two replicas each are nine nodes."""
    larger = override(PROD, {"registry": {"shard_count": 3, "replicas_per_shard": 2}})
    assert counts(list_standing(larger))["Redis nodes"] == 9 * 730


def test_reports_are_what_the_sampling_sends():
    """One for each `sampling_distance_wcu` that is written."""
    z = WriterSettings.defaults().sampling_distance_wcu
    assert BUSY.reports_per_second == BUSY.writes_per_second / z


def test_a_use_of_one_s_own_is_printed(capsys):
    """The command of the document works, and its figures follow its options."""
    main(["--writes", "100", "--pages", "200", "--messages", "10", "--hot-share", "0.5", "--shard-count", "8"])
    out = capsys.readouterr().out
    mine = render_used((BUSY,)).splitlines()[2:]
    assert "| yours |" in out
    assert [line for line in mine if line not in out] == []
