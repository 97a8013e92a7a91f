"""The choices of a local run, and its command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hotpartition_cdk.options import list_mistakes
from tools.limits import PARTITION_RCU, PARTITION_WCU
from tools.local.redis import RedisForm

OPERATIONS_FUNCTION = "operate"
"""The service of a table's operations function. It is started when it is asked for the first time."""

MOST_ENVIRONMENTS = 8
_JSON_FIELDS = frozenset({"settings", "options"})


class LocalConfig(BaseModel):
    """One local run: what a person may choose is described, and has an option; all else comes with `--more`.

    `min_environments` and `max_environments` map a function's name to a count, which is 1 and 8 for all others.
    `clock_skews_ms`: by how much the clocks of a function's environments are wrong, one after the other.
    `close_times`: margin and pause of closes, in ms, in place of the product's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    environment: Literal["dev", "lite"] = Field("dev", description="which environment is run on this machine (dev)")
    port: int = Field(0, ge=0, le=65_533, description="of the HTTP API, the next one the control API's; 0: free ones")
    redis: RedisForm = "single"
    partition_write_limit: float = Field(PARTITION_WCU, gt=0, description="WCU/s that one partition takes (1000)")
    partition_read_limit: float = Field(PARTITION_RCU, gt=0, description="RCU/s that one partition takes (3000)")
    partitions: int | None = Field(
        None, gt=0, description="partitions of each table and index, shared by keys by their hash (one for each key)"
    )
    settings: Mapping[str, Any] = Field({}, description="JSON: settings, by field name")
    options: Mapping[str, Any] = Field({}, description="JSON: options of the stack, by name")
    work_dir: Path = Field(Path("out/local"), description="where its files go (out/local)")
    ready_file: Path | None = Field(None, description="written once everything serves")
    assembly: Path | None = Field(None, description="a cloud assembly that is already synthesized")
    min_environments: Mapping[str, int] = {}
    max_environments: Mapping[str, int] = {}
    clock_skews_ms: Mapping[str, tuple[int, ...]] = {}
    close_times: Mapping[str, int] = {}
    seed: int = 0

    def environments_of(self, *names: str) -> tuple[int, int]:
        """Return the least and the largest number of execution environments of a function, by the first known name."""
        usual = 0 if OPERATIONS_FUNCTION in names else 1
        low = next((self.min_environments[name] for name in names if name in self.min_environments), usual)
        high = next((self.max_environments[name] for name in names if name in self.max_environments), MOST_ENVIRONMENTS)
        return low, high

    def alterations(self, service: str) -> list[dict[str, Any]]:
        """List what the environments of a function are altered by, one after the other; empty where by nothing."""
        skews = self.clock_skews_ms.get(service, ())
        if not skews and not self.close_times:
            return []
        return [{"skew_ms": skew_ms, "close_times": self.close_times} for skew_ms in skews or (0,)]


def parse_arguments(arguments: Sequence[str]) -> LocalConfig:
    """Read `up` and its options. Wrong ones end the program with the usage and one line."""
    parser = argparse.ArgumentParser(prog="python -m tools.local", description="Runs the whole stack on this machine.")
    up = parser.add_subparsers(dest="command", required=True).add_parser(
        "up", help="start and serve until stopped", argument_default=argparse.SUPPRESS
    )
    for name, field in LocalConfig.model_fields.items():
        if field.description:
            is_json = name in _JSON_FIELDS
            up.add_argument(_option(name), type=json.loads if is_json else str, help=field.description)
    form = up.add_mutually_exclusive_group()
    for option, name, text in (
        ("--redis-auth", "guarded", "Redis asks for TLS, a user and a password"),
        ("--redis-replica", "replicated", "Redis has a replica, which the control API can promote"),
    ):
        form.add_argument(option, dest="redis", action="store_const", const=name, help=text)
    up.add_argument("--more", type=json.loads, action="append", metavar="JSON", help="what has no option of its own")
    options = vars(parser.parse_args(arguments))
    del options["command"]
    for more in options.pop("more", ()):
        for name, value in more.items():
            options[name] = {**options.get(name, {}), **value} if isinstance(value, dict) else value
    try:
        return LocalConfig.model_validate(options)
    except ValidationError as error:
        up.error("; ".join(list_mistakes(error, _option)))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
