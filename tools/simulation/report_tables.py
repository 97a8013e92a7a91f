"""The report's tables: what each row is called, and how it is read from a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TypeVar

from tools.simulation.report_texts import seconds
from tools.simulation.results import RunResult
from tools.simulation.scale import ScaleLevel

ResultT = TypeVar("ResultT")
Rows = tuple[tuple[str, tuple[tuple[str, Callable[[ResultT], str]], ...]], ...]
"""Groups of rows: a title, and for each row its name and how its cells are read."""


COMPARISON_ROWS: Rows[RunResult] = (
    (
        "Writes",
        (
            ("offered by clients", lambda run: f"{run.writes.offered:,}"),
            (
                "failed (refused until the client gave up)",
                lambda run: f"{run.writes.failed:,} ({percent(run.writes.failed_wcu, run.writes.offered_wcu)})",
            ),
            ("attempts refused by DynamoDB", lambda run: f"{run.writes.throttled_attempts:,}"),
            ("write latency p50, ms", lambda run: _ms(run.writes.latency_ms.p50)),
            ("p99, ms", lambda run: _ms(run.writes.latency_ms.p99)),
            ("p99.9, ms", lambda run: _ms(run.writes.latency_ms.p999)),
        ),
    ),
    (
        "Reaction, from the onset",
        (
            ("to the raise", lambda run: seconds(run.raised_seconds)),
            ("until 95 % of new writes lie on shards", lambda run: seconds(run.on_shards_seconds)),
            ("until less than 1 % of writes are refused", lambda run: seconds(run.relieved_seconds)),
            ("raises of the hot conversation", lambda run: f"{_own_raises(run)}"),
            ("N at the end", lambda run: f"{run.final_shard_count}"),
        ),
    ),
    (
        "Reads",
        (
            ("pages read", lambda run: f"{run.reads.pages:,}"),
            ("pages that failed", lambda run: f"{run.reads.failed:,}"),
            ("queries a page", lambda run: f"{run.reads.queries_per_page:.2f}"),
            ("read units (RCU) a page", lambda run: f"{run.reads.rcu_per_page:.2f}"),
            ("items a page", lambda run: f"{run.reads.items_per_page:.1f}"),
            ("page latency p99, ms", lambda run: _ms(run.reads.latency_ms.p99)),
        ),
    ),
    (
        "Paid for",
        (
            ("write units (WCU) in all", lambda run: f"{run.cost.wcu:,.0f}"),
            ("read units (RCU) in all", lambda run: f"{run.cost.rcu:,.0f}"),
            ("reports sent", lambda run: f"{run.cost.reports:,}"),
            ("Redis commands", lambda run: f"{run.cost.redis_commands:,}"),
            ("requests to DynamoDB", lambda run: f"{run.cost.store_operations:,}"),
        ),
    ),
    (
        "Promise: nothing lost, nothing doubled",
        (
            ("messages acknowledged", lambda run: f"{run.safety.acknowledged:,}"),
            ("missing when read back", lambda run: f"{run.safety.missing:,}"),
            ("shown twice", lambda run: f"{run.safety.duplicated:,}"),
            ("out of order, altered or invented", lambda run: f"{_other_breaches(run):,}"),
        ),
    ),
)


SCALE_ROWS: Rows[ScaleLevel] = (
    (
        "The fleet",
        (
            ("Lambda environments", lambda lv: f"{lv.environments:,}"),
            ("conversations", lambda lv: f"{lv.conversations:,}"),
            ("rushes drawn (100 → 4,000 WCU/s)", lambda lv: f"{lv.rushes:,} in {lv.runs} runs"),
        ),
    ),
    (
        "Detection",
        (
            ("onset to decision, p50", lambda lv: seconds(lv.detection_seconds.p50)),
            ("p99", lambda lv: seconds(lv.detection_seconds.p99)),
            ("not detected within the run", lambda lv: f"{lv.detection_seconds.missing}"),
            ("raises for each rush", lambda lv: f"{lv.raises_per_rush:.2f}"),
            ("N decided", lambda lv: f"{min(lv.shard_counts)} to {max(lv.shard_counts)}"),
            ("false raises seen", lambda lv: f"{lv.false_raises}"),
            ("false raises expected in an hour", lambda lv: f"{lv.expected_false_raises_per_hour:.1g}"),
            (
                "error of one second at 600 WCU/s: measured, theory",
                lambda lv: f"{100 * lv.quiet_error:.1f} %, {100 * lv.quiet_error_theory:.1f} %",
            ),
            (
                "at 4,000 WCU/s: measured, theory",
                lambda lv: f"{100 * lv.rush_error:.1f} %, {100 * lv.rush_error_theory:.1f} %",
            ),
        ),
    ),
    (
        "Redis",
        (
            ("reports a second", lambda lv: f"{lv.reports_per_second:,.0f}"),
            ("reports, MB/s sent", lambda lv: f"{lv.report_bytes_per_second / 1e6:.1f}"),
            ("questions for a route a second", lambda lv: f"{lv.registry_lookups_per_second:,.0f}"),
            ("commands a second in all", lambda lv: f"{lv.redis_commands_per_second:,.0f}"),
            ("memory of the streams (60 s), MB", lambda lv: f"{lv.stream_memory_bytes / 1e6:,.0f}"),
            ("streams needed (four by default)", lambda lv: f"{lv.stream_partitions_needed}"),
            ("share of the busiest of four streams", lambda lv: f"{100 * lv.busiest_stream_share:.0f} %"),
        ),
    ),
    (
        "Consumer",
        (
            ("reports kept (15 s)", lambda lv: f"{lv.consumer_reports_held:,.0f}"),
            ("memory for them, MB", lambda lv: f"{lv.consumer_state_bytes / 1e6:,.0f}"),
            ("conversations kept", lambda lv: f"{lv.consumer_conversations_held:,.0f}"),
            ("decisions a second if all were judged", lambda lv: f"{lv.consumer_decisions_per_second:,.0f}"),
        ),
    ),
)


def build_table(names: Sequence[str], results: Sequence[ResultT], rows: Rows[ResultT], *, marked: int = -1) -> str:
    """Build a table with a column for each result; one column may be marked as ours."""
    width = len(results) + 1
    body = "".join(
        f'<tr class="group"><td colspan="{width}">{escape(title)}</td></tr>'
        + "".join(_row(name, [tell(result) for result in results], marked, "td") for name, tell in group)
        for title, group in rows
    )
    return f'<div class="wide"><table>{_row("", names, marked, "th")}{body}</table></div>'


def _row(name: str, cells: Sequence[str], marked: int, tag: str) -> str:
    marks = (' class="ours"' if index == marked else "" for index in range(len(cells)))
    written = "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr><{tag}>{escape(name)}</{tag}>{written}</tr>"


def _own_raises(run: RunResult) -> int:
    return sum(r.conversation_id == run.hot_conversation for r in run.raises)


def _other_breaches(run: RunResult) -> int:
    return run.safety.out_of_order + run.safety.altered + run.safety.phantom


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def percent(part: float, whole: float) -> str:
    """Write a share."""
    share = 100 * part / whole if whole else 0.0
    return "0 %" if not part else f"{share:.1f} %" if share >= 0.1 else "< 0.1 %"
