"""`make simulate`: strategies compared, a rush of readers, and a rush that is over; a summary and a page of tables.

Both files are a pure function of the scenario, its messages and the seed: two runs write the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeVar

from tools.figures import MISSED, Bar, Distribution, say_bars
from tools.limits.latency import READ_PROFILE, WRITE_PROFILE, LatencyProfile
from tools.scenarios.cooling import SEEDS as COOLING_SEEDS
from tools.scenarios.cooling import CoolingStudy, run_cooling, sum_up_coolings
from tools.scenarios.read_rush import RUSHES, ReadRush, RushStudy, run_rush, sum_up_rushes
from tools.scenarios.results import OUT_DIR, Comparison, StrategySummary
from tools.scenarios.strategies import ALARM_SECONDS, HAND_SECONDS, STRATEGIES
from tools.seeds import Advance, open_workers
from tools.world.run import simulate
from tools.world.scenario import SCENARIOS, Scenario, scenario_by_name, scenario_of_messages

ResultT = TypeVar("ResultT")

FORMAT = 1
"""Version of `summary.json`; docs/simulation-summary.md describes it."""
DEFAULT_SCENARIO = "compare"
COMPARED_SEEDS = 12
STRATEGY_NAMES: Mapping[str, str] = {
    "none": "DynamoDB alone",
    "sources": "once-a-minute poller",
    "alarm": "alarm, then by hand",
    "static": "every key salted",
    "in_band": "hotpartition, in band",
    "ours": "hotpartition",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report is made of, as `summary.json` holds it; `command` makes the same one again."""

    command: str
    comparison: Comparison
    read_rush: RushStudy
    cooling: CoolingStudy


def build_report(contents: Contents) -> str:
    """Build the page: self-contained, without scripts, the same for the same results."""
    comparison = contents.comparison
    head = ("", *(STRATEGY_NAMES[each.strategy] for each in comparison.summaries))
    rows = [(text, *(show(each) for each in comparison.summaries)) for text, show in COMPARED.items()]
    bars = (*contents.read_rush.bars, *contents.cooling.bars)
    parts = [
        "<h1>One rush, met in several ways</h1>",
        f"<p>{escape(comparison.description)}</p>",
        build_table(head, rows),
        "<h2>Readers, and a rush that is over</h2>",
        build_table(("", "measured", "bar", "holds"), [_bar_row(bar) for bar in bars]),
        "<h2>Assumed</h2>",
        "".join(f"<p>{escape(text)}</p>" for text in comparison.assumptions),
        f"<p>Made by <code>{escape(contents.command)}</code>.</p>",
    ]
    start = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>Simulation</title>{STYLE}"
    return f"{start}{''.join(parts)}</html>\n"


def build_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Build a table; the first column names its rows."""
    lines = ["<tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr>"]
    for name, *cells in rows:
        lines.append(f"<tr><th>{escape(name)}</th>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table>{''.join(lines)}</table>"


def _bar_row(bar: Bar) -> tuple[str, ...]:
    measured = "never" if bar.measured is None else f"{bar.measured:g}"
    return bar.name, measured, f"{bar.limit:g} {bar.unit}", "yes" if bar.holds else "no"


STYLE = (
    "<style>body{font:16px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ccc}"
    "th:first-child{text-align:left}</style>"
)
COMPARED: Mapping[str, Callable[[StrategySummary], str]] = {
    "of a rush of ten minutes not stored": lambda each: spread(each.unserved_share_of_ten_minutes, 1, 100.0, " %"),
    "95 % stored within a second, from the onset": lambda each: since_onset(each.prompt_seconds),
    "raised after": lambda each: since_onset(each.raised_seconds),
    "N": lambda each: spread(each.final_shard_count, 0),
    "write units for each stored one": lambda each: spread(each.wcu_per_stored_wcu, 2),
    "messages lost, doubled": lambda each: f"{each.missing}, {each.duplicated}",
}
"""The rows of the comparison: each with what it shows of a strategy."""


def spread(values: Distribution, digits: int = 1, factor: float = 1.0, unit: str = "") -> str:
    """Write the median of the seeds and, in brackets, their lowest and highest value where they differ."""
    if values.count == values.missing:
        return "-"

    def written(value: float | None) -> str:
        return "never" if value is None else f"{factor * value:.{digits}f}"

    low, high = written(values.lowest), written(None if values.missing else values.highest)
    median = written(values.p50) + (unit if values.p50 is not None else "")
    return median if low == high else f"{median} ({low} to {high})"


def since_onset(values: Distribution) -> str:
    """Write how long after the onset something happened in the seeds: at once, after so long, or never."""
    if values.count == values.missing:
        return "never"
    return "at once" if values.highest == 0 and not values.missing else spread(values, 2, unit=" s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a report is made from."""

    scenario: Scenario
    seed: int
    seeds: int = 1
    """How many seeds are compared, from `seed` on."""
    rushes: tuple[ReadRush, ...] = RUSHES
    cooling_seeds: int = COOLING_SEEDS
    command: str = "make simulate"


