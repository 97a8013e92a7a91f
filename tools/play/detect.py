"""`make detect-trials`: one conversation after another gets hot, spread thinly over many environments.

Writes `out/detect/summary.json`. Passes when at least 95 % of the trials are raised within 2 s of onset and at least
90 % take one raise, while no environment by itself offers more than a tenth of the threshold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tools.play.rig import HOT_AT_ONCE_WCU, OFFERED_WCU, WRITERS, Heat, perform, running_rig, trial_parser

DETECTED_WITHIN_SECONDS = 2.0
LEAST_DETECTED = 0.95
LEAST_ONE_RAISE = 0.90
LARGEST_SHARE = 0.10
HOT_SECONDS = 4.0
PATIENCE_SECONDS = 3.0
PAUSE_SECONDS = 1.0


def count_detected(heats: Sequence[Heat]) -> int:
    """Count those that were raised in time."""
    times = (h.raised_after_seconds for h in heats)
    return sum(seconds is not None and seconds <= DETECTED_WITHIN_SECONDS for seconds in times)


def summarize(heats: Sequence[Heat]) -> dict[str, object]:
    """Build the summary of the trials."""
    times = [None if h.raised_after_seconds is None else round(h.raised_after_seconds, 3) for h in heats]
    return {
        "trials": len(heats),
        "detected": count_detected(heats),
        "environments": min(h.environments for h in heats),
        "onset_to_raise_seconds": times,
        "raises": [len(h.shard_counts) for h in heats],
        "max_n": [h.max_n for h in heats],
        "largest_share_of_threshold": [round(h.largest_share, 3) for h in heats],
    }


def judge(heats: Sequence[Heat]) -> list[str]:
    """List what falls short."""
    count, detected = len(heats), count_detected(heats)
    one_raise = sum(len(h.shard_counts) == 1 for h in heats)
    faults = []
    if detected < LEAST_DETECTED * count:
        faults.append(f"{detected} of {count} raised within {DETECTED_WITHIN_SECONDS:g} s, {LEAST_DETECTED:.0%} needed")
    if one_raise < LEAST_ONE_RAISE * count:
        faults.append(f"{one_raise} of {count} took one raise, {LEAST_ONE_RAISE:.0%} needed")
    largest = max(h.largest_share for h in heats)
    if largest > LARGEST_SHARE:
        faults.append(f"one environment offered {largest:.1%} of the threshold, at most {LARGEST_SHARE:.0%} allowed")
    return faults


async def run(trials: int, writers: int, seed: int, out_dir: Path) -> list[Heat]:
    """Run the trials, a line for each."""
    print(
        f"{trials} trials: {OFFERED_WCU:g} WCU/s on one conversation over {writers} environments, "
        f"hot at once above {HOT_AT_ONCE_WCU:g} WCU/s",
        flush=True,
    )
    heats = []
    async with running_rig(out_dir, writers=writers, seed=seed) as rig:
        await rig.offer("warm-up", rate=OFFERED_WCU / 4, seconds=4.0)
        for trial in range(trials):
            heat = await rig.heat(f"trial-{seed}-{trial}", seconds=HOT_SECONDS, patience_seconds=PATIENCE_SECONDS)
            heats.append(heat)
            print(
                f"{trial + 1:3d}  raised {heat.raised}, N {heat.max_n}, {len(heat.shard_counts)} raise(s), "
                f"{heat.environments} environments, the busiest with {heat.largest_share:.1%} of the threshold",
                flush=True,
            )
            await asyncio.sleep(PAUSE_SECONDS)
    return heats


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = trial_parser("detect", __doc__, trials=20)
    parser.add_argument("--writers", type=int, default=WRITERS)
    options = parser.parse_args(arguments)
    trials = run(options.trials, options.writers, options.seed, options.out)
    return perform(trials, options.out, lambda heats: (summarize(heats), judge(heats)))
