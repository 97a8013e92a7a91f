"""What trials share: a stack with many writers, the ways to look into it, and how they conclude."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.cluster import RedisCluster

from tools.figures import MISSED, Bar, say_bars
from tools.play.client import HttpApi, open_session
from tools.play.stack import Stack, environment_options
from tools.play.watch import Control, open_control
from tools.world.scaling import scale_thresholds

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
        async with open_session() as session, open_control(ready["control_url"]) as control:
            redis = RedisCluster(host="127.0.0.1", port=control.status["redis"]["port"], decode_responses=True)
            yield Rig(api=HttpApi(session, ready["api_url"], connections=writers), control=control, redis=redis)


def conclude(summary: Mapping[str, object], bars: Sequence[Bar], out_dir: Path) -> int:
    """Write the summary of trials, say their bars, and return the exit status."""
    file, passed = out_dir / "summary.json", all(bar.holds for bar in bars)
    file.write_text(json.dumps(summary, indent=2) + "\n")
    say_bars(bars)
    print(f"verdict: {'pass' if passed else 'fail'}; {file}")
    return 0 if passed else MISSED
