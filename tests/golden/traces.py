"""The input traces of the golden files, how they are run, and how a run reads as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from math import exp
from random import Random
from typing import Any

from golden.stage import (
    ONSET_MS,
    Actor,
    Fleet,
    Load,
    Shift,
    Stage,
    WritingFleet,
    deliver_twice_and_in_disorder,
    in_seconds,
)
from hotpartition.core.route import Generation, Route
from hotpartition.core.sampler import slot_of
from support.fleet import START_MS


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One input trace; `shifts` are the consumers'."""

    name: str
    about: str
    seconds: int
    gather_fleet: Callable[..., Fleet]
    shifts: tuple[Shift, ...] = (Shift(),)


@dataclass(kw_only=True)
class Run:
    """What came of a trace."""

    trace: Trace
    stage: Stage
    fleet: Any
    consumers: list[Actor]

    def header(self) -> list[str]:
        """Write what went in as text."""
        numbers = (
            f"seed {self.fleet.seed}, {self.fleet.environments} environments, {self.fleet.sampling},"
            f" {self.trace.seconds} s on the virtual clock, onset {ONSET_MS / 1000:g} s after its start"
        )
        return [f"{self.trace.name}: {self.trace.about}", "", numbers]

    @property
    def decisions(self) -> list[tuple[int, dict[str, object]]]:
        """The decision log of all consumers."""
        return [entry for consumer in self.consumers for entry in consumer.telemetry.timed(self.fleet.decision)]

    @property
    def routes(self) -> dict[str, Route]:
        return self.stage.routes()

    def raises(self, conversation_id: str = "room") -> list[Raise]:
        """List a conversation's raises in the order of the log."""
        return [
            Raise(since_onset(at_ms), Generation.decode(str(facts["generation"])).shard_count)
            for at_ms, facts in self.decisions
            if facts["generation"] and facts["collection"] == conversation_id
        ]


def since_onset(time_ms: int) -> int:
    return time_ms - START_MS - ONSET_MS


def perform(trace: Trace) -> Run:
    """Run a trace with its consumers."""
    stage = Stage()
    fleet = stage.fleet = trace.gather_fleet(registry=stage.registry)
    return Run(trace=trace, stage=stage, fleet=fleet, consumers=stage.play(trace.seconds * 1000, trace.shifts))


@dataclass(frozen=True)
class Raise:
    """A raise as the assertions see it."""

    after_onset_ms: int
    shard_count: int


def writers(loads: Mapping[str, Load], **numbers: Any) -> Callable[..., Fleet]:
    """Say what the fleet of a trace writes."""
    return partial(WritingFleet, loads=loads, **numbers)


def step(before: float, after: float, *, at_ms: int = ONSET_MS) -> Load:
    """A load that changes at once."""
    about = f"{before:,} WCU/s, from onset on {after:,}"
    return Load(rate=lambda offset: after if offset >= at_ms else before, about=about)


def steady(rate: float) -> Load:
    """A load that does not change."""
    return Load(rate=lambda _: rate, about=f"{rate:,} WCU/s")


def _ramp(offset: int) -> float:
    return min(200 + max(0, offset - ONSET_MS) * 0.4, 8_000)


def _flash(offset: int) -> float:
    after_s = (offset - ONSET_MS) / 1000
    if after_s < 0:
        return 50
    return 50 + (12_000 * after_s if after_s < 1 else 12_000 * exp(-(after_s - 1) / 3))


def _burn(offset: int) -> float:
    return min(500 + max(0, offset - ONSET_MS) * 0.02, 700)


BACKFILL_MS = 9_000
"""When the late backfill begins, in ms after onset."""


def _backfill_rate(offset: int) -> float:
    if offset < ONSET_MS:
        return 100
    return 2_000 if offset < ONSET_MS + BACKFILL_MS else 5_000


