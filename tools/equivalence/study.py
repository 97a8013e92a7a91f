"""`make table-equivalence`: at least 15,000 generated calls through a `ShardedTable` and through boto3's `Table`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from tools.equivalence.combinations import COMBINATIONS, Combination
from tools.equivalence.compare import DifferenceError
from tools.equivalence.engines import WORLD, EngineError, engines_at_hand, open_engine
from tools.equivalence.machine import run_machine

OUT_DIR = Path("out/equivalence")
CALLS = 16_000
"""How many calls are made at least, on each engine."""
LEAST_CALLS = 15_000
PROCESSES = 2
EXAMPLES_AT_ONCE = 20
DIFFERENT = 1
"""Exit status when there is a difference."""
NO_ENGINE = 2
"""Exit status when DynamoDB Local is asked for and cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What one combination came to on one engine. `difference` is the first one found, as short as it gets."""

    combination: str
    engine: str
    seed: int
    calls: dict[str, int]
    difference: str | None

    @property
    def total(self) -> int:
        """How many calls were made, those that led to the shortest form of a difference included."""
        return sum(self.calls.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`summary.json`."""

    calls: int
    differences: tuple[str, ...]
    combinations: tuple[str, ...]
    engines: tuple[str, ...]
    verdict: str
    comparisons: tuple[Comparison, ...]


def compare(combination: Combination, engine: str, calls: int, seed: int) -> Comparison:
    """Compare one combination on one engine until so many calls were made, or one differs."""
    counter: Counter[str] = Counter()
    difference = None
    is_world = engine == WORLD
    if is_world:
        combination = replace(combination, is_curl=False)
    with open_engine(engine, over_http=combination.is_curl) as resource, ExitStack() as stack:
        reference = stack.enter_context(open_engine("moto")) if is_world else resource
        number = 0
        while counter.total() < calls and difference is None:
            number += 1
            try:
                run_machine(
                    combination,
                    resource,
                    examples=EXAMPLES_AT_ONCE,
                    counter=counter,
                    seed=1_000 * seed + number,
                    reference=reference,
                )
            except DifferenceError as error:
                difference = "\n".join([str(error), *getattr(error, "__notes__", ())])
    return Comparison(
        combination=combination.name,
        engine=engine,
        seed=seed,
        calls=dict(sorted(counter.items())),
        difference=difference,
    )


def summarize(comparisons: Iterable[Comparison], least_calls: int = LEAST_CALLS) -> Summary:
    """Sum up: equal where nothing differed and enough was compared."""
    listed = tuple(comparisons)
    calls = sum(each.total for each in listed)
    differences = tuple(f"{each.combination} on {each.engine}: {each.difference}" for each in listed if each.difference)
    verdict = "different" if differences else "equal" if calls >= least_calls else "too few calls"
    return Summary(
        calls=calls,
        differences=differences,
        combinations=tuple(dict.fromkeys(each.combination for each in listed)),
        engines=tuple(dict.fromkeys(each.engine for each in listed)),
        verdict=verdict,
        comparisons=listed,
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.equivalence", description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help=f"calls on each engine ({CALLS:,})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT_DIR)
    options = parser.parse_args(arguments)
    try:
        return _study(options)
    except EngineError as error:
        print(error, file=sys.stderr)
        return NO_ENGINE


def _study(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    each = -(-options.calls // len(COMBINATIONS))
    context = get_context("spawn")
    with ProcessPoolExecutor(min(PROCESSES, os.cpu_count() or 1), mp_context=context) as pool:
        futures = [
            pool.submit(compare, combination, engine, each, options.seed + number)
            for engine in engines_at_hand()
            for number, combination in enumerate(COMBINATIONS)
        ]
        comparisons = []
        for future in futures:
            comparisons.append(future.result())
            print(_line(comparisons[-1]), flush=True)
    summary = summarize(comparisons, min(LEAST_CALLS, options.calls))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "summary.json"
    path.write_text(json.dumps(asdict(summary), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for difference in summary.differences:
        print(difference)
    print(
        f"{summary.verdict}: {summary.calls:,} calls, {len(summary.differences)} differences, "
        f"{len(summary.combinations)} combinations, {time.perf_counter() - began:.0f} s\n{path}"
    )
    return 0 if summary.verdict == "equal" else DIFFERENT


def _line(comparison: Comparison) -> str:
    verdict = "DIFFERENT" if comparison.difference else "equal"
    return f"{verdict:<9} {comparison.combination} on {comparison.engine}: {comparison.total:,} calls"
