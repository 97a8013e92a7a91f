"""`make simulate`: the comparison, the read rush and the scale study, as a report and its figures.

The report is one HTML file about the problem, the product, its effect and its cost, and its pictures. `summary.json`,
`report.html` and each picture, a file each, are a pure function of the scenario, its messages and the seed: two runs
write the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hotpartition.core.detector import Reason
from hotpartition_messages.page_costs import Load, read_pages
from tools.bars import MISSED, say_bars
from tools.partition_model.latency import READ_PROFILE, WRITE_PROFILE, LatencyProfile
from tools.reports.charts import Picture, draw, panel, stack, steps
from tools.reports.page import number, percent, remove_results, render, seconds
from tools.reports.palette import Color
from tools.simulation.cooling import SEEDS as COOLING_SEEDS
from tools.simulation.cooling import CoolingStudy, run_cooling, sum_up_coolings
from tools.simulation.read_rush import RUSHES, ReadRush, RushRun, RushStudy, run_rush, sum_up_rushes
from tools.simulation.results import OUT_DIR, Comparison, Distribution, PhaseName, RunResult, StrategySummary
from tools.simulation.run import simulate
from tools.simulation.scale import LEVELS, Level, ScaleLevel, ScaleStudy, run_study
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ResultT = TypeVar("ResultT")

FORMAT = 1
"""Version of `summary.json`; docs/simulation-summary.md describes it."""
DEFAULT_SCENARIO = "compare"
COMPARED_SEEDS = 12
STRATEGY_NAMES: Mapping[str, str] = {
    "none": "DynamoDB alone",
    "sdk": "SDK's retries",
    "sources": "once-a-minute poller",
    "alarm": "alarm, then by hand",
    "queue": "queue in front",
    "static": "every key salted",
    "in_band": "hotpartition, in band",
    "ours": "hotpartition",
    "oracle": "oracle",
}
LEVEL_COLORS = (Color.BLUE, Color.PURPLE, Color.GREEN)

OUTCOMES = (
    (Color.CALM, "stored on the base key"),
    (Color.BLUE, "stored on shards"),
    (Color.YELLOW, "stored after more than 1 s"),
    (Color.ORANGE, "failed: clients gave up"),
)
RUSH_LAYERS = (
    ("l1", Color.CALM, "from the environment's own cache"),
    ("redis", Color.BLUE, "from Redis"),
    ("waited", Color.PURPLE, "from Redis, after waiting"),
    ("dynamodb", Color.GREEN, "from DynamoDB"),
    ("refused", Color.ORANGE, "refused"),
)
DRAWN_RUSHES = ("cached", "found", "uncached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report is made of, as `summary.json` holds it; `command` makes the same one again."""

    command: str
    comparison: Comparison
    read_rush: RushStudy
    scale: ScaleStudy
    cooling: CoolingStudy


def build_pictures(contents: Contents) -> Mapping[str, Picture]:
    """Draw all pictures of a report, by their names."""
    comparison, scale = contents.comparison, contents.scale
    drawn = (
        _outcome(comparison),
        _read_rush(contents.read_rush),
        _detection(scale),
        _loads(scale),
    )
    return {picture.name: picture for picture in drawn}


def _read_rush(study: RushStudy) -> Picture:
    """Draw where a rush's pages came from, second by second, with the cache and without."""
    runs = [run for run in study.runs if run.name in DRAWN_RUSHES] or study.runs

    def paint(*axes: Axes) -> None:
        for axis, run in zip(axes, runs, strict=True):
            layers = [
                ([getattr(second, name) for second in run.seconds], color, text) for name, color, text in RUSH_LAYERS
            ]
            stack(axis, layers, width=1.0)
            steps(axis, [second.offered for second in run.seconds], width=1.0, color=Color.INK, label="asked for")
            scaled = "" if run.scale == 1 else f", at {run.scale:g} of the load"
            title = f"{run.name.replace('-', ' ')}{scaled}: {percent(run.refused, run.offered)} refused"
            panel(axis, title, y="pages/s", x="seconds" if axis is axes[-1] else "", top=1.1 * run.pages_per_second)

    label = "Where the newest page of a read-hot conversation came from, with the page cache and without"
    return draw(paint, name="read-rush", label=label, heights=[130] * len(runs))


