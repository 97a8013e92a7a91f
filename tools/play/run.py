"""One demonstration from start to end: start the stack, play the workload, read everything, judge, write it down."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from tools.play.browser import NoBrowserError, take_pictures
from tools.play.client import Client, HttpApi, Recorder, browse, open_session, play, read_all
from tools.play.cooling import NOT_CLOSED, Cooled, close_settings, close_times, cool_down
from tools.play.readers import ReadRush, count_origins, describe_rush
from tools.play.report import Run, build_report, build_summary, remove_results
from tools.play.scale import Scale
from tools.play.stack import Stack, environment_options
from tools.play.verdict import (
    Hot,
    Judgement,
    count_busiest_second,
    count_taken_by_one_key,
    count_throttles,
    first_raise_after,
    judge,
    measure_machine,
)
from tools.play.watch import (
    Control,
    Observations,
    look_at_parts,
    open_control,
    stopped_within,
    watch_parts,
    watch_route,
)
from tools.play.workload import Workload

READ_RUSH_PAGES_PER_SECOND_AND_CORE = 20.0
VISITORS = 2
VISITOR_PAUSE_SECONDS = 0.4
CLOSING_READERS = 3
LINE_SECONDS = 2.0
SPARE_ENVIRONMENTS = 2
"""These are started when all others are busy."""
CONSUMER = "consume_reports"


class Variant:
    """What a run does beside writing and reading, and what it is judged by; this one is the demonstration's."""

    def recorder(self) -> Recorder:
        """Build what keeps the history."""
        return Recorder()

    async def read_more(self, reader: Client) -> None:
        """Read what else the application shows, when all was written and read."""

    async def disturb(self, control: Control, say: Callable[[str], None], stopped: asyncio.Event) -> None:
        """Break parts while the workload is played, and repair them before the closing reads."""

    def judge(self, run: Run) -> Judgement:
        """Judge a run."""
        played, plan = run.played, run.played.plan
        return judge(
            figures=run.figures,
            history=run.history,
            throttles=run.throttles,
            offered=len(plan.workload.offers),
            conversations=len(plan.workload.conversations),
            unexpected=played.writer.recorder.notes,
            kept_up=run.machine.kept_up,
            busiest_second=count_busiest_second(run.timeline, played.hot_conversation),
            cools=plan.cools,
            closes_in_heat=sum(seen_at < played.hot.ends for seen_at in played.seen.closes.values()),
            collection=plan.application.collection,
            item=plan.application.item,
        )

    def facts(self) -> Mapping[str, Any]:
        """Give what `summary.json` says beside the common figures."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one demonstration is to do; times are seconds after the workload's start."""

    workload: Workload
    scale: Scale
    seed: int
    cores: int
    out_dir: Path
    environment: Literal["dev", "lite"] = "dev"
    speed: float = 1.0
    """What this machine gets done while others are at work on it, as a share of what it does usually."""
    visitor_pause_seconds: float = VISITOR_PAUSE_SECONDS
    read_rush_seconds: float = 0.0
    """How long, after the workload, everybody reads the hot conversation's newest page."""
    cools: bool = False
    """Whether the hot conversation is waited for until it is closed, and its newest page read behind that."""
    up_options: tuple[str, ...] = ()
    variant: Variant = field(default_factory=Variant)
    application: type[HttpApi] = HttpApi

    @property
    def most_environments(self) -> Mapping[str, int]:
        """How many execution environments of each function this machine can run; each is a process of its own."""
        return {
            self.application.writer: max(4, min(16, 3 * self.cores)) + SPARE_ENVIRONMENTS,
            self.application.reader: max(2, min(8, self.cores)) + SPARE_ENVIRONMENTS,
            **({CONSUMER: 2} if self.environment == "dev" else {}),
        }

    @property
    def settings(self) -> Mapping[str, float]:
        """The settings that the environment's functions have: the scale's, and the times of closes."""
        functions = FUNCTIONS if self.environment == "dev" else IN_BAND_FUNCTIONS
        known = {name for each in functions for name in MessageSettings.declared(each)}
        settings = {**self.scale.settings(), **(close_settings(self.speed) if self.cools else {})}
        return {name: value for name, value in settings.items() if name in known}

    def describe_scale(self) -> str:
        """Say the scale in one line, and why it is smaller than usual if it is."""
        why = f"; this machine gets {100 * self.speed:.0f} % of its usual work done now" if self.speed < 1 else ""
        return (
            f"{self.scale.factor:.4g} of DynamoDB's own numbers: a partition takes "
            f"{self.scale.partition_write_limit_wcu:g} WCU/s and {self.scale.partition_read_limit_rcu:g} RCU/s{why}"
        )

    def up_command(self) -> tuple[str, ...]:
        """Build the options of the local run: at the scale, with as many environments as the cores can run."""
        most = self.most_environments
        times = close_times(self.speed) if self.cools else {}
        return (
            *("--partition-write-limit", f"{self.scale.partition_write_limit_wcu:g}"),
            *("--partition-read-limit", f"{self.scale.partition_read_limit_rcu:g}"),
            *("--environment", self.environment),
            *("--settings", json.dumps(self.settings)),
            *environment_options("min", {name: max(1, count - SPARE_ENVIRONMENTS) for name, count in most.items()}),
            *environment_options("max", most),
            *("--more", json.dumps({"seed": self.seed, "close_times": times})),
            *self.up_options,
        )

    @property
    def summary_file(self) -> Path:
        """Where the figures go."""
        return self.out_dir / "summary.json"

    @property
    def report_file(self) -> Path:
        """Where the report goes."""
        return self.out_dir / "report.html"


