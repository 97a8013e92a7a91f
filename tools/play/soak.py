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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotpartition_messages.keys import KEY_FORM
from tools.figures import Bar, at_least, at_most
from tools.local.metering import TimelineRow
from tools.play.faults import KINDS, FaultInjector
from tools.play.run import Plan, Run, present
from tools.play.verdict import Judgement, conclude, promise_bars
from tools.play.workload import BODY_BYTES, Scale, Workload, generate_offers, quiet_flow, usable_cores
from tools.world.workload import ConversationFlow, constant

WRITES_PER_SECOND = 95.0
"""What two cores carry beside the faults."""
NEEDED_PER_SECOND = 50_000 / 600
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


@dataclass(slots=True, kw_only=True)
class Soak(Plan):
    """Breaks everything that can be broken, and is judged by the promise alone."""

    injector: FaultInjector
    needed: int

    async def disturb(self, run: Run, stopped: asyncio.Event) -> None:
        """Inject faults."""
        await self.injector.run(run.control, say=run.say, stopped=stopped)

    def judge(self, run: Run) -> Judgement:
        """Judge by the promise, the number of messages, and whether everything was tried."""
        unexpected = [note for note in run.recorder.notes if not note.endswith(GATEWAY_FAILURE)]
        failed = len(run.recorder.notes) - len(unexpected)
        killed = sum(function.get("killed", 0) for function in run.control.status["functions"].values())
        rushes = sum(name.startswith(RUSH_PREFIX) for name in self.workload.conversations)
        spread, least = count_spread(run.timeline), round(LEAST_SPREAD * rushes)
        timed = (
            at_least("messages acknowledged", run.history.acknowledged, self.needed, "messages"),
            at_least("conversations spread", spread, least, f"of {rushes} rushes"),
        )
        meeting = [kind.name for kind in KINDS if kind.meets_requests]
        bars = (
            *promise_bars(run.history, unexpected),
            *timed,
            _all_of("every kind of fault injected", [kind.name for kind in KINDS], self.injector.injected),
            _all_of("every fault of DynamoDB met by requests", meeting, self.injector.met),
            at_most("only killed environments failed", failed, killed, "requests, one for each environment"),
        )
        return conclude(bars, timed={bar.name for bar in timed}, kept_up=run.machine.kept_up)

    def facts(self, run: Run) -> Mapping[str, Any]:
        """Give the faults and the seed."""
        return {
            "faults": {kind.name: self.injector.injected[kind.name] for kind in KINDS},
            "faults_met": {kind.name: self.injector.met[kind.name] for kind in KINDS if kind.rules},
            "spread_conversations": count_spread(run.timeline),
            "seed": self.seed,
        }


def _all_of(bar: str, kinds: Sequence[str], counts: Mapping[str, int]) -> Bar:
    """Hold that each kind was counted; the unit names those that were not."""
    left_out = [name for name in kinds if not counts[name]]
    without = f", without {', '.join(left_out)}" if left_out else ""
    return at_least(bar, len(kinds) - len(left_out), len(kinds), f"kinds{without}")


def count_spread(timeline: Iterable[TimelineRow]) -> int:
    """Count the conversations that have shards which were written to."""
    written = (KEY_FORM.parse(row.key) for row in timeline if row.writes)
    return len({collection for collection, shard in written if shard is not None})


def build_workload(*, seed: int, seconds: float) -> Workload:
    """Build an even load: many quiet conversations, and one rush after another, each on a conversation of its own."""
    rushes = max(FEWEST_RUSHES, round(seconds / RUSH_SECONDS))
    lasts, heat = seconds / rushes, constant(HOT_SHARE * WRITES_PER_SECOND)
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
    quiet = quiet_flow((1 - HOT_SHARE) * WRITES_PER_SECOND)
    offers = generate_offers([*flows, quiet], seed=seed, seconds=seconds)
    return Workload(
        offers=offers,
        hot_conversation=flows[0].conversation_id,
        onset_seconds=0.0,
        hot_end_seconds=lasts,
        description=f"seed {seed}: {len(offers)} messages in {seconds:g} s, {rushes} rushes one after another",
    )


async def run(options: argparse.Namespace) -> int:
    """Run a soak and give the exit status."""
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}: the same load and the same faults again with SEED={seed}", flush=True)
    hot = HOT_SHARE * WRITES_PER_SECOND
    plan = Soak(
        workload=build_workload(seed=seed, seconds=options.seconds),
        scale=Scale(
            hot_writes_per_second=hot,
            quiet_writes_per_second=WRITES_PER_SECOND - hot,
            cores=usable_cores(),
            max_shard_count=MAX_SHARD_COUNT,
        ),
        seed=seed,
        out_dir=options.out,
        visitor_pause_seconds=min(LONGEST_VISITOR_PAUSE_SECONDS, options.seconds / VISITOR_PAUSES),
        up_options=("--redis-replica",),
        injector=FaultInjector(seed=seed, seconds=options.seconds),
        needed=round(NEEDED_PER_SECOND * options.seconds),
    )
    return await present(plan)
