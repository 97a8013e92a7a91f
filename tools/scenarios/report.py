"""`make simulate`: strategies compared, a rush of readers, and a rush that is over; a summary and a page of tables.

Both files are a pure function of the seeds: two runs write the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from tools.figures import Bar, Outcome, distribution
from tools.scenarios import cooling, read_rush
from tools.scenarios.seeds import Part, Study, Verdict, spread, total
from tools.scenarios.step import SMALL_STEP, SMALL_STEP_ABOUT
from tools.world.run import simulate
from tools.world.strategies import Strategy, alarm, in_band, none, ours, sources, static

SEEDS = 4
"""Of each strategy: no bar stands on them. `step` judges ours by a hundred."""
STRATEGIES: Mapping[str, tuple[str, Callable[[], Strategy]]] = {
    "none": ("DynamoDB alone", none),
    "sources": ("once-a-minute poller", sources),
    "alarm": ("alarm, then by hand", alarm),
    "static": ("every key salted", static),
    "in_band": ("hotpartition, in band", in_band),
    "ours": ("hotpartition", ours),
}
"""What each is called on the page, and what builds it."""
ROWS: Mapping[str, str] = {
    "of a rush of ten minutes not stored, as a share": "unserved_share_of_ten_minutes",
    "95 % stored within a second, s from the onset": "prompt_seconds",
    "raised after, s": "raised_seconds",
    "N": "final_shard_count",
    "write p99, ms": "write_p99_ms",
    "write units for each stored one": "wcu_per_stored_wcu",
    "read units of a hot page": "hot_page_rcu",
    "read units of a quiet page": "quiet_page_rcu",
}
ASSUMPTIONS = (
    "New writes come whether earlier ones are answered or not; a refused client repeats once after about a second.",
    "Latencies of DynamoDB and Redis are assumed. A partition takes 1,000 write and 3,000 read units a second.",
    "The person whom an alarm calls has spread the conversation five minutes after the onset.",
    "Redis is up all the time, and the consumer runs when the rush begins.",
)
TEMPLATE = Path(__file__).with_name("report.html.j2")


def run(seed: int, name: str) -> Outcome:
    """Run one seed of a strategy."""
    return simulate(SMALL_STEP, seed, STRATEGIES[name][1]())


def summarize(runs: Sequence[Outcome]) -> dict[str, Any]:
    """Sum up one strategy over many seeds.

    `wcu_per_stored_wcu`: write units that DynamoDB charged for each that was stored for clients: what is refused is not
    charged. `acknowledged`, `missing` and `duplicated` are sums.
    """
    stored = [max(1.0, run.writes.offered_wcu - run.writes.failed_wcu) for run in runs]
    return {
        "strategy": runs[0].strategy,
        **spread(
            runs,
            *("raised_seconds", "prompt_seconds", "final_shard_count", "unserved_share_of_ten_minutes"),
            write_p99_ms="writes.latency_ms.p99",
            hot_page_rcu="hot_reads.rcu_per_page",
            quiet_page_rcu="quiet_reads.rcu_per_page",
            hot_page_p50_ms="hot_reads.latency_ms.p50",
        ),
        "wcu_per_stored_wcu": distribution(run.cost.wcu / wcu for run, wcu in zip(runs, stored, strict=True)),
        "acknowledged": total(runs, "safety.acknowledged"),
        "missing": sum(run.safety.found["missing"] for run in runs),
        "duplicated": sum(run.safety.found["duplicated"] for run in runs),
    }


def judge(by_part: Mapping[str, list[Any]]) -> Verdict:
    """Sum up the strategies, hold the other two parts against their bars, and write the page."""
    summaries = [summarize(by_part[name]) for name in STRATEGIES]
    rushes = [(rush, run) for rush in read_rush.RUSHES for run in by_part[rush.name]]
    bars = [*(bar for each in rushes for bar in read_rush.bars_of(*each)), *cooling.judge(by_part["cooling"])]
    fields = {
        "format": 1,
        "assumptions": ASSUMPTIONS,
        "comparison": {"description": SMALL_STEP_ABOUT, "summaries": summaries},
        "bound_ms": read_rush.bound_ms(),
    }
    page = build_page(summaries, bars)
    return Verdict(fields=fields, bars=bars, pages={"report.html": page})


def build_page(summaries: Sequence[Mapping[str, Any]], bars: Sequence[Bar]) -> str:
    """Build a page of tables, without scripts."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters["spread"] = write_spread
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    words = {"description": SMALL_STEP_ABOUT, "strategies": STRATEGIES, "rows": ROWS, "assumptions": ASSUMPTIONS}
    return template.render(**words, summaries=summaries, bars=bars)


def write_spread(spread: Outcome) -> str:
    """Write the median and, in brackets, the lowest and highest value where they differ."""
    if spread.p50 is None:
        return "never"
    highest = "never" if spread.missing else f"{spread.highest:g}"
    same = spread.lowest == spread.highest and not spread.missing
    return f"{spread.p50:g}" + ("" if same else f" ({spread.lowest:g} to {highest})")


STUDY = Study(
    "simulate",
    "One rush met in several ways; a rush of readers; a rush that is over.",
    [
        *(Part(name, partial(run, name=name), SEEDS) for name in STRATEGIES),
        *(Part(rush.name, partial(read_rush.run_rush, rush), 1) for rush in read_rush.RUSHES),
        Part("cooling", cooling.run_cooling, cooling.SEEDS),
    ],
    judge,
    file="summary.json",
)
