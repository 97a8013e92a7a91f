"""`make soak`: ten minutes of load while every part fails at random, from a seed that is printed.

Writes `out/soak/summary.json`: the fields of the demonstration, `faults` (kind to count), `faults_met` (kind to how
many requests of DynamoDB met one), `spread_conversations` and `seed`. Passes when at least 50,000 messages were
acknowledged, none of them is missing, doubled or wrong in any read, each kind of fault was injected, and hot
conversations were spread all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hotpartition_messages.keys import KEY_FORM
from tools.figures import Bar, at_least, at_most
from tools.play.client import Recorder
from tools.play.demo import positive, present
from tools.play.faults import KINDS, FaultInjector
from tools.play.report import Run
from tools.play.run import Plan, Variant
from tools.play.scale import scale_to
from tools.play.verdict import Judgement, conclude, promise_bars
from tools.play.watch import Control
from tools.play.workload import BODY_BYTES, Workload, generate_offers, quiet_flow
from tools.world.workload import ConversationFlow, constant

DEFAULT_SECONDS = 600.0
NEEDED_PER_SECOND = 50_000 / DEFAULT_SECONDS
WRITES_PER_SECOND = 95.0
"""What two cores carry beside the faults; a seventh more than is needed."""
LEAST_SHARE = 0.88
"""A soak at another rate is held to this share of what it offers."""
HOT_SHARE = 0.45
RUSH_SECONDS = 20.0
FEWEST_RUSHES = 2
RUSH_PREFIX = "rush-"
LEAST_SPREAD = 0.5
"""Of the rushes; the consumer that detects them is killed time and again."""
MAX_SHARD_COUNT = 16
"""Each shard costs a read the CPU of a query, which is scarce here."""
LONGEST_VISITOR_PAUSE_SECONDS = 1.5
VISITOR_PAUSES = 100
"""A visitor reads at least about so often in a run, also in a short one."""
GATEWAY_FAILURE = "answered 500: {'message': 'Internal Server Error'}"
"""The response of API Gateway for an environment that was killed in mid-request; the client repeats."""


@dataclass(slots=True)
class SoakRecorder(Recorder):
    """Keeps the history, and counts apart what a killed environment excuses."""

    killed_in_request: int = 0

    def note(self, text: str) -> None:
        """Count an unexpected response."""
        if text.endswith(GATEWAY_FAILURE):
            self.killed_in_request += 1
        else:
            Recorder.note(self, text)


@dataclass(slots=True, kw_only=True)
class Soak(Variant):
    """Breaks everything that can be broken, and judges by the promise alone."""

    injector: FaultInjector
    needed: int
    seed: int
    history: SoakRecorder = field(default_factory=SoakRecorder)
    spread: int = 0

    def recorder(self) -> Recorder:
        """Give what keeps the history."""
        return self.history

    async def disturb(self, control: Control, say: Callable[[str], None], stopped: asyncio.Event) -> None:
        """Inject faults."""
        await self.injector.run(control, say=say, stopped=stopped)

    def judge(self, run: Run) -> Judgement:
        """Judge by the promise, the number of messages, and whether everything was tried."""
        functions = run.played.seen.status.get("functions", {})
        self.spread = count_spread(row.key for row in run.timeline if row.writes)
        return self.conclude(
            promise=promise_bars(run.history, self.history.notes),
            acknowledged=run.history.acknowledged,
            kept_up=run.machine.kept_up,
            rushes=sum(name.startswith(RUSH_PREFIX) for name in run.played.plan.workload.conversations),
            killed=sum(function.get("killed", 0) for function in functions.values()),
        )

    def conclude(
        self, *, promise: Sequence[Bar], acknowledged: int, kept_up: bool, rushes: int, killed: int
    ) -> Judgement:
        """Hold what was counted against the bars."""
        timed = (
            at_least("messages acknowledged", acknowledged, self.needed, "messages"),
            at_least("conversations spread", self.spread, round(LEAST_SPREAD * rushes), f"of {rushes} rushes"),
        )
        meeting = [kind.name for kind in KINDS if kind.meets_requests]
        failed = self.history.killed_in_request
        bars = (
            *promise,
            *timed,
            _all_of("every kind of fault injected", [kind.name for kind in KINDS], self.injector.injected),
            _all_of("every fault of DynamoDB met by requests", meeting, self.injector.met),
            at_most("only killed environments failed", failed, killed, "requests, one for each environment"),
        )
        return conclude(bars, timed={bar.name for bar in timed}, kept_up=kept_up)

    def facts(self) -> Mapping[str, Any]:
        """Give the faults and the seed."""
        return {
            "faults": dict(self.injector.injected),
            "faults_met": dict(self.injector.met),
            "spread_conversations": self.spread,
            "seed": self.seed,
        }


def _all_of(bar: str, kinds: Sequence[str], counts: Mapping[str, int]) -> Bar:
    """Hold that each kind was counted; the unit names those that were not."""
    left_out = [name for name in kinds if not counts[name]]
    without = f", without {', '.join(left_out)}" if left_out else ""
    return at_least(bar, len(kinds) - len(left_out), len(kinds), f"kinds{without}")


def count_spread(keys: Iterable[str]) -> int:
    """Count the conversations that have shards, from the physical keys that were written to."""
    return len({collection for collection, shard in map(KEY_FORM.parse, keys) if shard is not None})


def build_workload(*, seed: int, seconds: float, writes_per_second: float) -> Workload:
    """Build an even load: many quiet conversations, and one rush after another, each on a conversation of its own."""
    rushes = max(FEWEST_RUSHES, round(seconds / RUSH_SECONDS))
    lasts, heat = seconds / rushes, constant(HOT_SHARE * writes_per_second)
    flows = [
        ConversationFlow(
            conversation_id=f"{RUSH_PREFIX}{rush + 1:03d}",
            shape=heat,
            body_bytes=BODY_BYTES,
            start=rush * lasts,
            end=(rush + 1) * lasts,
        )
        for rush in range(rushes)
    ]
    offers = generate_offers([*flows, quiet_flow((1 - HOT_SHARE) * writes_per_second)], seed=seed, seconds=seconds)
    return Workload(
        offers=offers,
        hot_conversation=flows[0].conversation_id,
        onset_seconds=0.0,
        hot_end_seconds=lasts,
        description=f"seed {seed}: {len(offers)} messages in {seconds:g} s, {rushes} rushes one after another",
    )


def build_plan(options: argparse.Namespace, cores: int, speed: float) -> Plan:
    """Build the plan of a soak, whose rate is given."""
    del speed
    hot = HOT_SHARE * options.rate
    workload = build_workload(seed=options.seed, seconds=options.seconds, writes_per_second=options.rate)
    return Plan(
        workload=workload,
        scale=scale_to(hot=hot, quiet=options.rate - hot, max_shard_count=MAX_SHARD_COUNT),
        seed=options.seed,
        cores=cores,
        out_dir=options.out,
        visitor_pause_seconds=min(LONGEST_VISITOR_PAUSE_SECONDS, options.seconds / VISITOR_PAUSES),
        up_options=("--redis-replica",),
        variant=Soak(
            injector=FaultInjector(seed=options.seed, seconds=options.seconds),
            needed=round(min(NEEDED_PER_SECOND, LEAST_SHARE * options.rate) * options.seconds),
            seed=options.seed,
        ),
    )


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.play soak", description=__doc__)
    parser.add_argument("--seconds", type=positive, default=DEFAULT_SECONDS, help="how long messages are written")
    parser.add_argument("--seed", type=int, default=None, help="seed of load and faults; by default a new one")
    parser.add_argument("--rate", type=positive, default=WRITES_PER_SECOND, help="messages a second")
    parser.add_argument("--out", type=Path, default=Path("out/soak"), metavar="DIR")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def main(arguments: Sequence[str]) -> int:
    """Run a soak and give the exit status."""
    options = parse_arguments(arguments)
    print(f"seed {options.seed}: the same load and the same faults again with SEED={options.seed}", flush=True)
    return present(partial(build_plan, options), name="soak")
