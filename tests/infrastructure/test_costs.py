"""docs/costs.md: every resource of the template is in it, and its figures are what the formulas give today."""

from __future__ import annotations

import re

import pytest

from hotpartition.runtime.settings import WriterSettings
from hotpartition_cdk.options import override
from hotpartition_cli.main import run
from infra import prices
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
from infra.prices import render_example

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
    z = WriterSettings.defaults().sampling.sampling_distance_wcu
    assert BUSY.reports_per_second == BUSY.writes_per_second / z


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--writes", "-1"], "argument --writes: should be a number, 0 or more, not -1"),
        (["--pages", "inf"], "argument --pages: should be a number, 0 or more, not inf"),
        (["--messages", "many"], "argument --messages: should be a number, 0 or more, not many"),
        (["--item-bytes", "-500"], "argument --item-bytes: should be a whole number, from 1 to 409,600, not -500"),
        (["--page", "0"], "argument --page: should be a whole number, from 1 to 200, not 0"),
        (["--hot-share", "1.5"], "argument --hot-share: should be a number, from 0 to 1, not 1.5"),
        (["--shard-count", "-4"], "argument --shard-count: should be a whole number, from 2 to 1,024, not -4"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(capsys, arguments, sentence):
    """A negative rate would give a negative bill."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"python -m infra.costs: {sentence}\n"


def test_a_use_may_be_of_reads_alone(capsys):
    """Whoever gives pages and no writes means a use of their own as well."""
    main(["--pages", "10"])
    out = capsys.readouterr().out
    assert "| yours |" in out
    assert re.search(r"DynamoDB, writes \| million WCU \| 0 \|", out)


def test_the_example_in_money_is_this_version_s(document):
    """It is computed from the same quantities, and marked: its day, its region, and that it is no quote."""
    section = document.split("## An example in money")[1].split("\n## ")[0]
    assert render_example(USES[:2]) in section
    for words in (prices.DATE, prices.REGION, "no quote"):
        assert words in section


def test_every_line_has_a_price_or_says_that_it_has_none():
    """No quantity falls out of the sum without anybody noticing, and no price is for nothing."""
    standing = {quantity.what for quantity in list_standing(PROD)} - {"Redis nodes"}
    assert standing == set(prices.STANDING)
    used = {quantity.what for quantity in list_used(PROD, USES[0])}
    assert used == set(prices.USED) | prices.NOT_PRICED


def test_a_price_is_for_the_unit_that_is_counted():
    """2,920 node hours at 12.64 cents."""
    assert dict(prices.price_standing(PROD))["Redis nodes"] == pytest.approx(369.09, abs=0.01)
    assert dict(prices.price_used(USES[1]))["DynamoDB, writes"] == pytest.approx(262.8 * 0.625)


def test_rules_of_contributor_insights_are_as_many_as_the_template_s(prod):
    """Two for the table and two for each index, where the mode is the one for throttled keys."""
    table = prod.only("AWS::DynamoDB::Table")
    watched = [table, *table["GlobalSecondaryIndexes"]]
    assert {each["ContributorInsightsSpecification"]["Mode"] for each in watched} == {"THROTTLED_KEYS"}
    assert counts(list_standing(PROD))["rules of Contributor Insights"] == 2 * len(watched)


def test_a_use_of_one_s_own_is_printed(capsys):
    """The command of the document works, and its figures follow its options."""
    main(["--writes", "100", "--pages", "200", "--messages", "10", "--hot-share", "0.5", "--shard-count", "8"])
    out = capsys.readouterr().out
    mine = render_used((BUSY,)).splitlines()[2:]
    assert "| yours |" in out
    assert [line for line in mine if line not in out] == []
