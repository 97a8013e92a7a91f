"""The report: one HTML file that tells the problem, the product, its effect and its cost to somebody new to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from hotpartition.core.detector import Reason
from tools.simulation.report_charts import COLORS, PICTURE_STYLE, Picture
from tools.simulation.report_pictures import comparison_pictures, scale_pictures, strategy_name, tuning_pictures
from tools.simulation.report_tables import COMPARISON_ROWS, SCALE_ROWS, build_table, percent
from tools.simulation.report_texts import (
    COMPARISON,
    LIMITS,
    PROBLEM,
    SCALE_METHOD,
    SOURCES,
    STRATEGY_TEXTS,
    SWEEP_TEXTS,
    TUNING,
    seconds,
)
from tools.simulation.results import Comparison, RunResult
from tools.simulation.scale import ScaleStudy
from tools.simulation.tuning import TuningStudy

OURS, UNMITIGATED, SALTED, SOURCES_STRATEGY = "ours", "none", "static", "sources"
UNLUCKY = str(Reason.UNLUCKY_PARTITION)

STYLE = f"""
{COLORS}
:root {{ color-scheme: light dark; --ground: #f6f8fa; --card: #ffffff; --line: #dde3ea; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ground: #10151c; --card: #18202a; --line: #2b3643; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
main {{ max-width: 1080px; margin: 0 auto; padding: 40px 20px 60px; }}
h1 {{ font-size: 30px; line-height: 1.2; margin: 0 0 12px; letter-spacing: -0.015em; max-width: 30em; }}
h2 {{ font-size: 21px; margin: 0 0 8px; }} h3 {{ font-size: 16px; margin: 22px 0 4px; }}
p {{ margin: 0 0 10px; max-width: 50em; }} .soft {{ color: var(--soft); }} .small {{ font-size: 13.5px; }}
section {{ background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 22px 24px;
  margin-bottom: 18px; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }}
.tile {{ background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px;
  flex: 1 1 150px; }}
.tile b {{ display: block; font-size: 23px; white-space: nowrap; line-height: 1.25;
  font-variant-numeric: tabular-nums; }}
.tile span {{ color: var(--soft); font-size: 13.5px; display: block; line-height: 1.4; }}
svg {{ display: block; width: 100%; height: auto; margin: 8px 0 4px; }}
.wide {{ overflow-x: auto; }} table {{ border-collapse: collapse; width: 100%; font-size: 14px; margin: 8px 0; }}
td, th {{ text-align: right; padding: 5px 0 5px 14px; border-bottom: 1px solid var(--grid); vertical-align: top;
  font-variant-numeric: tabular-nums; }}
td:first-child, th:first-child {{ text-align: left; padding-left: 0; min-width: 15em; }}
th {{ font-weight: 600; }} tr.group td {{ color: var(--soft); border-bottom: 0; padding-top: 14px; font-size: 13px; }}
td.ours, th.ours {{ background: color-mix(in srgb, var(--c3) 9%, transparent); padding-right: 8px; }}
ul, ol {{ margin: 6px 0 10px; padding-left: 22px; max-width: 50em; }} li {{ margin-bottom: 4px; }}
code {{ font: 0.92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }} a {{ color: inherit; }}
{PICTURE_STYLE}
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report is made of; `command` makes the same one again."""

    comparison: Comparison
    scale: ScaleStudy
    tuning: TuningStudy
    command: str


def build_pictures(contents: Contents) -> tuple[Picture, ...]:
    """Draw all pictures of a report."""
    return (
        *comparison_pictures(contents.comparison),
        *scale_pictures(contents.scale),
        *tuning_pictures(contents.tuning).values(),
    )


def build_report(contents: Contents) -> str:
    """Build the report's HTML: self-contained, without scripts, the same for the same results."""
    pictures = {picture.name: picture for picture in build_pictures(contents)}
    sections = (
        _opening(contents.comparison),
        PROBLEM,
        _comparison(contents.comparison, pictures),
        _cost(contents.comparison),
        _scale(contents.scale, pictures),
        _tuning(contents.tuning, pictures),
        _limits(contents),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>hotpartition: the simulation</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(sections)
        + "\n</main></body></html>\n"
    )


def _opening(comparison: Comparison) -> str:
    ours, bare = _run(comparison, OURS), _run(comparison, UNMITIGATED)
    before = percent(bare.writes.failed_wcu, bare.writes.offered_wcu)
    after = percent(ours.writes.failed_wcu, ours.writes.offered_wcu)
    tiles = (
        (f"{before} → {after}", "of all writes failed: DynamoDB alone → with hotpartition"),
        (seconds(ours.raised_seconds), "from the onset to the decision to spread the conversation"),
        (seconds(ours.relieved_seconds), "from the onset until less than 1 % of its writes are refused"),
        (f"{ours.final_shard_count}", "shards in the end; clients never see them"),
        (
            f"{ours.safety.missing} / {ours.safety.duplicated}",
            f"messages lost / doubled, of {ours.safety.acknowledged:,} acknowledged",
        ),
    )
    written = "".join(f'<div class="tile"><b>{figure}</b><span>{escape(text)}</span></div>' for figure, text in tiles)
    return (
        "<header><h1>A conversation gets too busy for DynamoDB. What becomes of its messages?</h1>"
        f'<p class="soft">{escape(comparison.description)} Seed {comparison.seed}. Everything here is simulated: '
        "hotpartition's own code for counting, deciding, routing and merging runs in a model of DynamoDB, Lambda and "
        f'Redis on one virtual clock.</p></header><div class="tiles">{written}</div>'
    )


def _comparison(comparison: Comparison, pictures: Mapping[str, Picture]) -> str:
    items = "".join(
        f"<li><b>{escape(strategy_name(run.strategy))}</b>: {escape(STRATEGY_TEXTS[run.strategy])}{_raises(run)}</li>"
        for run in comparison.runs
        if run.strategy in STRATEGY_TEXTS
    )
    return (
        f"<section><h2>The same rush, met in different ways</h2>{COMPARISON}"
        f'{pictures["comparison"].inline()}<ul class="small">{items}</ul>{pictures["course"].inline()}</section>'
    )


def _raises(run: RunResult) -> str:
    """Tell how a run's hot conversation was raised; some strategies never raise, and that says it all for one."""
    raises = [r for r in run.raises if r.conversation_id == run.hot_conversation]
    if not raises:
        return " Here it never reacted." if run.strategy == SOURCES_STRATEGY else ""
    told = ", then ".join(
        f"to N = {r.shard_count} after {r.at_seconds - run.onset_seconds:.1f} s"
        + (
            " (refused although the load was covered: a partition had too much of it)"
            if r.reason.startswith(UNLUCKY)
            else ""
        )
        for r in raises
    )
    return f" It raised {escape(told)}."


def _cost(comparison: Comparison) -> str:
    names = [strategy_name(run.strategy) for run in comparison.runs]
    ours = next(index for index, run in enumerate(comparison.runs) if run.strategy == OURS)
    table = build_table(names, comparison.runs, COMPARISON_ROWS, marked=ours)
    return f"<section><h2>Side by side, and what it costs</h2><p>{escape(_price(comparison))}</p>{table}</section>"


def _price(comparison: Comparison) -> str:
    ours, bare = _run(comparison, OURS), _run(comparison, UNMITIGATED)
    text = (
        f"hotpartition took {ours.cost.wcu / max(1, ours.writes.stored):.2f} write units for each stored message "
        f"(DynamoDB alone: {bare.cost.wcu / max(1, bare.writes.stored):.2f}) and {ours.reads.rcu_per_page:.2f} read "
        f"units a page ({bare.reads.rcu_per_page:.2f}). For each write it sent "
        f"{ours.cost.reports / max(1, ours.writes.offered):.3f} reports and "
        f"{ours.cost.redis_commands / max(1, ours.writes.offered):.2f} commands to Redis."
    )
    salted = next((run for run in comparison.runs if run.strategy == SALTED), None)
    if salted is None:
        return text
    return f"{text} Salting every key takes {salted.reads.rcu_per_page:.2f} read units a page, hot or not."


def _scale(study: ScaleStudy, pictures: Mapping[str, Picture]) -> str:
    names = [f"{level.writes_per_second:,} writes/s" for level in study.levels]
    table = build_table(names, study.levels, SCALE_ROWS)
    return (
        "<section><h2>From ten thousand to a million writes a second</h2>"
        f"<p>{escape(_growth(study))}</p>{pictures['scale-detection'].inline()}"
        f"{pictures['scale-loads'].inline()}{table}{SCALE_METHOD}</section>"
    )


def _growth(study: ScaleStudy) -> str:
    small, large = study.levels[0], study.levels[-1]
    lookups = large.registry_lookups_per_second / large.writes_per_second
    return (
        "How soon a rush is detected does not depend on the size of the fleet: half are decided within "
        f"{seconds(small.detection_seconds.p50)} at {small.writes_per_second:,} writes a second and within "
        f"{seconds(large.detection_seconds.p50)} at {large.writes_per_second:,}, although each environment then sees a "
        "write of the hot conversation only once in two or three seconds. What grows is the work: "
        f"{large.reports_per_write:.2f} reports for each write and, where nearly every write meets an environment that "
        f"has not seen its conversation for two seconds, {lookups:.2f} questions for a route. At "
        f"{large.writes_per_second:,} writes a second one consumer would have to keep "
        f"{large.consumer_reports_held / 1e6:.1f} million reports, more than one process does. It judges only the "
        "few conversations that can be hot: all of those with reports, ten times a second, would be "
        f"{large.consumer_decisions_per_second / 1e6:.1f} million decisions. "
        "The delays here are those of a consumer that keeps up."
    )


def _tuning(study: TuningStudy, pictures: Mapping[str, Picture]) -> str:
    parts = []
    for sweep in study.sweeps:
        title, tell = SWEEP_TEXTS[sweep.name]
        parts.append(f"<h3>{escape(title)}</h3><p>{escape(tell(sweep))}</p>{pictures[f'tuning-{sweep.name}'].inline()}")
    return f"<section><h2>Why the settings are what they are</h2>{TUNING}{''.join(parts)}</section>"


def _limits(contents: Contents) -> str:
    lists = (
        ("Assumed in the comparison", contents.comparison.assumptions),
        ("Assumed in the scale study", contents.scale.assumptions),
        ("Limits of the model", LIMITS),
        ("Sources", SOURCES),
    )
    body = "".join(
        f'<h3>{escape(title)}</h3><ul class="small">{"".join(f"<li>{escape(item)}</li>" for item in items)}</ul>'
        for title, items in lists
    )
    return (
        f"<section><h2>What was assumed, and what this cannot tell</h2>{body}"
        f'<p class="small">The same report again: <code>{escape(contents.command)}</code>. All figures are in '
        "<code>summary.json</code> beside this file; docs/simulation-summary.md says what each means.</p></section>"
    )


def _run(comparison: Comparison, strategy: str) -> RunResult:
    return next(run for run in comparison.runs if run.strategy == strategy)