def _backfill_age(random: Random, offset: int) -> int:
    """Three in five writes upload the hour that ended an hour ago, oldest first, 200 times as fast as it passed."""
    if offset < ONSET_MS + BACKFILL_MS or random.random() >= 3 / 5:
        return 0
    return 7_200_000 - 199 * (offset - ONSET_MS - BACKFILL_MS)


def _third_is_slow(random: Random, _offset: int) -> int:
    return 20_000 if random.random() < 1 / 3 else 0


def _jump(by_ms: int, *, back_after_ms: int) -> Callable[[int, int], int]:
    """Environment 0's clock is wrong from a second before onset on, for a while."""

    def offset(environment: int, at_ms: int) -> int:
        since_jump_ms = at_ms - (ONSET_MS - 1_000)
        return by_ms if environment == 0 and 0 <= since_jump_ms < back_after_ms else 0

    return offset


UNLUCKY_SHARDS = 9


def _unlucky_partition(conversation_id: str, index: int | None) -> object:
    """Shards 0 to 8 share one physical partition, whatever N is; every other key has its own."""
    if index is not None and index < UNLUCKY_SHARDS:
        return (conversation_id, "shared")
    return (conversation_id, index)


TRACES = {
    trace.name: trace
    for trace in (
        Trace(
            name="ramp",
            about="A load that grows by 400 WCU/s each second: several raises, each with room to grow into.",
            seconds=25,
            gather_fleet=writers({"room": Load(rate=_ramp, about="from 200 to 8,000 WCU/s within 19.5 s")}, seed=11),
        ),
        Trace(
            name="step-x40",
            about="A load that grows fortyfold at once: one raise to the final N.",
            seconds=9,
            gather_fleet=writers({"room": step(400, 16_000)}, seed=13, environments=400),
        ),
        Trace(
            name="flash-crowd",
            about="A crowd that arrives within one second and leaves with a half life of 2 s: N stays.",
            seconds=16,
            gather_fleet=writers(
                {"room": Load(rate=_flash, about="50 WCU/s, up by 12,000 in 1 s, then less by half each 2.1 s")},
                seed=14,
                environments=300,
            ),
        ),
        Trace(
            name="two-hot-conversations",
            about="Two conversations become hot half a second apart, on the same environments, beside a warm one.",
            seconds=9,
            gather_fleet=writers(
                {
                    "room": step(100, 4_000),
                    "hall": replace(
                        step(100, 1_600, at_ms=ONSET_MS + 500), about="100 WCU/s, from 0.5 s after onset on 1,600"
                    ),
                    "warm": steady(500),
                },
                seed=15,
            ),
        ),
        Trace(
            name="slow-burn",
            about="A load that creeps up to just under the threshold and stays there: never raised.",
            seconds=60,
            gather_fleet=writers(
                {"room": Load(rate=_burn, about="from 500 to 700 WCU/s within 10 s, then steady")},
                seed=16,
                environments=20,
            ),
        ),
        Trace(
            name="late-backfill",
            about="A hot conversation is raised; 9 s later clients upload an old hour, and `since` goes back to it.",
            seconds=20,
            gather_fleet=writers(
                {
                    "room": Load(
                        rate=_backfill_rate,
                        about="100 WCU/s, from onset on 2,000; 9 s later 3,000 more, 2 h old and older first",
                        age_ms=_backfill_age,
                    )
                },
                seed=18,
            ),
        ),
        Trace(
            name="slow-clients",
            about="A third of the clients is 20 s behind: their messages are of the heat, and `since` reaches them.",
            seconds=10,
            gather_fleet=writers(
                {
                    "room": replace(
                        step(100, 4_000),
                        about="100 WCU/s, from onset on 4,000; every third message 20 s old",
                        age_ms=_third_is_slow,
                    )
                },
                seed=19,
            ),
        ),
        Trace(
            name="clock-jump-ahead",
            about="One environment's clock is 10 s ahead for 6 s: its reports are left out, the heat is found without.",
            seconds=16,
            gather_fleet=writers(
                {"room": step(100, 4_000), "calm": steady(600)},
                seed=21,
                environments=20,
                clock_offset_ms=_jump(10_000, back_after_ms=6_000),
            ),
        ),
        Trace(
            name="clock-jump-back",
            about="One environment's clock is 10 s behind for 6 s: its counts fall into old slots, and raise nothing.",
            seconds=16,
            gather_fleet=writers(
                {"room": step(100, 4_000), "calm": steady(600)},
                seed=21,
                environments=20,
                clock_offset_ms=_jump(-10_000, back_after_ms=6_000),
            ),
        ),
        Trace(
            name="clean",
            about="What `duplicated-and-reordered` is compared with.",
            seconds=10,
            gather_fleet=writers({"room": step(100, 4_000), "hall": steady(500)}, seed=22),
        ),
        Trace(
            name="duplicated-and-reordered",
            about="The reports of `clean`, each up to three times and in disorder: the same raise.",
            seconds=10,
            gather_fleet=writers(
                {"room": step(100, 4_000), "hall": steady(500)}, seed=22, deliver=deliver_twice_and_in_disorder
            ),
        ),
        Trace(
            name="unlucky-partition",
            about="Shards 0 to 8 share a physical partition: throttles persist although covered; N doubles.",
            seconds=22,
            gather_fleet=writers({"room": step(100, 3_000)}, seed=23, physical_key=_unlucky_partition),
        ),
    )
}