def split_course(run: RunResult) -> tuple[list[float], list[list[float]]]:
    """Return what was offered bin by bin, WCU/s, and how it ended: on the base key, on shards, late, failed.

    It ends with the last offer; what follows is clients giving up.
    """
    series = run.series
    bins = max((index + 1 for index, wcu in enumerate(series.offered_wcu) if wcu), default=len(series.offered_wcu))

    def rates(amounts: Sequence[float]) -> list[float]:
        return [amount / series.bin_seconds for amount in amounts[:bins]]

    stored, prompt = rates(series.stored_wcu), rates(series.prompt_wcu)
    # What lies on shards is known by the time at which it was stored, the rest by the time at which it was offered.
    parts = zip(series.on_shards_wcu, series.table_wcu, prompt, strict=False)
    on_shards = [wcu * min(1.0, part / whole) if whole else 0.0 for part, whole, wcu in parts]
    on_base = [whole - part for whole, part in zip(prompt, on_shards, strict=True)]
    late = [whole - part for whole, part in zip(stored, prompt, strict=True)]
    return rates(series.offered_wcu), [on_base, on_shards, late, rates(series.failed_wcu)]


def _outcome(comparison: Comparison) -> Picture:
    """Draw a panel for each strategy: what was offered, as stored on the base key, stored on shards, and failed."""
    courses = [split_course(run) for run in comparison.runs]
    highest = 1.05 * max(max(offered) for offered, _ in courses)

    def paint(*axes: Axes) -> None:
        for axis, run, (offered, ends) in zip(axes, comparison.runs, courses, strict=True):
            width = run.series.bin_seconds
            stack(axis, [(end, *looks) for end, looks in zip(ends, OUTCOMES, strict=True)], width=width)
            steps(axis, offered, width=width, color=Color.INK, label="offered by clients")
            axis.axvline(run.onset_seconds, color=Color.SOFT, linestyle=":", label="the rush begins")
            title = f"{STRATEGY_NAMES[run.strategy]}: {percent(run.writes.failed_wcu, run.writes.offered_wcu)} failed"
            if first := next((r for r in run.raises if r.conversation_id == run.hot_conversation), None):
                axis.axvline(first.at_seconds, color=Color.PURPLE, label="N is raised")
            title += f" ({run.left_out_seconds:.0f} s left out)" if run.left_out_seconds else ""
            panel(axis, title, y="WCU/s", x="seconds" if axis is axes[-1] else "", top=highest)
            axis.set_xlim(0, len(offered) * width)

    label = "Writes over time for each strategy: stored on the base key, stored on shards, failed"
    return draw(paint, name="comparison", label=label, heights=[112] * len(courses))


def _detection(study: ScaleStudy) -> Picture:
    def paint(delays: Axes, errors: Axes) -> None:
        for level, color in zip(study.levels, LEVEL_COLORS, strict=False):
            seconds, shares = zip(*_distribution(level.delays_seconds), strict=True)
            delays.plot(seconds, shares, color=color, label=f"{level.writes_per_second:,} writes/s")
        delays.set_xlim(0, 1.5)
        panel(delays, "How soon a rush is detected", y="% of rushes", x="seconds from onset to the decision", top=104)
        for line, marker, suffix, words in (("-", "", "_theory", "computed"), ("", "o", "", "measured")):
            for wcu, name, color in (("600", "quiet_error", Color.ORANGE), ("4,000", "rush_error", Color.PURPLE)):
                values = [100 * getattr(level, name + suffix) for level in study.levels]
                text = f"{words}, {wcu} WCU/s"
                errors.plot(_sizes(study.levels), values, color=color, linestyle=line, marker=marker, label=text)
        errors.set_xscale("log")
        panel(
            errors,
            "Error of the estimate of one second",
            y="% of the load",
            x="writes/s of the whole fleet, logarithmic",
            top=12,
        )

    label = "Detection delay and estimation error for three sizes of the fleet"
    return draw(paint, name="scale-detection", label=label, heights=(190, 190), shares_x=False)


