"""The study as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping

from tools.patterns.pictures import label_of
from tools.patterns.results import PatternStudy
from tools.reports.charts import Picture
from tools.reports.page import percent, render

READ_KINDS = {
    "range": "All events of one second",
    "targeted": "One device's events of one second",
    "newest": "The newest 50",
}


def build_page(study: PatternStudy, pictures: Mapping[str, Picture]) -> str:
    """Build the page's HTML: self-contained, without scripts, the same for the same results."""
    writes = [
        (
            label_of(each),
            ", ".join(map(str, sorted(set(each.shard_counts)))),
            percent(each.failed_share, 1),
            percent(each.refused_share, 1),
            percent(each.refused_by_index_share, 1),
            each.write_p99_ms,
            each.wcu_per_write,
            each.lag_p50_ms,
            each.lag_p99_ms,
            each.raised_seconds,
        )
        for each in study.results
    ]
    reads = {
        kind: [
            (label_of(each), read.queries, read.rcu, read.items, read.p50_ms, read.p99_ms)
            for each in study.results
            for read in (each.reads[kind],)
        ]
        for kind in READ_KINDS
    }
    planned = [
        (each.title, percent(each.failed_share, 1), percent(each.failed_share_worst, 1), percent(each.refused_share, 1))
        for each in study.planned
    ]
    return render(
        "patterns.html.j2",
        study=study,
        pictures=pictures,
        writes=writes,
        reads=reads,
        kinds=READ_KINDS,
        planned=planned,
        source=study.result("buckets", "even"),
        ours=study.result("adaptive-buckets", "even"),
    )
