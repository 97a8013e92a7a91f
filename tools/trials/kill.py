"""`make kill-trials`: the consumers are killed (SIGKILL) at a random moment of each rush, and started again.

Writes `out/kill/summary.json`. Passes when every hot conversation is covered in the end, none is raised that was not
hot, and no N is more than one step above what runs without a kill came to.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hotpartition.core.shares import list_shares
from tools.trials.faults import CONSUMER, start_consumer
from tools.trials.rig import OFFERED_WCU, SETTINGS, Heat, Rig, perform, running_rig, trial_parser

RUNS_WITHOUT_KILL = 5
HOT_SECONDS = 4.0
PATIENCE_SECONDS = 8.0
QUIET_WCU = 10.0
LATEST_KILL_SECONDS = 2.5
LONGEST_ABSENCE_SECONDS = 1.0
WRITERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One rush: what became of the hot conversation, and the N of the quiet one beside it."""

    heat: Heat
    quiet_n: int
    killed_after_seconds: float | None


async def rush(rig: Rig, name: str, *, killed_after: float | None, absent: float, consumers: int) -> Trial:
    """Heat one conversation beside a quiet one; kill all consumers meanwhile, and start them again."""
    quiet = asyncio.create_task(rig.offer(f"quiet-{name}", rate=QUIET_WCU, seconds=HOT_SECONDS))
    disturbing = asyncio.create_task(_disturb(rig, killed_after, absent, consumers))
    heat = await rig.heat(f"hot-{name}", seconds=HOT_SECONDS, patience_seconds=PATIENCE_SECONDS)
    await quiet
    await disturbing
    quiet_route, _ = await rig.route(f"quiet-{name}")
    return Trial(heat=heat, quiet_n=quiet_route.max_shard_count, killed_after_seconds=killed_after)


_consumers: set[asyncio.Task[None]] = set()


async def _disturb(rig: Rig, killed_after: float | None, absent: float, consumers: int) -> None:
    if killed_after is None:
        return
    await asyncio.sleep(killed_after)
    while (await rig.control.get("/status"))["functions"][CONSUMER]["busy"]:
        await rig.control.post(f"/functions/{CONSUMER}/kill")
    await asyncio.sleep(absent)
    for share in list_shares(consumers):
        start_consumer(rig.control, _consumers, {"share": share.encode()})


def judge(trials: Sequence[Trial]) -> list[str]:
    """List what falls short."""
    undisturbed = [t for t in trials if t.killed_after_seconds is None]
    disturbed = [t for t in trials if t.killed_after_seconds is not None]
    most = max(t.heat.max_n for t in undisturbed) + 1
    faults = [f"trial {i}: not raised" for i, t in enumerate(trials) if not _is_covered(t.heat)]
    faults += [f"trial {i}: the quiet conversation was raised" for i, t in enumerate(trials) if t.quiet_n]
    faults += [f"N of {t.heat.max_n}, at most {most} expected" for t in disturbed if t.heat.max_n > most]
    return faults


def _is_covered(heat: Heat) -> bool:
    """Say whether the shards serve the load that was offered."""
    return heat.max_n * SETTINGS["hot_sustained_wcu"] >= OFFERED_WCU


async def run(trials: int, seed: int, out_dir: Path, consumers: int) -> list[Trial]:
    """Run the trials, a line for each."""
    rng = random.Random(seed)
    done = []
    async with running_rig(out_dir, writers=WRITERS, seed=seed, options={"consumers": consumers}) as rig:
        await rig.offer("warm-up", rate=20.0, seconds=3.0)
        for number in range(RUNS_WITHOUT_KILL + trials):
            killed_after = None if number < RUNS_WITHOUT_KILL else rng.uniform(0.0, LATEST_KILL_SECONDS)
            absent = rng.uniform(0.0, LONGEST_ABSENCE_SECONDS)
            trial = await rush(rig, f"{seed}-{number}", killed_after=killed_after, absent=absent, consumers=consumers)
            done.append(trial)
            kill = "not killed" if killed_after is None else f"killed after {killed_after:.2f} s, away {absent:.2f} s"
            print(f"{number + 1:3d}  {kill}: raised {trial.heat.raised}, N {trial.heat.max_n}", flush=True)
        for consumer in list(_consumers):
            consumer.cancel()
    return done


def summarize(trials: Sequence[Trial]) -> dict[str, object]:
    """Build the summary of the trials."""
    killed = [t.killed_after_seconds for t in trials]
    raised = [t.heat.raised_after_seconds for t in trials]
    return {
        "killed_after_seconds": [seconds and round(seconds, 3) for seconds in killed],
        "onset_to_raise_seconds": [seconds and round(seconds, 3) for seconds in raised],
        "raises": [len(t.heat.shard_counts) for t in trials],
        "max_n": [t.heat.max_n for t in trials],
        "quiet_n": [t.quiet_n for t in trials],
        "verdict": "fail" if judge(trials) else "pass",
    }


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = trial_parser("kill", __doc__, trials=50)
    parser.add_argument("--consumers", type=int, default=1, help="how many share the report streams (1)")
    options = parser.parse_args(arguments)
    asked = {name: getattr(options, name) for name in ("trials", "seed", "consumers")}
    trials = run(options.trials, options.seed, options.out, options.consumers)
    return perform(trials, options.out, lambda done: ({**asked, **summarize(done)}, judge(done)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
