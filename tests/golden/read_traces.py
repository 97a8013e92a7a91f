"""The input traces of reads, how they are run, and how a run reads as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from golden.stage import ONSET_MS, Fleet, Load, ReadingFleet, Shift, deliver_twice_and_in_disorder, in_seconds
from golden.traces import Run, Trace, perform, since_onset
from hotpartition.core.sampler import slot_of
from support.fleet import START_MS

COLLECTION = "room"


def readers(rate: Callable[[int], float], **numbers: Any) -> Callable[..., Fleet]:
    """Say what the fleet of a trace reads: pages a second, as a function of ms since onset."""
    loads = {COLLECTION: Load(rate=lambda offset: rate(offset - ONSET_MS))}
    return partial(ReadingFleet, loads=loads, **numbers)


def _rush(offset: int) -> float:
    return 0.0 if offset < 0 else 5_000.0


def _ramp(offset: int) -> float:
    """Up by 4,000 pages/s each second for 12 s, then down as fast."""
    return max(0.0, min(offset, 24_000 - offset) * 4.0)


def _around_the_threshold(offset: int) -> float:
    """1,020 RCU/s for 8 s, then 700 for 10 s, then 250."""
    return (1_020.0 if offset < 8_000 else 700.0 if offset < 18_000 else 250.0) / 8.5


def _visits(offset: int) -> float:
    """A second of 3,000 RCU/s every six seconds."""
    return 3_000 / 8.5 if offset >= 0 and offset % 6_000 < 1_000 else 0.0


READ_TRACES = {
    trace.name: trace
    for trace in (
        Trace(
            name="rush",
            about="Nothing, and from onset on 5,000 pages/s with N = 16.",
            seconds=9,
            gather_fleet=readers(_rush),
        ),
        Trace(
            name="ramp",
            about="Pages of a conversation on its base key, up to 48,000/s within 12 s and down again.",
            seconds=44,
            gather_fleet=readers(_ramp, page_rcu=0.5, seed=2),
        ),
        Trace(
            name="around-the-threshold",
            about="Just above the threshold, then between it and the lower one, then below both.",
            seconds=45,
            gather_fleet=readers(_around_the_threshold, seed=3),
        ),
        Trace(
            name="warm",
            about="700 RCU/s, which is below the threshold and above the lower one: never read-hot.",
            seconds=60,
            gather_fleet=readers(lambda _: 700 / 8.5, seed=4),
        ),
        Trace(
            name="visits",
            about="A second of 3,000 RCU/s every six seconds.",
            seconds=60,
            gather_fleet=readers(_visits, seed=5),
        ),
        Trace(
            name="handover",
            about="`around-the-threshold`; the consumer is killed while the load is between both thresholds, and two"
            " seconds later the next one starts.",
            seconds=45,
            gather_fleet=readers(_around_the_threshold, seed=3),
            shifts=(Shift(kill_ms=ONSET_MS + 14_000), Shift(ONSET_MS + 16_000)),
        ),
        Trace(
            name="duplicated-and-reordered",
            about="The reports of `rush`, each up to three times and in disorder.",
            seconds=9,
            gather_fleet=readers(_rush, deliver=deliver_twice_and_in_disorder),
        ),
    )
}


@cache
def run_read_trace(name: str) -> Run:
    """Run a trace once."""
    return perform(READ_TRACES[name])


def render_reads(name: str) -> str:
    """Write a trace's run as text: what went in, the decision log, what was marked."""
    run = run_read_trace(name)
    lines = run.header()
    lines += ["", "Decision log (times in s from onset, parts in RCU by slot from onset's slot on)"]
    lines.append("  at       reason    copies trigger       RCU/s  pages/s  parts")
    lines += [_line(at_ms, facts) for at_ms, facts in run.decisions]
    lines += [] if run.decisions else ["  (nothing but below-threshold)"]
    marks = [f"{copies} at {in_seconds(since_onset(at_ms))}" for at_ms, _, copies in run.stage.registry.marks]
    lines += ["", f"Copies as marked: {', '.join(marks) or 'none'}"]
    lines.append(f"{run.fleet.offered:,} pages, {run.fleet.sent:,} reports")
    return "\n".join(lines) + "\n"


def _line(at_ms: int, facts: Mapping[str, object]) -> str:
    parts = facts["per_slot_rcu"]
    assert isinstance(parts, list)
    first = slot_of(at_ms) - len(parts) + 1 - slot_of(START_MS + ONSET_MS)
    return (
        f"  {in_seconds(since_onset(at_ms)):8} {facts['reason']:9} {facts['copies']:6} {facts['trigger'] or '-':10}"
        f"{facts['rcu_per_second']:9,.0f}{facts['pages_per_second']:9,.0f}"
        f"  {first:+d}: {' '.join(f'{rcu:g}' for rcu in parts)}"
    )
