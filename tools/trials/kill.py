"""`make kill-trials`: the consumers are killed (SIGKILL) at a random moment of each rush, and started again.

Writes `out/kill/summary.json`. Passes when every hot conversation is covered in the end, none is raised that was not
hot, and no N is more than one step above what runs without a kill came to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotpartition.core.shares import Share, list_shares
from tools.demo.observer import ControlError
from tools.demo.stack import StackError
from tools.trials.rig import SETTINGS, Heat, Rig, running_rig

CONSUMER = "consume_reports"
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
        task = asyncio.create_task(_consume(rig, share))
        _consumers.add(task)
        task.add_done_callback(_consumers.discard)


async def _consume(rig: Rig, share: Share) -> None:
    """Start a consumer as its schedule would; it answers when it ends, which may be by the next kill."""
    with suppress(ControlError):
        await rig.control.post(f"/functions/{CONSUMER}/invoke", {"share": share.encode()})


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
    return heat.max_n * SETTINGS["hot_sustained_wcu"] >= 80.0


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
            raised = trial.heat.raised_after_seconds
            after = "never" if raised is None else f"after {raised:.2f} s"
            print(f"{number + 1:3d}  {kill}: raised {after}, N {trial.heat.max_n}", flush=True)
        for consumer in list(_consumers):
            consumer.cancel()
    return done


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.trials.kill", description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1, help="how many share the report streams (1)")
    parser.add_argument("--out", type=Path, default=Path("out/kill"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        trials = asyncio.run(run(options.trials, options.seed, options.out, options.consumers))
    except (StackError, ControlError) as error:
        print(f"the trials could not be run: {error}", file=sys.stderr)
        return 2
    faults = judge(trials)
    summary = {
        "trials": options.trials,
        "seed": options.seed,
        "consumers": options.consumers,
        "killed_after_seconds": [t.killed_after_seconds and round(t.killed_after_seconds, 3) for t in trials],
        "onset_to_raise_seconds": [
            t.heat.raised_after_seconds and round(t.heat.raised_after_seconds, 3) for t in trials
        ],
        "raises": [len(t.heat.shard_counts) for t in trials],
        "max_n": [t.heat.max_n for t in trials],
        "quiet_n": [t.quiet_n for t in trials],
        "verdict": "fail" if faults else "pass",
    }
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print("\n".join(faults) or "verdict: pass")
    print(f"{options.out / 'summary.json'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
