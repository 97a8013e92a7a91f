"""Commands and figures of README, runbook and `--help` are those of this version: what can be computed is compared.

A figure in their sentences is either a claim, whose value comes from the code here, or a fact of somebody else's.
One that is neither fails the last test: whoever writes it says here where it comes from.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest

from hotpartition.control.consumer import REFRESH_MS
from hotpartition.control.operations import MAX_SINCE_AHEAD_MS, SINCE_AGO_MS
from hotpartition.core.detector import EVIDENCE_PAUSE_MS, SUSTAINED_SECONDS
from hotpartition.core.route import MAX_CHOICES, MAX_SHARD_COUNT
from hotpartition.engine.raising import RAISE_BUDGET_MS
from hotpartition.redis.cluster import SENTINEL_COUNT
from hotpartition.redis.reports import STREAM_AGE_MS
from hotpartition.runtime.ends import PATIENT_TIMEOUTS_MS
from hotpartition.runtime.settings import ConsumerSettings, WriterSettings
from hotpartition.runtime.thresholds import build_thresholds
from hotpartition_cdk.alarms import list_alarms
from hotpartition_cli.arguments import _build_parser, parse_arguments
from hotpartition_cli.check import Limits, write_units_at_most
from hotpartition_cli.errors import Status
from hotpartition_cli.plan import KEY_LIMIT_WCU, default_thresholds, make_plan
from hotpartition_messages.page_costs import Load, read_pages
from infra.costs import list_standing
from infra.environments import DEV, FULL_CPU_MB, PROD
from tools.demo.scale import choose_scale
from tools.demo.workload import DEFAULT_DURATION_SECONDS, generate_workload
from tools.local.partitions import DEFAULT_READ_LIMIT_RCU
from tools.simulation.scale import CONSUMER_REPORTS_PER_SECOND

ROOT = Path(__file__).resolve().parents[2]
ENVIRON = {"HOTPARTITION_URL": "http://u"}
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
UNRESERVED = 100
"""Concurrency that Lambda keeps for functions without a reservation (Lambda guide, "Reserved concurrency")."""
LEAST_COMMANDS = 15


def parsers():
    """The tool's parsers: of all commands together, and of each."""
    parser = _build_parser()
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *commands.choices.values()]


PAGES = {
    "README": (ROOT / "README.md").read_text(),
    "runbook": (ROOT / "docs/runbook.md").read_text(),
    "help": "\n".join(parser.format_help() for parser in parsers()),
}


def sentences(page):
    """A page without what is typed, linked or numbered, on one line."""
    text = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<img[^>]*>|^\d+\. ", "", text, flags=re.MULTILINE)
    text = re.sub(r"^  hotpartition .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)", "]", text))


def typed(page):
    """The tool's command lines of a page, in order."""
    found = re.findall(r"^(?:\$ | {2})(?:\.venv/bin/)?hotpartition ([a-z].*?)(?:\s+#.*)?$", PAGES[page], re.MULTILINE)
    return [shlex.split(line) for line in found if not line.startswith("COMMAND")]


def gb_seconds(environment):
    """Millions of GB-s that a stack's consumers take in a month, used or not."""
    (of_consumer,) = [quantity.count for quantity in list_standing(environment) if quantity.unit == "GB-s"]
    return round(of_consumer / 1e6, 1)


def alarm(name):
    """The threshold of an alarm."""
    functions = ("write_message", "read_messages", "consume_reports", "operate")
    (found,) = [a for a in list_alarms(PROD, functions=functions, routes=[]) if a.name == name]
    return found.threshold