async def demonstrate(plan: Plan, *, console: Console, now: Callable[[], float]) -> tuple[Run, Judgement]:
    """Run a demonstration; `now` is the wall clock (seconds since the epoch).

    When the local run does not start, ends by itself or does not respond, that is a `StackError` or a `ControlError`.
    """
    began = now()
    remove_results(plan.out_dir)
    console.print(f"workload: {plan.workload.description}")
    console.print(f"scale: {plan.describe_scale()}")
    async with Stack(plan.out_dir, *plan.up_command()) as stack:
        console.print(f"starting the local run of {plan.environment}")
        ready = await stack.ready(say=lambda step: console.print(f"starting: {step}", markup=False))
        console.print(f"the local run serves {ready['api_url']} (after {now() - began:.1f} s)")
        async with asyncio.TaskGroup() as tasks:
            ending = tasks.create_task(stack.watch())
            played = await _perform(plan, ready, console=console, now=now)
            ending.cancel()
        console.print("everything was read; stopping the local run, then judging")
    run, judgement = await asyncio.to_thread(_conclude, played, seconds=now() - began)
    try:
        await take_pictures(plan.report_file)
    except (NoBrowserError, TimeoutError) as error:
        console.print(f"no screenshots: {error}", markup=False)
    return run, judgement


async def _perform(plan: Plan, ready: Mapping[str, Any], *, console: Console, now: Callable[[], float]) -> Playing:
    """Open the ways to a local run that serves, and play."""
    recorder, rng = plan.variant.recorder(), random.Random(plan.seed)
    async with (
        open_session(connections=plan.most_environments[plan.application.writer]) as writing,
        open_session(connections=plan.most_environments[plan.application.reader]) as reading,
        open_control(ready["control_url"]) as control,
    ):
        api = plan.application(writing, ready["api_url"])
        writer = Client(api=api, recorder=recorder, rng=rng, now=now)
        reader = replace(writer, api=plan.application(reading, ready["api_url"]), rng=random.Random(plan.seed + 1))
        playing = Playing(plan=plan, writer=writer, reader=reader, control=control, console=console, now=now)
        await playing.run()
        return playing


