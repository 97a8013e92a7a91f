"""`make simulate`: the comparison, the read rush and the scale study, as a report and its figures.

Writes `summary.json`, `report.html` and each picture as a file, all a pure function of the scenario, its messages and
the seed: two runs write the same bytes.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tools.reports.page import remove_results
from tools.simulation.read_rush import RUSHES, ReadRush, run_rushes
from tools.simulation.report_page import build_report, since_onset, spread
from tools.simulation.report_pictures import STRATEGY_NAMES, Contents, build_pictures
from tools.simulation.results import Comparison, RunResult, StrategySummary
from tools.simulation.rivals import comparison_assumptions
from tools.simulation.run import simulate
from tools.simulation.scale import LEVELS, run_study
from tools.simulation.scale_traffic import Level
from tools.simulation.scenarios import SCENARIOS, Scenario, scenario_by_name, scenario_of_messages
from tools.simulation.strategies import STRATEGIES
from tools.simulation.studies import MISSED, OUT_DIR, PROCESSES, say_bars

FORMAT = 1
"""Version of `summary.json`; docs/simulation-summary.md describes it."""
DEFAULT_SCENARIO = "compare"
COMPARED_SEEDS = 12

Bar = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a report is made from."""

    scenario: Scenario
    seed: int
    seeds: int = 1
    """How many seeds are compared, from `seed` on."""
    strategies: tuple[str, ...] = tuple(STRATEGIES)
    rushes: tuple[ReadRush, ...] = RUSHES
    levels: tuple[Level, ...] = LEVELS
    command: str = "make simulate"


def gather(plan: Plan, pool: Executor, bars: Mapping[str, Bar]) -> Contents:
    """Run everything, in as many processes as the pool has; the result does not depend on how many.

    `bars` are called after each step of `comparison`, `read_rush` and `scale`.
    """
    compared = {
        strategy: [pool.submit(simulate, plan.scenario, plan.seed + index, strategy) for index in range(plan.seeds)]
        for strategy in plan.strategies
    }
    for future in chain.from_iterable(compared.values()):
        _after(future, bars["comparison"])
    read_rush = run_rushes(plan.rushes, seed=plan.seed, pool=pool, progress=bars["read_rush"])
    scale = run_study(plan.levels, first_seed=plan.seed, pool=pool, progress=bars["scale"])
    scenario = plan.scenario
    runs = [[future.result() for future in futures] for futures in compared.values()]
    comparison = Comparison(
        scenario=scenario.name,
        description=scenario.description,
        seed=plan.seed,
        assumptions=comparison_assumptions(scenario),
        runs=tuple(of_strategy[0] for of_strategy in runs),
        seeds=plan.seeds,
        summaries=tuple(StrategySummary.of(of_strategy) for of_strategy in runs),
    )
    return Contents(comparison=comparison, read_rush=read_rush, scale=scale, command=plan.command)


def summary(contents: Contents) -> dict[str, Any]:
    """Build `summary.json`."""
    return {
        "format": FORMAT,
        "command": contents.command,
        "comparison": asdict(contents.comparison),
        "read_rush": asdict(contents.read_rush),
        "scale": asdict(contents.scale),
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
        "comparison": len(plan.strategies) * plan.seeds,
        "read_rush": len(plan.rushes),
        "scale": sum(level.seeds for level in plan.levels),
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
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console) as progress,
        ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=rarely_collect) as pool,
    ):
        tasks = {name: progress.add_task(name, total=count) for name, count in step_counts(plan).items()}
        contents = gather(plan, pool, {name: partial(progress.advance, task) for name, task in tasks.items()})
    write_files(contents, out_dir)
    _say(contents, out_dir)
    return 0 if contents.read_rush.passed else MISSED


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
    say_bars(contents.read_rush.bars)
    print(out_dir / "report.html")
    print(out_dir / "summary.json")


def rarely_collect() -> None:
    """Look for garbage in circles rarely: a run holds millions of objects and makes hardly any."""
    gc.set_threshold(200_000, 20, 100)


def _after(future: Future[RunResult], progress: Bar) -> None:
    future.add_done_callback(lambda _: progress())
