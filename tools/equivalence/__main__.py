"""`make table-equivalence`: at least 15,000 generated calls through a `ShardedTable` and through boto3's `Table`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tools.equivalence.combinations import COMBINATIONS, Combination
from tools.equivalence.compare import DifferenceError
from tools.equivalence.engines import WORLD, EngineError, engines_at_hand, open_engine
from tools.equivalence.machine import run_machine
from tools.equivalence.own import compare_own

OUT = Path("out/equivalence/summary.json")
CALLS = 16_000
"""How many calls are made at least, on each engine."""
LEAST_CALLS = 15_000
PROCESSES = 2
EXAMPLES_AT_ONCE = 20
OWN = "the product's own requests"
DIFFERENT = 1
"""Exit status when there is a difference."""
Comparison = dict[str, Any]
"""What one combination came to on one engine; `difference` is the first one found, as short as it gets."""


def compare(combination: Combination | None, engine: str, calls: int, seed: int) -> Comparison:
    """Compare one combination on one engine until as many calls were made, or one differs.

    None: the product's own requests, on moto and on the engine.
    """
    counter: Counter[str] = Counter()
    difference = None
    if engine == WORLD and combination is not None:
        combination = replace(combination, is_curl=False)
    with ExitStack() as stack:
        play = _open(stack, combination, engine, counter) if combination else partial(compare_own, counter)
        number = 0
        while counter.total() < calls and difference is None:
            number += 1
            try:
                play(seed=1_000 * seed + number)
            except DifferenceError as error:
                difference = "\n".join([str(error), *getattr(error, "__notes__", ())])
    name = combination.name if combination else OWN
    made = dict(sorted(counter.items()))
    return {"combination": name, "engine": engine, "seed": seed, "calls": made, "difference": difference}


def _open(stack: ExitStack, combination: Combination, engine: str, counter: Counter[str]) -> Callable[..., None]:
    """Open the engines of a combination, and return what plays some histories on them."""
    resource = stack.enter_context(open_engine(engine, over_http=combination.is_curl))
    reference = stack.enter_context(open_engine("moto")) if engine == WORLD else resource
    options: Any = {"examples": EXAMPLES_AT_ONCE, "counter": counter, "reference": reference}
    return partial(run_machine, combination, resource, **options)


def summarize(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Build `summary.json`: equal where nothing differed and enough was compared."""
    calls = sum(sum(each["calls"].values()) for each in comparisons)
    different = [each for each in comparisons if each["difference"]]
    return {
        "calls": calls,
        "differences": [f"{each['combination']} on {each['engine']}: {each['difference']}" for each in different],
        "combinations": list(dict.fromkeys(each["combination"] for each in comparisons)),
        "engines": list(dict.fromkeys(each["engine"] for each in comparisons)),
        "verdict": "different" if different else "equal" if calls >= LEAST_CALLS else "too few calls",
        "comparisons": list(comparisons),
    }


def main() -> int:
    """Run the command."""
    began = time.perf_counter()
    try:
        engines = engines_at_hand()
    except EngineError as error:
        sys.exit(str(error))
    summary = summarize(_compare_all(engines))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for difference in summary["differences"]:
        print(difference)
    print(
        f"{summary['verdict']}: {summary['calls']:,} calls, {len(summary['differences'])} differences, "
        f"{len(summary['combinations'])} combinations, {time.perf_counter() - began:.0f} s\n{OUT}"
    )
    return 0 if summary["verdict"] == "equal" else DIFFERENT


def _compare_all(engines: Sequence[str]) -> list[Comparison]:
    """Compare every combination on every engine, a line for each."""
    each = -(-CALLS // len(COMBINATIONS))
    comparisons = []
    with ProcessPoolExecutor(min(PROCESSES, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        futures = [
            pool.submit(compare, combination, engine, each, seed)
            for engine in engines
            for seed, combination in enumerate(COMBINATIONS, start=1)
        ]
        futures.append(pool.submit(compare, None, WORLD, each, 1))
        for future in futures:
            compared = future.result()
            verdict = "DIFFERENT" if compared["difference"] else "equal"
            made = sum(compared["calls"].values())
            print(f"{verdict:<9} {compared['combination']} on {compared['engine']}: {made:,} calls", flush=True)
            comparisons.append(compared)
    return comparisons


if __name__ == "__main__":
    sys.exit(main())
