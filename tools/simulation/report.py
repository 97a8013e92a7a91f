"""`make simulate`: the comparison, the read rush and the scale study, as a report and its figures.

Writes `summary.json`, `report.html` and each picture as a file, all a pure function of the scenario, its messages and
the seed: two runs write the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tools.bars import MISSED, say_bars
from tools.partition_model.latency import READ_PROFILE, WRITE_PROFILE, LatencyProfile
from tools.reports.page import remove_results
from tools.simulation.cooling import SEEDS as COOLING_SEEDS
from tools.simulation.cooling import run_coolings
from tools.simulation.read_rush import RUSHES, ReadRush, run_rushes
from tools.simulation.report_page import STRATEGY_NAMES, Contents, build_pictures, build_report, since_onset, spread
from tools.simulation.results import OUT_DIR, Comparison, StrategySummary
from tools.simulation.run import simulate
from tools.simulation.scale import LEVELS, Level, run_study
from tools.simulation.scenarios import SCENARIOS, Scenario, scenario_by_name, scenario_of_messages
from tools.simulation.strategies import (
    ALARM_SECONDS,
    BATCH,
    DRAINERS,
    HAND_SECONDS,
    PAUSE_SECONDS,
    POLL_SECONDS,
    SEND_SECONDS,
    STRATEGIES,
)
from tools.workers import Advance, open_workers

FORMAT = 1
"""Version of `summary.json`; docs/simulation-summary.md describes it."""
DEFAULT_SCENARIO = "compare"
COMPARED_SEEDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a report is made from."""

    scenario: Scenario
    seed: int
    seeds: int = 1
    """How many seeds are compared, from `seed` on."""
    rushes: tuple[ReadRush, ...] = RUSHES
    levels: tuple[Level, ...] = LEVELS
    cooling_seeds: int = COOLING_SEEDS
    command: str = "make simulate"


def gather(plan: Plan, pool: Executor, bars: Mapping[str, Advance]) -> Contents:
    """Run everything, in as many processes as the pool has; the result does not depend on how many.

    `bars` are called after each step of `comparison`, `read_rush` and `scale`.
    """
    compared = {
        strategy: [pool.submit(simulate, plan.scenario, plan.seed + index, strategy) for index in range(plan.seeds)]
        for strategy in STRATEGIES
    }
    for future in chain.from_iterable(compared.values()):
        future.add_done_callback(lambda _: bars["comparison"]())
    read_rush = run_rushes(plan.rushes, seed=plan.seed, pool=pool, progress=bars["read_rush"])
    scale = run_study(plan.levels, first_seed=plan.seed, pool=pool, progress=bars["scale"])
    seeds = range(plan.seed, plan.seed + plan.cooling_seeds)
    cooling = run_coolings(seeds, pool=pool, progress=bars["cooling"])
    scenario = plan.scenario
    runs = [[future.result() for future in futures] for futures in compared.values()]
    comparison = Comparison(
        scenario=scenario.name,
        description=scenario.description,
        seed=plan.seed,
        assumptions=_list_assumptions(scenario),
        runs=tuple(of_strategy[0] for of_strategy in runs),
        seeds=plan.seeds,
        summaries=tuple(StrategySummary.of(of_strategy) for of_strategy in runs),
    )
    return Contents(comparison=comparison, read_rush=read_rush, scale=scale, cooling=cooling, command=plan.command)


def summary(contents: Contents) -> dict[str, Any]:
    """Build `summary.json`."""
    return {
        "format": FORMAT,
        "command": contents.command,
        "comparison": asdict(contents.comparison),
        "read_rush": asdict(contents.read_rush),
        "scale": asdict(contents.scale),
        "cooling": asdict(contents.cooling),
    }


def write_files(contents: Contents, out_dir: Path) -> list[Path]:
    """Write summary, report and pictures, and return their paths."""
    out_dir.mkdir(parents=True, exist_ok=True)
    pictures = build_pictures(contents)
    files = {
        "summary.json": json.dumps(summary(contents), indent=1) + "\n",
        "report.html": build_report(contents, pictures),
        **{f"{name}.svg": picture.file() for name, picture in pictures.items()},
    }
    for name, text in files.items():
        (out_dir / name).write_text(text, encoding="utf-8")
    return [out_dir / name for name in files]


def step_counts(plan: Plan) -> dict[str, int]:
    """Tell how many steps each part has, for its progress bar."""
    return {
        "comparison": len(STRATEGIES) * plan.seeds,
        "read_rush": len(plan.rushes),
        "scale": sum(level.seeds for level in plan.levels),
        "cooling": plan.cooling_seeds,
    }


def read_plan(arguments: Sequence[str]) -> tuple[Plan, Path]:
    """Read the command line; something wrong with it ends the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.simulation compare", description=__doc__)
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
    remove_results(out_dir)
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
    largest = contents.scale.levels[-1]
    print(
        f"{largest.writes_per_second:,} writes/s: half of the rushes are decided within "
        f"{largest.detection_seconds.p50} s, 99 % within {largest.detection_seconds.p99} s"
    )
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
            f"{scenario.settings.writer.requests.request_budget_ms} ms."
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
            f"A queue takes {1000 * SEND_SECONDS:.0f} ms to accept a message and up to {1000 * POLL_SECONDS:.0f} ms to "
            f"hand it over; {DRAINERS} consumers write {BATCH} messages each, one after the other, and put one that is "
            f"refused again within {1000 * PAUSE_SECONDS:.0f} ms until it is stored."
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
