"""The log of decisions, about writes and about reads: each when it changes, and once a minute while it lasts."""

from __future__ import annotations

from collections.abc import Container, Mapping

from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Telemetry

REPEAT_LOG_MS = 60_000
"""How often a decision that lasts is logged."""


class DecisionLog:
    """Logs and counts decisions. One per kind of decision and run of a consumer; all its state can be lost."""

    def __init__(self, telemetry: Telemetry, message: str) -> None:
        self._telemetry = telemetry
        self._message = message
        # by collection and load class, the last reason and its minute
        self._said: dict[tuple[str, int], tuple[str, int]] = {}

    def say(
        self, place: tuple[str, int], reason: str, facts: Mapping[str, object], *, now_ms: int, is_act: bool = False
    ) -> None:
        """Log a decision, unless it is what was said already and nothing is done by it (`is_act`)."""
        said = (reason, now_ms // REPEAT_LOG_MS)
        if self._said.get(place) == said and not is_act:
            return
        self._said[place] = said
        self._telemetry.count(MetricName(f"Decision-{reason}"))
        self._telemetry.event(self._message, **facts)

    def end(self, place: tuple[str, int]) -> None:
        """Take in that nothing is to be said of a place now: what comes again is logged again."""
        self._said.pop(place, None)

    def keep(self, collections: Container[str]) -> None:
        """Forget all other collections: nothing is decided about them any more."""
        self._said = {place: said for place, said in self._said.items() if place[0] in collections}