@dataclass(slots=True, kw_only=True)
class Playing:
    """A workload that is played on a local run which serves, and what is known of it; moments are Unix seconds."""

    plan: Plan
    writer: Client
    reader: Client
    control: Control
    console: Console
    now: Callable[[], float]
    phase: str = "playing"
    seen: Observations = field(default_factory=Observations)
    cooled: Cooled = NOT_CLOSED
    started_at: float = field(init=False)
    rush: ReadRush = field(init=False)

    def __post_init__(self) -> None:
        """Begin the clock."""
        recorder, name = self.writer.recorder, self.hot_conversation
        self.started_at = self.now()
        self.rush = ReadRush(api=self.reader.api, recorder=recorder, conversation_id=name, now=self.now)

    @property
    def hot_conversation(self) -> str:
        """What becomes hot."""
        return self.plan.workload.hot_conversation

    @property
    def hot(self) -> Hot:
        """When it is hot."""
        workload = self.plan.workload
        begins = self.started_at + workload.onset_seconds
        return Hot(begins=begins, ends=self.started_at + workload.hot_end_seconds)

    async def run(self) -> None:
        """Play each phase after the other."""
        plan, is_over = self.plan, asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_showing(is_over))
            await self._play()
            if plan.read_rush_seconds:
                self.phase = "read rush"
                per_second = READ_RUSH_PAGES_PER_SECOND_AND_CORE * plan.cores * plan.speed
                await self.rush.last(plan.read_rush_seconds, per_second)
            if plan.cools:
                self.phase = "cooling"
                self.cooled = await cool_down(self)
            self.phase = "reading"
            # The longest read comes first.
            names = sorted(plan.workload.conversations, key=lambda name: name != self.hot_conversation)
            await read_all(self.reader, names, readers=CLOSING_READERS)
            await plan.variant.read_more(self.reader)
            await look_at_parts(self.control, self.seen)
            is_over.set()

    async def _play(self) -> None:
        """Write the workload, while visitors read, parts break and all is watched."""
        stopped, pause = asyncio.Event(), self.plan.visitor_pause_seconds
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_parts(self.control, self.seen, stopped=stopped))
            watching = watch_route(self.control, self.hot_conversation, self.seen, now=self.now, stopped=stopped)
            tasks.create_task(watching)
            tasks.create_task(self.plan.variant.disturb(self.control, self._say, stopped))
            for _ in range(VISITORS):
                tasks.create_task(browse(self.reader, self.plan.workload, pause_seconds=pause, stopped=stopped))
            await play(self.writer, self.plan.workload.offers)
            stopped.set()

    def _say(self, text: str) -> None:
        self.console.print(f"{self.now() - self.started_at:6.1f} s  {text}", markup=False)

    async def _keep_showing(self, is_over: asyncio.Event) -> None:
        """Show the figures now and then, as totals."""
        counts = self.writer.recorder.counts
        while not await stopped_within(is_over, LINE_SECONDS):
            self._say(
                f"{self.phase:<9}  offered {counts.offered}  acknowledged {counts.acknowledged - counts.replays}  "
                f"throttled {counts.throttled}  pages {counts.pages}  N {self.seen.shard_count}  "
                f"environments {self.seen.most_environments}"
            )


def _conclude(played: Playing, *, seconds: float) -> tuple[Run, Judgement]:
    """Judge what was played and write summary and report."""
    plan, recorder, seen, hot, name = (
        played.plan,
        played.writer.recorder,
        played.seen,
        played.hot,
        played.hot_conversation,
    )
    raised = first_raise_after(seen.raises, hot.begins)
    timeline = seen.timeline()
    throttles = count_throttles(timeline, conversation_id=name, raised_at=raised.seen_at if raised else None, hot=hot)
    settings, limit_wcu = plan.scale.settings(), plan.scale.partition_write_limit_wcu
    rush, closed_at = played.rush.asked, played.cooled.closed_at
    offered = [at for at, conversation_id in recorder.offered_at if conversation_id == name]
    figures = {
        "rejected": recorder.counts.rejected,
        "hot_conversation": name,
        "hot_threshold_wcu": settings["hot_at_once_wcu"],
        "partition_limit_wcu": limit_wcu,
        "sampling_distance_wcu": settings["sampling_distance_wcu"],
        "onset_to_raise_seconds": round(raised.seen_at - hot.begins, 3) if raised else None,
        "raises": len(seen.raises),
        "max_n": seen.shard_count,
        "throttled_before_raise": throttles.before_raise,
        "throttled_after_raise": throttles.after_raise,
        "environments": seen.most_environments,
        "duration_seconds": round(seconds, 1),
        "hot_offered": len(offered),
        # Of them, those that one partition key would have stored when they were offered.
        "one_key_takes": count_taken_by_one_key(offered, limit_wcu),
        "seconds_until_closed": round(closed_at - hot.ends, 1) if closed_at else None,
        "keys_after_close": played.cooled.keys,
        **describe_rush(rush, count_origins(plan.out_dir / "local", rush[0].began) if rush else Counter()),
    }
    run = Run(
        played=played,
        figures=figures,
        history=recorder.judge(),
        throttles=throttles,
        machine=measure_machine(recorder.queued_seconds, recorder.late_seconds),
        timeline=timeline,
    )
    judgement = plan.variant.judge(run)
    plan.out_dir.mkdir(parents=True, exist_ok=True)
    summary = {**build_summary(run, judgement), **plan.variant.facts()}
    plan.summary_file.write_text(json.dumps(summary, indent=2) + "\n")
    plan.report_file.write_text(build_report(run, judgement), encoding="utf-8")
    return run, judgement