def gather(plan: Plan, pool: Executor, bars: Mapping[str, Advance]) -> Contents:
    """Run everything, in as many processes as the pool has; the result does not depend on how many.

    `bars` are called after each step of `comparison`, `read_rush` and `cooling`.
    """

    def submit(name: str, work: Callable[..., ResultT], *tasks: tuple[Any, ...]) -> list[Future[ResultT]]:
        futures = [pool.submit(work, *task) for task in tasks]
        for future in futures:
            future.add_done_callback(lambda _: bars[name]())
        return futures

    scenario, seeds = plan.scenario, range(plan.seed, plan.seed + plan.seeds)
    compared = [submit("comparison", simulate, *((scenario, seed, name) for seed in seeds)) for name in STRATEGIES]
    rushes = submit("read_rush", run_rush, *((rush, plan.seed) for rush in plan.rushes))
    coolings = submit("cooling", run_cooling, *((plan.seed + index,) for index in range(plan.cooling_seeds)))
    runs = [[future.result() for future in futures] for futures in compared]
    comparison = Comparison(
        scenario=scenario.name,
        description=scenario.description,
        seed=plan.seed,
        assumptions=_list_assumptions(scenario),
        runs=tuple(of_strategy[0] for of_strategy in runs),
        seeds=plan.seeds,
        summaries=tuple(StrategySummary.of(of_strategy) for of_strategy in runs),
    )
    return Contents(
        comparison=comparison,
        read_rush=sum_up_rushes(plan.seed, [future.result() for future in rushes]),
        cooling=sum_up_coolings([future.result() for future in coolings]),
        command=plan.command,
    )


def write_files(contents: Contents, out_dir: Path) -> None:
    """Write summary and report."""
    out_dir.mkdir(parents=True, exist_ok=True)
    summary = json.dumps({"format": FORMAT, **asdict(contents)}, indent=1) + "\n"
    (out_dir / "summary.json").write_text(summary, encoding="utf-8")
    (out_dir / "report.html").write_text(build_report(contents), encoding="utf-8")


def step_counts(plan: Plan) -> dict[str, int]:
    """Tell how many steps each part has, for its progress bar."""
    return {
        "comparison": len(STRATEGIES) * plan.seeds,
        "read_rush": len(plan.rushes),
        "cooling": plan.cooling_seeds,
    }


