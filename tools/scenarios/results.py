"""What a simulated run says, as values: frozen, built from plain numbers and texts, and the same for the same seed.

`dataclasses.asdict` gives any of them as `json` takes it; None stands for what did not happen within the run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from tools.figures import Bar, Distribution, Latency
from tools.history import FAULTS, Verdict

OUT_DIR = Path("out/simulation")
COMMANDS_PER_SECOND = 100_000.0
"""What one Redis node serves a second, as the sources say: what loads are held against."""


def write_result(result: Any, out_dir: Path, name: str) -> Path:
    """Write a result as JSON."""
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / name
    path.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The run over time, in bins of `bin_seconds`; all lists are as long as the run has bins (none: it is left out).

    Offered, stored, prompt (stored within a second) and failed count client writes in the bin in which they were
    offered, in WCU; `throttled` counts
    refused put attempts, in WCU, when they were refused. `on_shards` is the part of `stored` that lies on shard keys.
    `shard_count` is the N in the journal for the run's hot conversation at the bin's end (0: base key only), `reports`
    the entries that reached the stream, `table_wcu` all that the table took.
    """

    bin_seconds: float = 0.0
    offered_wcu: tuple[float, ...] = ()
    stored_wcu: tuple[float, ...] = ()
    on_shards_wcu: tuple[float, ...] = ()
    failed_wcu: tuple[float, ...] = ()
    throttled_wcu: tuple[float, ...] = ()
    table_wcu: tuple[float, ...] = ()
    shard_count: tuple[int, ...] = ()
    reports: tuple[int, ...] = ()
    write_p99_ms: tuple[float, ...] = ()
    prompt_wcu: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """The clients' writes. `failed`: refused for as long as the client repeated them; in WCU as well."""

    offered: int
    stored: int
    failed: int
    offered_wcu: float
    failed_wcu: float
    requests: int
    throttled_attempts: int
    latency_ms: Latency
    waited: int = 0
    """Times that a write was refused by all its choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The clients' page reads. Queries, items and RCU are means over the pages that were answered."""

    pages: int
    failed: int
    queries_per_page: float
    items_per_page: float
    rcu_per_page: float
    latency_ms: Latency


