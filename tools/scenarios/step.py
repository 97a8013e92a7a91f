"""A step on one key: how soon it is noticed, spread and over. `make simulate-step`.

The step comes anywhere in a slot, drawn from the seed. Beside it run some seeds without any mitigation, and the step to
other loads, on other tables, and where the base key's reads are refused, so that writers look routes up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from hotpartition.core.sampler import SLOT_MS
from tools.figures import Bar, Outcome, at_least, at_most, distribution
from tools.limits import Partitions
from tools.scenarios.seeds import Part, Study, Verdict, spread
from tools.world.functions import FunctionConfig
from tools.world.run import simulate
from tools.world.scenario import HOT, Clients, Readers, Scenario
from tools.world.strategies import none, ours
from tools.world.workload import ConversationFlow, Step, ZipfFlow, constant, stepping

ONSET = 5.0
SEEDS, UNMITIGATED_SEEDS, VARIANT_SEEDS = 100, 2, 4
SMALL_BODY, LARGE_BODY = (700, 800), (15_800, 16_100)
"""Of items of 1 KiB, and of 16 KiB."""
_SMALL_SECONDS = 2.5
"""How long after the onset items are of 1 KiB. A raise's own update takes 1 WCU of the hot partition: beside writes of
8 it would always find them, beside writes of 1 it has to be lucky."""


def step(
    load_wcu: float = 4000.0,
    partitions: int = 32,
    *,
    name: str = "step",
    heat_seconds: float = 60.0,
    phase: float = 0.0,
    **others: Any,
) -> Scenario:
    """Build the step of the project's bar, or one to another load or on another table; `others` as given.

    Items are of 1 KiB until it should have been noticed, and larger from then on. `phase`: how long after the beginning
    of a slot it comes; a step that begins exactly on one flatters fast detectors.
    """
    onset = ONSET + phase
    until = onset + _SMALL_SECONDS
    shape = Step(before=100.0, after=load_wcu, onset=onset)
    return Scenario(
        name=name,
        flows=(
            ConversationFlow(conversation_id=HOT, shape=shape, body_bytes=SMALL_BODY, end=until),
            ConversationFlow(conversation_id=HOT, shape=shape, body_bytes=LARGE_BODY, start=until),
        ),
        seconds=onset + heat_seconds,
        onset=onset,
        table=Partitions(count=partitions),
        other_wcu=10_000.0,
        writers=FunctionConfig(concurrency=1000, warm=1000, taken=60, other_requests_per_second=10.0),
        is_judged=False,
        **others,
    )


SMALL_STEP = replace(
    step(),
    flows=(
        stepping(HOT, loads=(200.0, 4000.0), between=(4.0, 14.0), body_bytes=LARGE_BODY),
        ZipfFlow(conversations=40, shape=constant(30.0), exponent=0.5, body_bytes=SMALL_BODY, prefix="quiet-room"),
    ),
    name="compare",
    seconds=24.0,
    onset=4.0,
    heat_end=14.0,
    drain_seconds=8.0,
    clients=Clients(attempts=2),
    readers=Readers(per_second=20.0, strong_share=0.0, hot_share=0.5, limits=(20,)),
    is_judged=True,
)
"""The step, smaller and with reads, and with what comes after it."""
SMALL_STEP_ABOUT = (
    "One conversation steps from 200 to 4,000 WCU/s at 4 s, for ten seconds; 40 quiet ones get 30 "
    "WCU/s together. 1,000 environments, 10,000 WCU/s of other traffic, a warm table of 32 partitions; 20 pages "
    "of 20 messages are read each second, half of them of the hot conversation. Its items are of 16 KiB, so that "
    "its load takes a sixteenth of the requests; those of the quiet ones are of 1 KiB."
)
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    **{f"step-{load}-on-32": {"load_wcu": float(load), "heat_seconds": 25.0} for load in (2_000, 6_000, 10_000)},
    **{f"step-4000-on-{count}": {"partitions": count, "heat_seconds": 25.0} for count in (8, 16, 128)},
    "read_hot": {"heat_seconds": 15.0, "base_reads_per_second": 12_000.0},
}
"""The step to other loads, on smaller and larger tables, and beside 6,000 RCU/s on the base key."""
MOST_SHARDS_OF = {"step-2000-on-32": 8, "step-6000-on-32": 26, "step-10000-on-32": 48}
"""The largest N of any seed."""


def run(seed: int, *, name: str = "step", is_mitigated: bool = True, **values: Any) -> Outcome:
    """Run one seed."""
    phase = Random(f"phase/{seed}").random() * SLOT_MS / 1000
    strategy = ours() if is_mitigated else none()
    return simulate(step(name=name, phase=phase, **values), seed, strategy)


def summarize(runs: Sequence[Outcome]) -> dict[str, Any]:
    """Sum up the seeds of the step, or of a variant."""
    return spread(
        runs,
        *("raised_seconds", "on_shards_seconds", "relieved_seconds", "final_shard_count", "repeated_share"),
        late_failed_share_of_offered="late_failed_share",
        waited="writes.waited",
        waited_seconds="writes.waited_seconds",
        stored_within_second_share="writes.stored_within_second_share",
        write_p99_ms="writes.latency_ms.p99",
    )


def judge(by_part: Mapping[str, list[Outcome]]) -> Verdict:
    """Hold the seeds against the bars. Of the runs without mitigation the best one counts."""
    runs = by_part["step"]
    baseline_wcu = max(1.0, min(run.writes.failed_wcu for run in by_part["no mitigation"]))
    summary = summarize(runs)
    failed = distribution(run.writes.failed_wcu / baseline_wcu for run in runs)
    one_raise = sum(len(run.shard_counts) == 1 for run in runs)
    repeated = [run.repeated_share for run in runs if run.repeated_share is not None]
    variants = {name: summarize(by_part[name]) for name in VARIANTS}
    extra, highest = sum(repeated) / len(repeated) if repeated else None, summary["final_shard_count"].highest
    enough = 0.97 * len(runs)
    bars = [
        *_soon(summary, ""),
        at_least("seeds in which the final N was reached in one raise", one_raise, enough, "seeds"),
        at_most("N, worst seed", highest, 16, "shards"),
        at_most("puts beyond one for each write, once on shards", extra, 0.03, "as a share"),
        at_most("failed writes, of those without mitigation, worst seed", failed.highest, 0.03, "as a share"),
        *(
            at_most(f"N in {name}, worst seed", variants[name]["final_shard_count"].highest, most, "shards")
            for name, most in MOST_SHARDS_OF.items()
        ),
        *_soon(variants["read_hot"], ", where the base key's reads are refused"),
    ]
    compared = {"unmitigated_failed_wcu": baseline_wcu, "failed_share_of_unmitigated": failed, "variants": variants}
    return Verdict(fields=summary | compared, bars=bars)


def _soon(summary: Mapping[str, Outcome], where: str) -> list[Bar]:
    raised, on_shards = summary["raised_seconds"].p99, summary["on_shards_seconds"].p99
    late = summary["late_failed_share_of_offered"].highest
    return [
        at_most(f"onset to raise, p99{where}", raised, 2.0, "s"),
        at_most(f"onset to 95 % of new writes on shards, p99{where}", on_shards, 4.0, "s"),
        at_most(f"failed of what was offered after 4 s, worst seed{where}", late, 0.01, "as a share"),
    ]


STUDY = Study(
    "step",
    "One conversation steps from 100 to 4,000 WCU/s after 5 s and stays there for 60 s.",
    [
        Part("step", run, SEEDS),
        Part("no mitigation", partial(run, is_mitigated=False), UNMITIGATED_SEEDS),
        *(Part(name, partial(run, name=name, **values), VARIANT_SEEDS) for name, values in VARIANTS.items()),
    ],
    judge,
)
