"""`make table-equivalence`: at least 15,000 generated calls through a `ShardedTable` and through boto3's `Table`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from tools.equivalence.combinations import COMBINATIONS
from tools.equivalence.compare import DifferenceError
from tools.equivalence.engines import WORLD, engines_at_hand, open_engine
from tools.equivalence.machine import run_machine
from tools.equivalence.own import compare_own
from tools.figures import Outcome, at_least, at_most
from tools.local.processes import LocalRunError
from tools.scenarios.seeds import Part, Study, Verdict, run_study

OUT_DIR = Path("out/equivalence")
CALLS = 640
"""How many calls are made at least of each combination, on each engine."""
LEAST_CALLS = 15_000
EXAMPLES_AT_ONCE = 20
OWN = "the product's own requests"


def compare_combination(engine: str, number: int) -> Outcome:
    """Compare a combination on one engine; `number`: which one, from 1, and its seed."""
    combination = COMBINATIONS[number - 1]
    if engine == WORLD:
        combination = replace(combination, is_curl=False)
    with ExitStack() as stack:
        resource = stack.enter_context(open_engine(engine, over_http=combination.is_curl))
        reference = stack.enter_context(open_engine("moto")) if engine == WORLD else resource
        play = partial(run_machine, combination, resource, examples=EXAMPLES_AT_ONCE, reference=reference)
        return repeat(combination.name, engine, number, play)


def compare_requests(seed: int) -> Outcome:
    """Compare what comes of the product's own requests, on moto and on the simulator's DynamoDB."""
    return repeat(OWN, WORLD, seed, compare_own)


def repeat(combination: str, engine: str, seed: int, play: Callable[..., None]) -> Outcome:
    """Play until enough calls were made, or one differs; `difference` is the first one found, as short as it gets."""
    counter: Counter[str] = Counter()
    difference = None
    number = 1_000 * seed
    while counter.total() < CALLS and difference is None:
        number += 1
        try:
            play(counter=counter, seed=number)
        except DifferenceError as error:
            difference = "\n".join([str(error), *getattr(error, "__notes__", ())])
            sys.stderr.write(f"{combination} on {engine}: {difference}\n")
    made = dict(sorted(counter.items()))
    return Outcome(combination=combination, engine=engine, seed=seed, calls=made, difference=difference)


def judge(runs: Mapping[str, Sequence[Outcome]]) -> Verdict:
    """Call it equal where nothing differed and enough was compared."""
    comparisons = [each for listed in runs.values() for each in listed]
    calls = sum(sum(each.calls.values()) for each in comparisons)
    named = {f"{each.combination} on {each.engine}": each.difference for each in comparisons}
    different = {name: difference for name, difference in named.items() if difference}
    fields = {
        "calls": calls,
        "differences": [f"{name}: {difference}" for name, difference in different.items()],
        "combinations": list(dict.fromkeys(each.combination for each in comparisons)),
        "engines": list(dict.fromkeys(each.engine for each in comparisons)),
        "verdict": "different" if different else "equal" if calls >= LEAST_CALLS else "too few calls",
        "comparisons": comparisons,
    }
    bars = [at_most(name, int(name in different), 0, "differences") for name in named]
    return Verdict(bars=[*bars, at_least("all calls", calls, LEAST_CALLS, "calls")], fields=fields)


def main() -> int:
    """Run the command."""
    try:
        engines = engines_at_hand()
    except LocalRunError as error:
        sys.exit(str(error))
    parts = [Part(engine, partial(compare_combination, engine), len(COMBINATIONS)) for engine in engines]
    parts.append(Part(OWN, compare_requests, 1))
    about = "ShardedTable beside boto3's Table"
    study = Study("equivalence", about, parts, judge, file="summary.json")
    return run_study(study, OUT_DIR, first_seed=1, most=None)
