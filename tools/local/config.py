"""What the local run can be told, and how the command line says it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hotpartition_cdk.mistakes import list_mistakes
from tools.limits import PARTITION_RCU, PARTITION_WCU
from tools.local.redis_nodes import RedisForm

ALL_FUNCTIONS = "*"
OPERATIONS_FUNCTION = "operate"
"""The service of a table's operations function. It is started when it is asked for the first time."""

_LEAST_ENVIRONMENTS: Mapping[str, int] = {ALL_FUNCTIONS: 1, OPERATIONS_FUNCTION: 0}
_MOST_ENVIRONMENTS: Mapping[str, int] = {ALL_FUNCTIONS: 8}


class LocalConfig(BaseModel):
    """One local run.

    `partitions` None: each partition key has a partition to itself; a number: so many, which keys share by their hash.
    `min_environments` and `max_environments` map a function's name, or `*` for all that are not named, to a count.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    environment: Literal["dev", "lite"] = "dev"
    port: int = Field(default=0, ge=0, le=65_535)
    redis: RedisForm = "single"
    partition_write_limit_wcu: float = Field(default=PARTITION_WCU, gt=0, alias="partition_write_limit")
    partition_read_limit_rcu: float = Field(default=PARTITION_RCU, gt=0, alias="partition_read_limit")
    partitions: int | None = Field(default=None, gt=0)
    settings: Mapping[str, Any] = Field(default_factory=dict)
    options: Mapping[str, Any] = Field(default_factory=dict)
    min_environments: Mapping[str, int] = _LEAST_ENVIRONMENTS
    max_environments: Mapping[str, int] = _MOST_ENVIRONMENTS
    clock_skews_ms: Mapping[str, tuple[int, ...]] = Field(default_factory=dict)
    close_times: Mapping[str, int] = Field(default_factory=dict)
    seed: int = 0
    work_dir: Path = Path("out/local")
    ready_file: Path | None = None
    assembly: Path | None = None

    def environments_of(self, *names: str) -> tuple[int, int]:
        """Return the least and the largest number of execution environments of a function, by the first known name."""
        low, high = (
            next((counts[name] for name in (*names, ALL_FUNCTIONS) if name in counts), default)
            for counts, default in ((self.min_environments, 0), (self.max_environments, 8))
        )
        return min(low, high), high


def parse_arguments(arguments: Sequence[str]) -> LocalConfig:
    """Read `up` and its options. Wrong ones end the program with the usage and one line."""
    parser = argparse.ArgumentParser(prog="python -m tools.local", description="Runs the whole stack on this machine.")
    up = parser.add_subparsers(dest="command", required=True).add_parser(
        "up", help="start and serve until stopped", argument_default=argparse.SUPPRESS
    )
    up.add_argument("--environment", choices=("dev", "lite"), help="which environment is run on this machine (dev)")
    up.add_argument("--port", help="port of the HTTP API, and the one after it of the control API; 0 takes free ones")
    up.add_argument(
        "--partition-write-limit", metavar="WCU", help="write units a second that one partition takes (default 1000)"
    )
    up.add_argument(
        "--partition-read-limit", metavar="RCU", help="read units a second that one partition takes (default 3000)"
    )
    form = up.add_mutually_exclusive_group()
    form.add_argument(
        "--redis-auth",
        dest="redis",
        action="store_const",
        const="guarded",
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
        metavar="COUNT",
        help="physical partitions of each table and index, shared by keys (a fresh table has 4; default: one a key)",
    )
    up.add_argument("--settings", type=_json_object, metavar="JSON", help="settings, by field name")
    up.add_argument("--options", type=_json_object, metavar="JSON", help="options of the stack, by name")
    for bound in ("min", "max"):
        up.add_argument(
            f"--{bound}-environments",
            type=_count,
            action="append",
            metavar="[FUNCTION=]COUNT",
            help=f"{bound}imum of execution environments, of one function or of all; can be repeated",
        )
    up.add_argument(
        "--clock-skews-ms",
        type=_json_object,
        metavar="JSON",
        help="by how much the clocks of a function's environments are wrong, one after the other, by its name",
    )
    up.add_argument(
        "--close-times",
        type=_json_object,
        metavar="JSON",
        help="margin_ms and pause_ms of closes, for all functions, in place of a minute and an hour",
    )
    up.add_argument("--seed", help="seed of the random choice")
    up.add_argument("--work-dir", metavar="FOLDER")
    up.add_argument("--ready-file", metavar="FILE", help="written once everything serves")
    up.add_argument("--assembly", metavar="FOLDER", help="a cloud assembly that is already synthesized")
    options = vars(parser.parse_args(arguments))
    del options["command"]
    for name, counts in (("min_environments", _LEAST_ENVIRONMENTS), ("max_environments", _MOST_ENVIRONMENTS)):
        options[name] = {**counts, **dict(options.get(name, ()))}
    try:
        return LocalConfig.model_validate(options)
    except ValidationError as error:
        mistakes = list_mistakes(error, LocalConfig, lambda name: f"--{name.replace('_', '-')}")
        # What may be left out is null in JSON; on a command line nobody says so.
        up.error("; ".join(mistakes).replace(" or null", ""))


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
