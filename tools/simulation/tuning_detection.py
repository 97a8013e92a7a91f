"""How soon a load is detected, and how often noise is: the detector's rule on many drawn loads at once.

The detector's rule for one conversation on its base key, on arrays: the first slot at which a short
window's sum, or a long window's mean, is above its threshold; the decision comes when the slot after it is over and its
reports have arrived. Windows are constants in the detector, so only this form of it can vary them; a test feeds both
with the same reports and compares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hotpartition.control.consumer import POLL_MS
from hotpartition.core.detector import REPORT_DELAY_MS, SLOTS_PER_SECOND, SUSTAINED_SLOTS
from hotpartition.core.sampler import SLOT_MS
from hotpartition.runtime.settings import ConsumerSettings, WriterSettings
from tools.simulation.scale_theory import excess_odds, slot_odds

PHASES = 20
"""Parts of a slot at which a load may begin."""
PATIENCE_SLOTS = 30 * SLOTS_PER_SECOND
SLOTS_PER_HOUR = 3600 * SLOTS_PER_SECOND

_CONSUMER = ConsumerSettings.defaults()
_WRITER = WriterSettings.defaults()

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The numbers of a detection: thresholds in WCU/s, windows in slots of 250 ms, z in WCU, width of the fleet."""

    hot_at_once_wcu: float = _CONSUMER.detection.hot_at_once_wcu
    hot_sustained_wcu: float = _CONSUMER.heat.hot_sustained_wcu
    at_once_slots: int = SLOTS_PER_SECOND
    sustained_slots: int = SUSTAINED_SLOTS
    sampling_distance_wcu: float = _WRITER.sampling.sampling_distance_wcu
    environments: int = 2_000

    def at_once_only(self) -> Rule:
        """Leave the long window out."""
        return replace(self, hot_sustained_wcu=float("inf"))

    def sustained_only(self) -> Rule:
        """Leave the short window out."""
        return replace(self, hot_at_once_wcu=float("inf"))


def false_raises_per_hour(rule: Rule, rate_wcu: float, conversations: int) -> float:
    """Compute how many windows of a quiet hour are hot by chance, in expectation: at least as many as false raises."""
    odds = sum(
        excess_odds(rate_wcu, rule.sampling_distance_wcu, rule.environments, slots=slots, limit_wcu=limit * slots / 4)
        for slots, limit in (
            (rule.at_once_slots, rule.hot_at_once_wcu),
            (rule.sustained_slots, rule.hot_sustained_wcu),
        )
        if np.isfinite(limit)
    )
    return odds * conversations * SLOTS_PER_HOUR


def detection_delays(rule: Rule, before_wcu: float, after_wcu: float, *, trials: int, seed: int) -> Floats:
    """Draw how long it takes from the onset of a step in load to the decision to raise, in seconds.

    Infinite is what is not decided within 30 s.
    The onset falls anywhere in a slot and between two polls. A trial in which noise triggers before is left out.
    """
    random = np.random.default_rng(seed)
    slots, phases = draw_slots(rule, before_wcu, after_wcu, trials=trials, random=random)
    triggers = first_triggers(rule, slots)
    onset = rule.sustained_slots
    valid = triggers >= onset
    decided_ms = (triggers[valid] - onset + 2) * SLOT_MS + REPORT_DELAY_MS + random.uniform(0, POLL_MS, valid.sum())
    delays: Floats = (decided_ms - phases[valid] * SLOT_MS) / 1000
    delays[triggers[valid] == slots.shape[1]] = np.inf
    return delays


def draw_slots(
    rule: Rule, before_wcu: float, after_wcu: float, *, trials: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw what each slot of each trial reports, in WCU, and the share of the onset's slot that is still before it.

    The slots before the onset are as many as the long window has, so the onset's slot has that index.
    """
    z, environments = rule.sampling_distance_wcu, rule.environments
    phases = random.integers(PHASES, size=trials) / PHASES
    early = _draw(slot_odds(before_wcu, z, environments), (trials, rule.sustained_slots), random)
    late = _draw(slot_odds(after_wcu, z, environments), (trials, PATIENCE_SLOTS), random)
    first = np.zeros(trials, dtype=np.int64)
    for phase in np.unique(phases):
        mixed = before_wcu * phase + after_wcu * (1 - phase)
        here = phases == phase
        first[here] = _draw(slot_odds(mixed, z, environments), (int(here.sum()),), random)
    return np.concatenate([early, first[:, None], late], axis=1) * z, phases


def first_triggers(rule: Rule, slots: Floats) -> Integers:
    """Find the first slot of each trial at which a window is hot; the number of slots where none is."""
    total = np.cumsum(np.pad(slots, ((0, 0), (1, 0))), axis=1)
    hot = np.zeros(slots.shape, dtype=bool)
    for width, limit in (
        (rule.at_once_slots, rule.hot_at_once_wcu),
        (rule.sustained_slots, rule.hot_sustained_wcu),
    ):
        begins = np.maximum(np.arange(1, total.shape[1]) - width, 0)
        hot |= total[:, 1:] - total[:, begins] > limit * width / SLOTS_PER_SECOND + 1e-9
    found: Integers = np.where(hot.any(axis=1), hot.argmax(axis=1), slots.shape[1])
    return found


def _draw(odds: Floats, shape: tuple[int, ...], random: np.random.Generator) -> Integers:
    cumulated = np.cumsum(odds)
    drawn: Integers = np.searchsorted(cumulated, random.random(shape) * cumulated[-1], side="right")
    return drawn