class PhaseName(StrEnum):
    """The phases."""

    QUIET = "quiet"
    HOT_RUSH = "hot_rush"
    HOT_AFTER = "hot_after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What concerns one kind of conversation: `quiet` ones, the hot one in its rush (`hot_rush`), or well after it.

    Latencies of writes last until the message is stored, so that a read can find it; `acknowledged_p99_ms` until the
    client was answered, which differs where a queue accepts what is not stored yet. None: nothing was measured.
    """

    name: str
    writes: int
    failed_share: float | None
    stored_within_second_share: float | None
    acknowledged_p99_ms: float | None
    stored_p50_ms: float | None
    stored_p99_ms: float | None
    pages: int
    pages_failed: int
    queries_per_page: float | None
    rcu_per_page: float | None
    page_p50_ms: float | None
    page_p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the run used of everything that is paid for or can be overloaded."""

    wcu: float
    rcu: float
    reports: int
    redis_commands: int
    store_operations: int
    cold_starts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """The history checker's counts.

    Messages lost, doubled, out of order, altered, invented or never looked for; back after they were gone, or without
    an edit that they had. `stale`: shown later than the bound of pages that may be old.
    """

    acknowledged: int = 0
    reads: int = 0
    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    altered: int = 0
    phantom: int = 0
    unverified: int = 0
    resurrected: int = 0
    undone: int = 0
    stale: int = 0
    examples: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Say whether the promise was kept."""
        return not any(getattr(self, fault) for fault in FAULTS)

    @classmethod
    def of(cls, verdict: Verdict) -> Safety:
        """Take over a verdict."""
        return cls(
            acknowledged=verdict.acknowledged,
            reads=verdict.reads,
            **{fault: getattr(verdict, fault) for fault in FAULTS},
            examples=tuple(f"{f.fault}: {f.conversation_id} {f.message_id}: {f.detail}" for f in verdict.examples),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """One generation that entered the journal, and when, in seconds of the run."""

    at_seconds: float
    conversation_id: str
    shard_count: int
    since_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run of one strategy on one scenario with one seed.

    `onset_seconds` is when the scenario's heat begins. `raised_seconds` counts from there to the first raise of the
    hot conversation, `relieved_seconds` to the moment from which on, for as long as the heat lasts, writes that all
    choices refused stay below 1 % of what is offered, judged second by second. `on_shards_seconds` counts to the first
    quarter of a second of whose stored writes of the hot conversation at least 95 % lie on shards. `late_failed_share`
    is the share that failed of what was offered from 4 s after the onset on.
    """

    scenario: str
    seed: int
    strategy: str
    duration_seconds: float
    onset_seconds: float
    hot_conversation: str
    operations: int
    writes: Writes
    reads: Reads
    cost: Cost
    safety: Safety
    raises: tuple[Raise, ...]
    final_shard_count: int
    raised_seconds: float | None
    relieved_seconds: float | None
    on_shards_seconds: float | None
    late_failed_share: float
    series: Series
    repeated_share: float | None = None
    """Refused puts of the hot conversation for each that was stored, from `on_shards_seconds` to the heat's end."""
    closes: tuple[int, int] = (0, 0)
    """Confirmed ones, and announcements that stayed void."""
    faults: tuple[tuple[str, int], ...] = ()
    """How often each kind of injected fault struck."""
    counters: tuple[tuple[str, float], ...] = ()
    """The product's own metrics, summed over all its functions."""
    phases: tuple[Phase, ...] = ()
    left_out_seconds: float = 0.0
    """How much of the rush was left out, since nothing changes in it; the times above count it."""
    prompt_seconds: float | None = None
    """From the onset until, for as long as the heat lasts, 95 % of what is offered is stored within a second."""
    unserved_share_of_ten_minutes: float = 0.0
    """Of a rush that lasts ten minutes: what is not stored when it ends, failed or waiting. What the run shows of it is
    measured; the rest goes on as the run's last three seconds of heat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSummary:
    """One phase over many seeds."""

    name: str
    failed_share: Distribution
    stored_within_second_share: Distribution
    acknowledged_p99_ms: Distribution
    stored_p50_ms: Distribution
    stored_p99_ms: Distribution
    queries_per_page: Distribution
    rcu_per_page: Distribution
    page_p50_ms: Distribution
    page_p99_ms: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySummary:
    """One strategy over many seeds; `acknowledged`, `missing` and `duplicated` are sums."""

    strategy: str
    raised_seconds: Distribution
    prompt_seconds: Distribution
    final_shard_count: Distribution
    unserved_share_of_ten_minutes: Distribution
    wcu_per_stored_wcu: Distribution
    """Write units that DynamoDB charged for each that was stored for clients: what is refused is not charged."""
    acknowledged: int
    missing: int
    duplicated: int
    phases: tuple[PhaseSummary, ...]

    @classmethod
    def of(cls, runs: Sequence[RunResult]) -> StrategySummary:
        """Sum up the runs of one strategy."""

        def over(name: str) -> Distribution:
            return Distribution.of([getattr(run, name) for run in runs])

        by_phase = zip(*(run.phases for run in runs), strict=True)
        figures = [field.name for field in fields(PhaseSummary) if field.name != "name"]
        return cls(
            strategy=runs[0].strategy,
            raised_seconds=over("raised_seconds"),
            prompt_seconds=over("prompt_seconds"),
            final_shard_count=over("final_shard_count"),
            unserved_share_of_ten_minutes=over("unserved_share_of_ten_minutes"),
            wcu_per_stored_wcu=Distribution.of(
                [run.cost.wcu / max(1.0, run.writes.offered_wcu - run.writes.failed_wcu) for run in runs]
            ),
            acknowledged=sum(run.safety.acknowledged for run in runs),
            missing=sum(run.safety.missing for run in runs),
            duplicated=sum(run.safety.duplicated for run in runs),
            phases=tuple(
                PhaseSummary(
                    name=phases[0].name,
                    **{name: Distribution.of([getattr(phase, name) for phase in phases]) for name in figures},
                )
                for phases in by_phase
            ),
        )

    def phase(self, name: str) -> PhaseSummary:
        """Find a phase."""
        return next(phase for phase in self.phases if phase.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The same scenario under several strategies, side by side; `assumptions` are sentences for people.

    `runs` are those of `seed`, one for each strategy; `summaries` are over all `seeds`, of which it is the first.
    """

    scenario: str
    description: str
    seed: int
    assumptions: tuple[str, ...]
    runs: tuple[RunResult, ...]
    seeds: int = 1
    summaries: tuple[StrategySummary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSeed:
    """One seed under all faults."""

    seed: int
    operations: int
    store_operations: int
    acknowledged: int
    raises: int
    confirmed_closes: int
    void_announcements: int
    safety: Safety
    faults: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyStudy:
    """What all studies under faults say."""

    scenario: str
    first_seed: int
    seeds: int
    faults: tuple[tuple[str, int], ...]
    failing_seeds: tuple[int, ...]
    bars: tuple[Bar, ...]
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStudy(FaultyStudy):
    """`make simulate-faults`: every seed's verdict, and their sum."""

    operations: int
    store_operations: int
    acknowledged: int
    reads: int
    raises: int
    confirmed_closes: int
    void_announcements: int
    lost: int
    doubled: int
    other_breaches: int
    runs: tuple[FaultSeed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeed:
    """One seed of the step. `shard_counts` are the N of its raises; the share of failures refers to no mitigation."""

    seed: int
    raised_seconds: float | None
    on_shards_seconds: float | None
    relieved_seconds: float | None
    shard_counts: tuple[int, ...]
    failed_wcu: float
    failed_share_of_unmitigated: float
    late_failed_share_of_offered: float
    write_p99_ms: float
    repeated_share: float | None = None
    """Puts refused for each stored one, once on shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVariant:
    """The step to another load, or on another table. `is_too_small`: the table takes less than all load together."""

    scenario: str
    description: str
    load_wcu: float
    partitions: int
    is_too_small: bool
    shard_counts: tuple[tuple[int, ...], ...]
    """The N of the raises, seed by seed."""
    raised_seconds: Distribution
    on_shards_seconds: Distribution
    relieved_seconds: Distribution
    late_failed_share_of_offered: Distribution
    repeated_share: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStudy:
    """`make simulate-step`: the step's bars over many seeds."""

    scenario: str
    description: str
    first_seed: int
    seeds: int
    raised_seconds: Distribution
    on_shards_seconds: Distribution
    relieved_seconds: Distribution
    final_shard_count: Distribution
    unmitigated_seeds: tuple[int, ...]
    unmitigated_failed_wcu: float
    failed_share_of_unmitigated: Distribution
    late_failed_share_of_offered: Distribution
    bars: tuple[Bar, ...]
    passed: bool
    runs: tuple[StepSeed, ...]
    repeated_share: Distribution
    variants: tuple[StepVariant, ...] = ()
