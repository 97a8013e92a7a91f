"""`make simulate-replay`: one scenario and seed again, with everything that is known about it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.simulation.run import simulate
from tools.simulation.scenarios import SCENARIOS, scenario_by_name
from tools.simulation.strategies import STRATEGIES
from tools.simulation.studies import MISSED, OUT_DIR, write_result


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.simulation replay", description=__doc__)
    parser.add_argument("--scenario", default="compare", choices=sorted(SCENARIOS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strategy", default="ours", choices=tuple(STRATEGIES))
    parser.add_argument("--out", type=Path, default=OUT_DIR)
    options = parser.parse_args(arguments)
    run = simulate(scenario_by_name(options.scenario), options.seed, options.strategy)
    path = write_result(run, options.out, f"{options.scenario}-{options.seed}-{options.strategy}.json")
    say = sys.stdout.write
    say(f"{run.operations:,} client requests, {run.cost.store_operations:,} requests to DynamoDB\n")
    say(f"raised after {run.raised_seconds} s, relieved after {run.relieved_seconds} s\n")
    for each in run.raises:
        say(f"  {each.at_seconds:8.3f} s  {each.conversation_id}: N = {each.shard_count} ({each.reason})\n")
    say(f"{run.safety}\n")
    for example in run.safety.examples:
        say(f"  {example}\n")
    say(f"{path}\n")
    return 0 if run.safety.holds else MISSED
