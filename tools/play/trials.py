"""What trials share: a stack with many writers, the ways to look into it, the command line, and how they conclude."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from redis.cluster import RedisCluster

from tools.figures import MISSED, Bar, say_bars
from tools.play.client import HttpApi, open_session
from tools.play.stack import BROKEN, Stack, StackError, environment_options
from tools.play.watch import Control, ControlError, open_control
from tools.world.scaling import scale_thresholds

ResultT = TypeVar("ResultT")

SETTINGS = scale_thresholds(0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A running stack and the ways to look into it."""

    api: HttpApi
    control: Control
    redis: RedisCluster

    @property
    def table(self) -> str:
        """The name of the table that is written to."""
        return str(self.control.status["dynamodb"]["table"])


@asynccontextmanager
async def running_rig(out_dir: Path, *, writers: int, seed: int, more: Sequence[str] = ()) -> AsyncIterator[Rig]:
    """Start the stack with that many write environments, and stop it at the end.

    The partition limit stays at DynamoDB's own 1,000 WCU/s, so that nothing is throttled and what is offered is exactly
    what was meant. `more` are further arguments of `python -m tools.local up`; of those given twice, the later count.
    """
    up_options = (
        *("--settings", json.dumps(SETTINGS), "--more", json.dumps({"seed": seed})),
        *environment_options("min", {"write_message": writers, "read_messages": 1}),
        *environment_options("max", {"write_message": writers}),
        *more,
    )
    async with Stack(out_dir, *up_options) as stack:
        ready = await stack.ready()
        async with open_rig(ready["api_url"], ready["control_url"], connections=writers) as rig:
            yield rig


@asynccontextmanager
async def open_rig(api_url: str, control_url: str, *, connections: int) -> AsyncIterator[Rig]:
    """Open the ways to look into a running stack."""
    async with open_session(connections=connections) as writing, open_control(control_url) as control:
        redis = RedisCluster(host="127.0.0.1", port=control.status["redis"]["port"], decode_responses=True)
        yield Rig(api=HttpApi(writing, api_url), control=control, redis=redis)


def trial_parser(name: str, description: str | None, *, trials: int, out: Path) -> argparse.ArgumentParser:
    """Build the command line that all trials have."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.play {name}", description=description)
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=out)
    return parser


def perform(
    trials: Coroutine[Any, Any, ResultT],
    out_dir: Path,
    conclude: Callable[[ResultT], tuple[Mapping[str, object], Sequence[Bar]]],
) -> int:
    """Run trials, write the summary that `conclude` gives, say its bars, and return the exit status."""
    out_dir.mkdir(parents=True, exist_ok=True)
    try:
        summary, bars = conclude(asyncio.run(trials))
    except (StackError, ControlError) as error:
        print(f"the trials could not be run: {error}", file=sys.stderr)
        return BROKEN
    (out_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    say_bars(bars)
    passed = all(bar.holds for bar in bars)
    print(f"verdict: {'pass' if passed else 'fail'}; {out_dir / 'summary.json'}")
    return 0 if passed else MISSED