def read_plan(arguments: Sequence[str]) -> tuple[Plan, Path]:
    """Read the command line; something wrong with it ends the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.scenarios compare", description=__doc__)
    parser.add_argument("--scenario", default="", help=f"one of {', '.join(sorted(SCENARIOS))}")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument(
        "--seeds", type=int, help=f"how many are compared ({COMPARED_SEEDS}; 1 with --scenario or --messages)"
    )
    parser.add_argument("--messages", type=Path, help="a file of messages to replay: one JSON object a line, or .gz")
    parser.add_argument("--out", type=Path, default=OUT_DIR)
    options = parser.parse_args(arguments)
    name = options.scenario or DEFAULT_SCENARIO
    usual = COMPARED_SEEDS if name == DEFAULT_SCENARIO and not options.messages else 1
    seeds = usual if options.seeds is None else options.seeds
    if seeds < 1:
        parser.error(f"--seeds should be at least 1, not {seeds}")
    again = f"SEED={options.seed}" + ("" if seeds == usual else f" SEEDS={seeds}")
    if options.messages:
        if options.scenario:
            parser.error("give a scenario or messages, not both")
        if not options.messages.is_file():
            parser.error(f"{options.messages} is no file")
        command = f"make simulate MESSAGES={options.messages} {again}"
    else:
        command = f"make simulate SCENARIO={name} {again}"
    try:
        scenario = scenario_of_messages(options.messages) if options.messages else scenario_by_name(name)
    except ValueError as error:
        parser.error(str(error))
    return Plan(scenario=scenario, seed=options.seed, seeds=seeds, command=command), options.out


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    plan, out_dir = read_plan(arguments)
    with open_workers(step_counts(plan)) as (pool, bars):
        contents = gather(plan, pool, bars)
    write_files(contents, out_dir)
    _say(contents, out_dir)
    return 0 if contents.read_rush.passed and contents.cooling.passed else MISSED


def _say(contents: Contents, out_dir: Path) -> None:
    for summary_ in contents.comparison.summaries:
        name = STRATEGY_NAMES[summary_.strategy]
        unserved = spread(summary_.unserved_share_of_ten_minutes, factor=100, unit=" %")
        soon = since_onset(summary_.prompt_seconds)
        print(f"{name}: of a rush of ten minutes {unserved} is not stored; 95 % of what comes is, within 1 s: {soon}")
    say_bars((*contents.read_rush.bars, *contents.cooling.bars))
    print(out_dir / "report.html")
    print(out_dir / "summary.json")


def _list_assumptions(scenario: Scenario) -> tuple[str, ...]:
    """List what is assumed beyond AWS's own words."""
    clients, writers = scenario.clients, scenario.writers
    return (
        "Clients are open-loop: new writes come whether earlier ones are answered or not.",
        (
            f"A refused client repeats after {clients.retry_after_seconds:g} s or up to half as long again, and gives "
            f"up after {clients.attempts} attempts; each is a request that itself tries for "
            f"{scenario.settings.writer.request_budget_ms} ms."
        ),
        f"A write takes {_profile(WRITE_PROFILE)} in DynamoDB, a query {_profile(READ_PROFILE)} (assumed).",
        (
            f"{writers.warm:,} execution environments are warm; each serves one request at a time, and a request goes "
            "to any idle one."
        ),
        (
            "The table's partitions are equal hash ranges with 1,000 write and 3,000 read units a second each, and no "
            "burst above that; none is split during the run."
        ),
        (
            f"{scenario.other_wcu:,.0f} WCU/s of other traffic are charged evenly to all partitions, not request by "
            "request."
        ),
        (
            f"The person whom an alarm calls has spread the conversation {ALARM_SECONDS:.0f} s after the onset; every "
            f"environment follows at once. Of the time before, {HAND_SECONDS:.0f} s are simulated."
        ),
        (
            "Where items are large, a quarter of a second holds few of them: N varies more than with small ones, for "
            "which `make simulate-step` has it."
        ),
        "Redis is up all the time; every strategy that uses it is spared its failures here.",
        (
            "The consumer runs when the rush begins: EventBridge Scheduler starts one each minute, give or take, and "
            "each works until the next is there."
        ),
    )


def _profile(profile: LatencyProfile) -> str:
    at = profile.percentiles_ms
    return f"{at[50]:g} ms (p50), {at[99]:g} ms (p99), {at[99.9]:g} ms (p99.9)"