@cache
def run_trace(name: str) -> Run:
    """Run a trace once."""
    return perform(TRACES[name])


def render(name: str) -> str:
    """Write a trace's run as text: what went in, the decision log, what came of it."""
    run = run_trace(name)
    lines = run.header()
    lines += [f"load of {c}: {load.about}" for c, load in run.fleet.loads.items()]
    lines += ["", "Decision log (times in s from onset, loads in WCU/s, parts in WCU by slot from onset's slot on)"]
    lines += [_HEAD, *(_decision_line(at_ms, facts) for at_ms, facts in run.decisions)]
    lines += [] if run.decisions else ["  (nothing but below-threshold)"]
    lines += ["", "In the end", *(_route_line(c, route) for c, route in run.routes.items())]
    lines += [] if run.routes else ["  no routes"]
    summary, fleet = run.consumers[0].summary, run.fleet
    lines.append(
        f"  reports: {fleet.sent:,} sent, {summary.malformed} malformed, {summary.out_of_window:,} out of window"
    )
    last = f", the last {in_seconds(since_onset(fleet.last_throttle_ms))}" if fleet.last_throttle_ms else ""
    lines.append(f"  writes: {fleet.offered:,} offered, {fleet.throttled:,} of them throttled{last}")
    return "\n".join(lines) + "\n"


_HEAD = "  at       conversation reason             load of    rate throttled  generation            parts"


def _decision_line(at_ms: int, facts: Mapping[str, object]) -> str:
    parts = facts["per_slot_wcu"]
    assert isinstance(parts, list)
    trigger = facts["trigger_slot"]
    last = slot_of(at_ms) if trigger is None else int(str(trigger)) + 1
    first = last - len(parts) + 1 - slot_of(START_MS + ONSET_MS)
    load_class = f"{facts['load_class']} shards" if facts["load_class"] else "base key"
    generation = _generation_text(Generation.decode(str(facts["generation"]))) if facts["generation"] else "-"
    return (
        f"  {in_seconds(since_onset(at_ms)):8} {facts['collection']:12} {facts['reason']:18} {load_class:9}"
        f"{facts['rate_wcu_per_second']:7.0f} {facts['throttled_wcu']:9.0f}  {generation:20}"
        f"  {first:+d}: {' '.join(f'{wcu:g}' for wcu in parts)}"
    )


def _route_line(conversation_id: str, route: Route) -> str:
    return f"  route of {conversation_id}: " + ", ".join(_generation_text(g) for g in sorted(route.generations))


def _generation_text(generation: Generation) -> str:
    return f"{generation.shard_count} since {in_seconds(since_onset(generation.since_ms))}"