def _loads(study: ScaleStudy) -> Picture:
    lines = (
        ("writes_per_second", Color.SOFT, "writes"),
        ("registry_lookups_per_second", Color.ORANGE, "Redis: route lookups"),
        ("reports_per_second", Color.BLUE, "Redis: reports"),
        ("consumer_decisions_per_second", Color.PURPLE, "decisions if all were judged"),
    )

    def paint(axis: Axes) -> None:
        for name, color, text in lines:
            values = [getattr(level, name) for level in study.levels]
            axis.plot(_sizes(study.levels), values, color=color, marker="o", label=text)
        axis.set_xscale("log")
        x = "writes/s of the whole fleet, logarithmic"
        panel(axis, "What detection and routing add", y="a second, logarithmic", x=x, log=True)

    label = "Reports, route lookups and decisions a second for three sizes of the fleet"
    return draw(paint, name="scale-loads", label=label, heights=(260,))


def _sizes(levels: Iterable[ScaleLevel]) -> list[int]:
    return [level.writes_per_second for level in levels]


def _distribution(delays: Sequence[float | None]) -> list[tuple[float, float]]:
    ordered = sorted(delay for delay in delays if delay is not None)
    total = len(delays)
    known = [(delay, 100 * share / total) for rank, delay in enumerate(ordered) for share in (rank, rank + 1)]
    return [(0.0, 0.0), *known, (1.5, 100 * len(ordered) / total)]


def build_report(contents: Contents, pictures: Mapping[str, Picture]) -> str:
    """Build the report's HTML: self-contained, without scripts, the same for the same results."""
    summaries = {summary.strategy: summary for summary in contents.comparison.summaries}
    shard_count = round(summaries["ours"].final_shard_count.p50 or 0)
    return render(
        "simulation.html.j2",
        contents=contents,
        comparison=contents.comparison,
        runs={run.strategy: run for run in contents.comparison.runs},
        names=STRATEGY_NAMES,
        summaries=summaries,
        uncached=read_pages(shard_count, Load(messages_per_second=1.0, item_bytes=1024, page=50)),
        phase_tables=_phase_tables(contents.comparison.summaries),
        spread=spread,
        since_onset=since_onset,
        moment=moment,
        phase_columns=["", *PHASE_MEASURES],
        rushes={run.name: run for run in contents.read_rush.runs},
        rush_rows=RUSH_ROWS,
        columns=[STRATEGY_NAMES[run.strategy] for run in contents.comparison.runs],
        pictures=pictures,
        unlucky=str(Reason.UNLUCKY_PARTITION),
    )


def spread(values: Distribution, digits: int = 1, factor: float = 1.0, unit: str = "") -> str:
    """Write the median of the seeds and, in brackets, their lowest and highest value where they differ."""
    if values.count == values.missing:
        return "-"

    def written(value: float | None) -> str:
        return "never" if value is None else number(factor * value, digits)

    low, high = written(values.lowest), written(None if values.missing else values.highest)
    median = written(values.p50) + (unit if values.p50 is not None else "")
    return median if low == high else f"{median} ({low} to {high})"


def since_onset(values: Distribution) -> str:
    """Write how long after the onset something happened in the seeds: at once, after so long, or never."""
    if values.count == values.missing:
        return "never"
    return "at once" if values.highest == 0 and not values.missing else spread(values, 2, unit=" s")


def moment(value: float | None) -> str:
    """Write how long after the onset something happened in one run."""
    return "at once" if value == 0 else seconds(value)


PHASE_MEASURES: Mapping[str, tuple[str, int, float]] = {
    "queries a page": ("queries_per_page", 1, 1.0),
    "read units a page": ("rcu_per_page", 1, 1.0),
    "page p99, ms": ("page_p99_ms", 0, 1.0),
    "writes stored within 1 s, %": ("stored_within_second_share", 1, 100.0),
    "write p50, ms": ("stored_p50_ms", 0, 1.0),
    "write p99, ms": ("stored_p99_ms", 0, 1.0),
}
"""Columns of the tables by phase: each with its figure, its digits and a factor."""


