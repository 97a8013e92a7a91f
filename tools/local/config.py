"""What the local run can be told, and how the command line says it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from tools.local.errors import LocalRunError
from tools.local.partitions import DEFAULT_READ_LIMIT_RCU, DEFAULT_WRITE_LIMIT_WCU
from tools.local.redis_nodes import RedisForm

ALL_FUNCTIONS = "*"
OPERATIONS_FUNCTION = "operate"
"""Waits for nobody in particular: it is started when somebody asks it for the first time."""

_MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """One local run.

    `partitions` None: each partition key has a partition to itself; a number: so many, which keys share by their hash.
    `min_environments` and `max_environments` map a function's name, or `*` for all that are not named, to a count.
    """

    port: int = 0
    redis: RedisForm = "single"
    partition_write_limit_wcu: float = DEFAULT_WRITE_LIMIT_WCU
    partition_read_limit_rcu: float = DEFAULT_READ_LIMIT_RCU
    partitions: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    min_environments: Mapping[str, int] = field(default_factory=lambda: {ALL_FUNCTIONS: 1, OPERATIONS_FUNCTION: 0})
    max_environments: Mapping[str, int] = field(default_factory=lambda: {ALL_FUNCTIONS: 8})
    idle_choice: Literal["latest", "random"] = "latest"
    seed: int = 0
    queue_seconds: float = 10.0
    work_dir: Path = Path("out/local")
    ready_file: Path | None = None
    assembly: Path | None = None
    dynamodb_endpoint: str | None = None
    region: str = "eu-central-1"

    def environments_of(self, function: str) -> tuple[int, int]:
        """Return the least and the largest number of execution environments of a function."""
        low = self.min_environments.get(function, self.min_environments.get(ALL_FUNCTIONS, 0))
        high = self.max_environments.get(function, self.max_environments.get(ALL_FUNCTIONS, 8))
        return min(low, high), high


def parse_arguments(arguments: Sequence[str], environ: Mapping[str, str]) -> LocalConfig:
    """Read `up` and its options. Wrong ones end the program with the usage and one line.

    Raises:
        LocalRunError: when a value has the right form and cannot be used.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.local", description="Runs the whole stack on this machine.")
    up = parser.add_subparsers(dest="command", required=True).add_parser("up", help="start and serve until stopped")
    defaults = LocalConfig()
    up.add_argument(
        "--port",
        type=_port,
        default=defaults.port,
        help="port of the HTTP API, and the one after it of the control API; 0 takes free ones",
    )
    up.add_argument(
        "--partition-write-limit",
        type=_positive,
        default=defaults.partition_write_limit_wcu,
        metavar="WCU",
        help="write units a second that one partition takes (default 1000)",
    )
    up.add_argument(
        "--partition-read-limit",
        type=_positive,
        default=defaults.partition_read_limit_rcu,
        metavar="RCU",
        help="read units a second that one partition takes (default 3000)",
    )
    form = up.add_mutually_exclusive_group()
    form.add_argument(
        "--redis-auth",
        dest="redis",
        action="store_const",
        const="guarded",
        default=defaults.redis,
        help="Redis asks for TLS, a user and a password",
    )
    form.add_argument(
        "--redis-replica",
        dest="redis",
        action="store_const",
        const="replicated",
        help="Redis has a replica, which the control API can promote",
    )
    up.add_argument(
        "--partitions",
        type=_partitions,
        metavar="COUNT",
        help="physical partitions of each table and index, shared by keys (a fresh table has 4; default: one a key)",
    )
    up.add_argument("--settings", type=_json_object, default={}, metavar="JSON", help="settings, by field name")
    for bound in ("min", "max"):
        up.add_argument(
            f"--{bound}-environments",
            type=_count,
            action="append",
            default=[],
            metavar="[FUNCTION=]COUNT",
            help=f"{bound}imum of execution environments, of one function or of all; can be repeated",
        )
    up.add_argument("--idle-choice", choices=("latest", "random"), default=defaults.idle_choice)
    up.add_argument("--seed", type=int, default=defaults.seed, help="seed of the random choice")
    up.add_argument("--work-dir", type=Path, default=defaults.work_dir, metavar="FOLDER")
    up.add_argument("--ready-file", type=Path, metavar="FILE", help="written once everything serves")
    up.add_argument("--assembly", type=Path, metavar="FOLDER", help="a cloud assembly that is already synthesized")
    up.add_argument(
        "--dynamodb-endpoint",
        default=environ.get("DYNAMODB_ENDPOINT"),
        metavar="URL",
        help="a DynamoDB to use instead of moto (also: the variable DYNAMODB_ENDPOINT)",
    )
    options = parser.parse_args(arguments)
    if options.dynamodb_endpoint and urlsplit(options.dynamodb_endpoint).scheme not in ("http", "https"):
        raise LocalRunError(f"the DynamoDB endpoint should be a URL, not {options.dynamodb_endpoint!r}")
    return LocalConfig(
        port=options.port,
        redis=options.redis,
        partition_write_limit_wcu=options.partition_write_limit,
        partition_read_limit_rcu=options.partition_read_limit,
        partitions=options.partitions,
        settings=options.settings,
        min_environments={**defaults.min_environments, **dict(options.min_environments)},
        max_environments={**defaults.max_environments, **dict(options.max_environments)},
        idle_choice=options.idle_choice,
        seed=options.seed,
        work_dir=options.work_dir,
        ready_file=options.ready_file,
        assembly=options.assembly,
        dynamodb_endpoint=options.dynamodb_endpoint or None,
    )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"should be between 0 and {_MAX_PORT}, not {text}")
    return port


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"should be greater than 0, not {text}")
    return number


def _partitions(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"should be a whole number greater than 0, not {text!r}")
    return int(text)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("should be a JSON object")
    return value


def _count(text: str) -> tuple[str, int]:
    function, _, count = text.rpartition("=")
    if not count.isdigit():
        raise argparse.ArgumentTypeError(f"should be a count or FUNCTION=COUNT, not {text!r}")
    return function or ALL_FUNCTIONS, int(count)
