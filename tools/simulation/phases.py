"""What is counted of a run by whom it concerns: quiet conversations, the hot one during its rush, and afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tools.simulation.results import Phase

CALM_SECONDS = 5.0
"""How long after the rush's end `HOT_AFTER` begins: what was refused in it is repeated until then, and the newest pages
hold none of its messages any more."""
PROMPT_SECONDS = 1.0


class PhaseName(StrEnum):
    """The phases."""

    QUIET = "quiet"
    HOT_RUSH = "hot_rush"
    HOT_AFTER = "hot_after"


@dataclass(slots=True)
class Tally:
    """What happened in one phase."""

    writes: int = 0
    offered_wcu: float = 0.0
    failed_wcu: float = 0.0
    prompt_wcu: float = 0.0
    acknowledged: list[tuple[float, float]] = field(default_factory=list)
    """Latency in ms and WCU of each write."""
    stored: list[tuple[float, float]] = field(default_factory=list)
    pages_failed: int = 0
    page_ms: list[float] = field(default_factory=list)
    queries: int = 0
    rcu: float = 0.0

    def phase(self, name: PhaseName) -> Phase:
        """Sum it up; what was not measured is None."""
        pages, offered = len(self.page_ms), self.offered_wcu
        page_ms = [(latency, 1.0) for latency in self.page_ms]
        return Phase(
            name=name,
            writes=self.writes,
            failed_share=round(self.failed_wcu / offered, 6) if offered else None,
            stored_within_second_share=round(self.prompt_wcu / offered, 6) if offered else None,
            acknowledged_p99_ms=_at(self.acknowledged, 0.99),
            stored_p50_ms=_at(self.stored, 0.5),
            stored_p99_ms=_at(self.stored, 0.99),
            pages=pages,
            pages_failed=self.pages_failed,
            queries_per_page=round(self.queries / pages, 3) if pages else None,
            rcu_per_page=round(self.rcu / pages, 3) if pages else None,
            page_p50_ms=_at(page_ms, 0.5),
            page_p99_ms=_at(page_ms, 0.99),
        )


class Phases:
    """Finds the tally of a conversation and an instant. The hot one's time before its rush is nobody's."""

    def __init__(self, hot_conversation: str, *, onset: float, heat_end: float, end: float) -> None:
        self._hot = hot_conversation
        self._onset = onset
        self._heat_end = heat_end
        self._end = end
        self._tallies = {name: Tally() for name in PhaseName}

    def of(self, conversation_id: str, at: float) -> Tally | None:
        """Find the tally; after the end there is none, since everything is read once more then."""
        if at >= self._end:
            return None
        if conversation_id != self._hot:
            return self._tallies[PhaseName.QUIET]
        if self._onset <= at < self._heat_end:
            return self._tallies[PhaseName.HOT_RUSH]
        return self._tallies[PhaseName.HOT_AFTER] if at >= self._heat_end + CALM_SECONDS else None

    def summed(self) -> tuple[Phase, ...]:
        """Sum all of them up."""
        return tuple(tally.phase(name) for name, tally in self._tallies.items())


def _at(weighted: list[tuple[float, float]], share: float) -> float | None:
    """Return the least value that so much of the weight does not pass; items are of different sizes in a rush."""
    left = share * sum(weight for _, weight in weighted)
    for value, weight in sorted(weighted):
        left -= weight
        if left <= 0:
            return round(value, 3)
    return None