RUSH_ROWS: Mapping[str, Callable[[RushRun], str]] = {
    "pages asked for": lambda run: number(run.offered),
    "refused": lambda run: percent(run.refused, run.offered),
    "from the environment's own cache": lambda run: percent(run.from_l1, run.offered),
    "from Redis": lambda run: percent(run.from_redis + run.from_waiting, run.offered),
    "from DynamoDB": lambda run: percent(run.from_dynamodb, run.offered),
    "found read-hot after": lambda run: moment(run.found_seconds) if run.found_seconds is not None else "-",
    "all is served after": lambda run: moment(run.served_after_seconds),
    "copies in Redis (R)": lambda run: number(run.copies_at_end),
    "fills in the worst second": lambda run: number(run.most_fills_in_a_second) if run.copies else "-",
    "queries throttled": lambda run: number(run.throttled_queries),
    "read units a second": lambda run: number(run.read_units_per_second, 0),
    "age of what is served: p50, ms": lambda run: number(run.age_ms.p50, 0) if run.copies else "-",
    "p99, ms": lambda run: number(run.age_ms.p99, 0) if run.copies else "-",
    "oldest, ms": lambda run: number(run.age_ms.longest, 0) if run.copies else "-",
    "latency p99, ms": lambda run: number(run.latency_ms.p99, 1),
    "busiest Redis node, commands/s": lambda run: number(run.busiest_node_commands_per_second),
    "of 100,000": lambda run: percent(run.busiest_node_share, 1.0),
    "MB/s of pages from it": lambda run: number(run.busiest_node_bytes_per_second / 1e6, 0),
    "messages written, failed": lambda run: f"{number(run.writes_stored)}, {number(run.writes_failed)}",
}
"""The rows of the read rush's table: each with what it shows of a run."""


def _phase_tables(summaries: Iterable[StrategySummary]) -> Mapping[PhaseName, Sequence[Sequence[str]]]:
    """List each phase's rows: a strategy's name and its figures."""
    return {
        name: [
            (
                STRATEGY_NAMES[summary.strategy],
                *(
                    spread(getattr(summary.phase(name), figure), digits, factor)
                    for figure, digits, factor in PHASE_MEASURES.values()
                ),
            )
            for summary in summaries
        ]
        for name in PhaseName
    }


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

    def submit(name: str, work: Callable[..., ResultT], *tasks: tuple[Any, ...]) -> list[Future[ResultT]]:
        futures = [pool.submit(work, *task) for task in tasks]
        for future in futures:
            future.add_done_callback(lambda _: bars[name]())
        return futures

    scenario, seeds = plan.scenario, range(plan.seed, plan.seed + plan.seeds)
    compared = [submit("comparison", simulate, *((scenario, seed, name) for seed in seeds)) for name in STRATEGIES]
    rushes = submit("read_rush", run_rush, *((rush, plan.seed) for rush in plan.rushes))
    coolings = submit("cooling", run_cooling, *((plan.seed + index,) for index in range(plan.cooling_seeds)))
    scale = run_study(plan.levels, first_seed=plan.seed, pool=pool, progress=bars["scale"])
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
        scale=scale,
        cooling=sum_up_coolings([future.result() for future in coolings]),
        command=plan.command,
    )


def write_files(contents: Contents, out_dir: Path) -> None:
    """Write summary, report and pictures."""
    out_dir.mkdir(parents=True, exist_ok=True)
    pictures = build_pictures(contents)
    files = {
        "summary.json": json.dumps({"format": FORMAT, **asdict(contents)}, indent=1) + "\n",
        "report.html": build_report(contents, pictures),
        **{f"{name}.svg": picture.file() for name, picture in pictures.items()},
    }
    for name, text in files.items():
        (out_dir / name).write_text(text, encoding="utf-8")


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
