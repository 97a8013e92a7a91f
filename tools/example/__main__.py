"""`python -m tools.example --wheel FILE`: run the rush; the exit status says whether its verdict is `pass`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tools.demo.__main__ import present
from tools.demo.run import Plan
from tools.example.devices import generate_readings
from tools.example.installed import install, synthesize
from tools.example.run import EveryView, sensors
from tools.load.scale import choose_scale
from tools.load.workload import DEFAULT_DURATION_SECONDS

SETTINGS = frozenset({"hot_at_once_wcu", "hot_sustained_wcu", "target_shard_wcu", "sampling_distance_wcu"})


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.example", description="Show a site's rush being spread.")
    parser.add_argument("--wheel", type=Path, required=True, metavar="FILE", help="hotpartition, as it is installed")
    parser.add_argument("--seed", type=int, default=1, help="seed of the readings (1)")
    parser.add_argument("--duration", type=float, default=DEFAULT_DURATION_SECONDS, metavar="SECONDS")
    parser.add_argument("--out", type=Path, default=Path("out/example"), metavar="DIR", help="where the results go")
    return parser.parse_args(arguments)


def build_plan(options: argparse.Namespace, cores: int) -> Plan:
    """Install the wheel, synthesize the app at a scale that this machine can run, and plan the rush."""
    scale = choose_scale(cores=cores)
    workload = generate_readings(seed=options.seed, scale=scale, duration_seconds=options.duration)
    environment = install(options.wheel, options.out / "packages")
    settings = {name: value for name, value in scale.settings().items() if name in SETTINGS}
    assembly = synthesize(options.out / "assembly", environment, settings=settings)
    return Plan(
        workload=workload,
        scale=scale,
        seed=options.seed,
        cores=cores,
        out_dir=options.out,
        shortened=options.duration < DEFAULT_DURATION_SECONDS,
        up_options=("--assembly", str(assembly)),
        variant=EveryView(workload.conversations),
        application=sensors(),
    )


def main(arguments: Sequence[str]) -> int:
    """Run the rush and give the exit status."""
    return present(partial(build_plan, parse_arguments(arguments)), name="example")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