def makefile(name):
    """The default of a variable of the Makefile."""
    return float(re.search(rf"^{name} \?= (\d+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1])


WRITER, CONSUMER, THRESHOLDS = WriterSettings.defaults(), ConsumerSettings.defaults(), default_thresholds()
TWO_CORES = choose_scale(cores=2)
CHAT = generate_workload(seed=1, scale=TWO_CORES)
AMPLIFICATION = [
    read_pages(count, Load(messages_per_second=1, item_bytes=500, page=50)).rcu_eventual for count in (0, 10)
]

CLAIMS = {
    # README
    r"([\d,]+) write units a second": KEY_LIMIT_WCU,
    r"In `prod`: (\w+) `([\w.]+)` nodes and ([\d.]+) million GB-s": (
        WORDS[PROD.registry.node_count],
        PROD.registry.node_type,
        gb_seconds(PROD),
    ),
    r"In `dev`: (\w+) `([\w.]+)` node and ([\d.]+) million GB-s": (
        WORDS[DEV.registry.node_count],
        DEV.registry.node_type,
        gb_seconds(DEV),
    ),
    r"page of 50 small messages takes (\w+) times the read units at N = 10": WORDS[
        round(AMPLIFICATION[1] / AMPLIFICATION[0])
    ],
    r"one partition takes (\d+) writes a second. One conversation gets about (\d+)": (
        TWO_CORES.partition_write_limit_wcu,
        TWO_CORES.hot_writes_per_second,
    ),
    r"hot above ([\d,]+) WCU in a second, or above ([\d,]+) WCU/s over (\w+) seconds": (
        THRESHOLDS.hot_at_once_wcu,
        THRESHOLDS.hot_sustained_wcu,
        WORDS[SUSTAINED_SECONDS],
    ),
    r"up to (\w+) shards that the message id chooses": WORDS[MAX_CHOICES],
    r"plays (\d+) seconds of chat: some ([\d,]+) messages in (\d+) conversations": (
        DEFAULT_DURATION_SECONDS,
        round(len(CHAT.offers), -2),
        len(CHAT.conversations),
    ),
    r"listens on port (\d+)": makefile("PORT"),
    r"`prod` reserves (\d+) for the consumer, so the account needs at least (\d+)": (
        PROD.consumer_concurrency * PROD.consumers,
        PROD.consumer_concurrency * PROD.consumers + UNRESERVED,
    ),
    # runbook
    r"`verify` exits with (\d) when registry and journal are equal, (\d) when they differ, (\d) when": (
        Status.FINE,
        Status.FINDING,
        Status.FAILED,
    ),
    r"`(?:hotpartition )?verify` exits with (\d)": Status.FINE,
    r"N doubles every (\d+) s": EVIDENCE_PAUSE_MS / 1_000,
    r"some ([\d,]+) strongly consistent first pages": DEFAULT_READ_LIMIT_RCU,
    r"A write tries for (\d+) ms": WRITER.requests.request_budget_ms,
    r"a pass of raises takes up to (\d+) s": RAISE_BUDGET_MS / 1_000,
    r"`sampling_distance_wcu` \((\d+) to 10 halves them": WRITER.sampling.sampling_distance_wcu,
    r"`consumer.memory_mb` up to ([\d,]+)": FULL_CPU_MB,
    r"a whole CPU \(([\d,]+) MB\)": FULL_CPU_MB,
    r"connecting takes longer than (\d+) ms \((\d+) s for the consumer": (
        WRITER.registry.registry_connect_timeout_ms,
        PATIENT_TIMEOUTS_MS[0] / 1_000,
    ),
    r"`max_shard_count` shards \((\d+)\)": CONSUMER.heat.max_shard_count,
    r"by hand N may be up to ([\d,]+)": MAX_SHARD_COUNT,
    r"N may be from 2 to ([\d,]+)\. It counts for messages from (\d+) s ago on": (
        MAX_SHARD_COUNT,
        SINCE_AGO_MS / 1_000,
    ),
    r"at most a (\w+) ahead": "day" if MAX_SINCE_AHEAD_MS == 24 * 3_600_000 else "other",
    r"write function crashed, timed out \((\d+) s\)": PROD.writer.timeout_seconds,
    r"read function crashed, timed out \((\d+) s\)": PROD.reader.timeout_seconds,
    r"ran into its timeout \((\d+) s; it should stop at (\d+) s\)": (
        PROD.consumer.timeout_seconds,
        CONSUMER.run_seconds,
    ),
    r"`consumer_concurrency` \((\d+)\) for each consumer": PROD.consumer_concurrency,
    r"nothing is reserved \((\d+), as in `dev`\)": DEV.consumer_concurrency,
    r"A concurrency below (\d+) for each consumer": PROD.consumer_concurrency,
    r"`sampling_distance_wcu` . (\d+) of them": STREAM_AGE_MS / 1_000,
    r"busy for (\d+) % of five minutes": alarm("RegistryCpu"),
    r"`route_cache_seconds` from (\d+) to 4": WRITER.routes.route_cache_seconds,
    r"writers use the new shards within (\d+) s, so long a route is cached": WRITER.routes.route_cache_seconds,
    r"puts hot ones there again within (\d+) s": REFRESH_MS / 1_000,
    r"notices within (\d+) s \(each (\d+)th of the slots": (REFRESH_MS / 1_000, SENTINEL_COUNT),
    r"above ([\d,]+) rings": alarm("ConsumerBehind"),
    r"at most ([\d,]+) reports a second for each consumer, which are ([\d,]+) WCU/s": (
        CONSUMER_REPORTS_PER_SECOND,
        CONSUMER_REPORTS_PER_SECOND * WRITER.sampling.sampling_distance_wcu,
    ),
    r"Lambda, concurrent executions \| 10 \| (\d+) \| `dev` reserves none, and up to (\d+) runs": (
        PROD.consumer_concurrency * PROD.consumers + UNRESERVED,
        PROD.consumer_concurrency,
    ),
    r"`prod` reserves (\d+) \(`consumer_concurrency`": PROD.consumer_concurrency * PROD.consumers,
    r"API Gateway, requests a second \| ([\d,]+) \| ([\d,]+) \|": (DEV.api.write_rate, PROD.api.write_rate),
    r"ElastiCache, nodes and users \| (\d) and 4 free \| (\d) and 4 free": (
        DEV.registry.node_count,
        PROD.registry.node_count,
    ),
    r"writes to the new stack\]: some ([\d,]+) write units": round(write_units_at_most(Limits()), -3),
    # --help
    r"mean WCU/s of the last (\d+) s": SUSTAINED_SECONDS,
    r"shards, 2 to (\d+)": MAX_SHARD_COUNT,
    r"default: (\d+) s ago": SINCE_AGO_MS / 1_000,
    r"exit status: (\d) fine (\d) something to \w+: [^\d]*(\d) the command is wrong (\d) it could not be done": (
        Status.FINE,
        Status.FINDING,
        Status.USAGE,
        Status.FAILED,
    ),
}
"""Sentences with figures, and what the code says; a figure outside of brackets is an example that the rest is for."""

FACTS = (
    # of HTTP, of AWS, of other programs
    r"\b(?:204|404|409|410|412|413|429|5\d\d|5xx)\b",
    r"[Mm]ore than 1 %|\b1 % of the|slowest 1 %|`?100 %|keeps 100",
    r"concurrency (?:of|may be) 10|quota of 10|default quota is [\d,]+|VPCs \| 1 free \| 1 free",
    r"ends after 12 hours|for 14 days|within 60 s|reaches back 35 days|some [23]00 bytes each",
    r"concurrency to 0 on purpose|shard_count` . \(1 \+|busiest value, 0 to 1",
    r"Apache 2\.0|Python 3\.11 or newer, and Node\.js 20 or newer|130 interrupted",
    # what `make simulate` showed (comparison, twenty seeds)
    r"steps from 200 to 4,000 WCU/s|\b(?:76|38|0) % (?:of its writes )?\([\d.]+ to [\d.]+\)",
    r"asks 14 keys|makes them ask 16",
    # what was seen, names, and what is typed
    r"It is raised [\d.]+ s later|decision \d+|[Ww]ay \d|Exit status 1|`[^`]*`|http://[\d.:]+",
)


def figures(match):
    """What a claim's sentence says, as numbers where it is one."""
    return tuple(float(t.replace(",", "")) if re.fullmatch(r"[\d,.]+", t) else t for t in match.groups())


@pytest.mark.parametrize("pattern", CLAIMS)
def test_what_is_claimed_is_what_the_code_says(pattern):
    """Wherever the sentence stands; one that stands nowhere any more has to go from here."""
    value = CLAIMS[pattern]
    expected = value if isinstance(value, tuple) else (value,)
    found = [match for page in PAGES for match in re.finditer(pattern, sentences(page))]
    assert found, "no page says so any more"
    assert {figures(match) for match in found} == {expected}


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_has_a_source(page):
    """A figure in a sentence is claimed above, a default that the next test compares, or a known fact."""
    text = sentences(page)
    known = [
        match.span()
        for pattern in (*CLAIMS, *FACTS, r"default [\d,.]+", r"--[a-z-]+ [\d,.]+")
        for match in re.finditer(pattern, text)
    ]
    unknown = [
        text[max(0, match.start() - 50) : match.end() + 30]
        for match in re.finditer(r"(?<![\w.#/-])\d(?:[\d,]*\d)?(?:\.\d+)?", text)
        if not any(start <= match.start() and match.end() <= end for start, end in known)
    ]
    assert unknown == []


def test_help_names_the_defaults_that_apply():
    """Of each option that says one."""
    said = [
        (action.dest, float(stated[1].replace(",", "")), action.default)
        for parser in parsers()
        for action in parser._actions
        if (stated := re.search(r"default ([\d,.]*\d)", action.help or ""))
    ]
    assert len(said) > 4
    assert [each for each in said if each[1] != each[2]] == []


def test_every_command_is_one():
    """Of README, runbook and `--help`: with the options that there are."""
    commands = [command for page in PAGES for command in typed(page)]
    assert len(commands) > LEAST_COMMANDS
    for command in commands:
        parse_arguments(command, ENVIRON)


@pytest.mark.parametrize("page", PAGES)
def test_who_follows_a_plan_raises_to_what_it_prints(page):
    """The N of `raise` is that of the plan before it, and no plan ends at the cap that it is given."""
    commands = [parse_arguments(command, ENVIRON) for command in typed(page)]
    planned = None
    for options in commands:
        if options.command == "plan" and options.item_bytes:
            load = Load(messages_per_second=options.rate, item_bytes=options.item_bytes, page=options.page)
            given = {"max_shard_count": options.max_shard_count, "target_shard_wcu": options.target_shard_wcu}
            settings = ConsumerSettings.defaults(**{name: value for name, value in given.items() if value})
            plan = make_plan(load, build_thresholds(settings))
            assert plan.is_covered
            assert not plan.is_at_cap
            planned = plan.shard_count
        if options.command == "raise" and planned:
            assert options.shard_count == planned
    assert planned or page != "runbook"


def test_route_is_cached_as_long_as_the_picture_says():
    """The picture of the README has a figure as well."""
    assert re.findall(r"cached for (\d+) s", PAGES["README"]) == [f"{WRITER.routes.route_cache_seconds:g}"]


def test_versions_that_are_asked_for_are_those_of_the_project():
    """Python's and Node's."""
    ((python, node),) = re.findall(r"Python ([\d.]+) or newer, and Node\.js (\d+) or newer", sentences("README"))
    assert f'requires-python = ">={python}"' in (ROOT / "pyproject.toml").read_text()
    engines = json.loads((ROOT / "package-lock.json").read_text())["packages"]["node_modules/aws-cdk"]["engines"]
    least = re.findall(r"(\d+)", engines["node"])
    assert int(node) >= int(least[0])
