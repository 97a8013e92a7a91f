"""One run from start to end: start the stack, play the workload, read everything, judge, write it down, say it."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from tools.figures import MISSED, say_bars
from tools.history import Verdict
from tools.local.metering import TimelineRow
from tools.play.browser import NoBrowserError, take_pictures
from tools.play.client import Client, HttpApi, Recorder, begin_each, browse, every, open_session, play, read_all
from tools.play.cooling import choose_times, cool_down
from tools.play.readers import ReadRush, describe_rush
from tools.play.report import build_report
from tools.play.stack import Stack, environment_options
from tools.play.verdict import (
    Hot,
    Judgement,
    Machine,
    Throttles,
    count_taken_by_one_key,
    count_throttles,
    judge,
    measure_machine,
)
from tools.play.watch import Control, Observations, open_control, stopped_within, watch_route
from tools.play.workload import Scale, Workload

READ_RUSH_SECONDS = 6.0
READ_RUSH_PAGES_PER_SECOND_AND_CORE = 20.0
PATIENCE_SECONDS = 4.0
"""How long a rush of readers waits for what is late; a request without a response was not served."""
VISITORS = 2
VISITOR_PAUSE_SECONDS = 0.4
CLOSING_READERS = 3
LINE_SECONDS = 2.0
MOST_NOTES = 20
SPARE_ENVIRONMENTS = 2
"""These are started when all others are busy."""
CONSUMER = "consume_reports"
HISTORY_FIGURES = ("acknowledged", "missing", "duplicated", "out_of_order", "conversations", "reads")
"""What `summary.json` has of a history's verdict."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What a run is to do, here the demonstration's; another kind of run reads or breaks more, and has other bars.

    After the workload of one that `is_whole`, readers rush for the hot conversation's newest page. Then it is waited
    until that is closed, and its newest page is read behind that.
    """

    workload: Workload
    scale: Scale
    seed: int
    out_dir: Path
    environment: Literal["dev", "lite"] = "dev"
    visitor_pause_seconds: float = VISITOR_PAUSE_SECONDS
    is_whole: bool = False
    up_options: tuple[str, ...] = ()
    application: type[HttpApi] = HttpApi

    @property
    def summary_file(self) -> Path:
        """Where the figures go."""
        return self.out_dir / "summary.json"

    @property
    def report_file(self) -> Path:
        """Where the report goes."""
        return self.out_dir / "report.html"

    async def disturb(self, run: Run, stopped: asyncio.Event) -> None:
        """Break parts while the workload is played, and repair them before the closing reads."""

    async def read_more(self, reader: Client) -> None:
        """Read what else the application shows, when all was written and read."""

    def facts(self, run: Run) -> Mapping[str, Any]:
        """Give what `summary.json` says beside the common figures."""
        del run
        return {}

    def judge(self, run: Run) -> Judgement:
        """Judge a run."""
        return judge(run)

    def describe_scale(self) -> str:
        """Say the scale in one line, and why it is smaller than usual if it is."""
        scale = self.scale
        why = f"; this machine gets {100 * scale.speed:.0f} % of its usual work done now" if scale.speed < 1 else ""
        return (
            f"{scale.factor:.4g} of DynamoDB's own numbers: a partition takes "
            f"{scale.partition_write_limit_wcu:g} WCU/s and {scale.partition_read_limit_rcu:g} RCU/s{why}"
        )

    def most_environments(self) -> dict[str, int]:
        """Choose how many environments each function has, at most: as many as the cores can run, each a process."""
        cores = self.scale.cores
        return {
            self.application.writer: max(4, min(16, 3 * cores)) + SPARE_ENVIRONMENTS,
            self.application.reader: max(2, min(8, cores)) + SPARE_ENVIRONMENTS,
            **({CONSUMER: 2} if self.environment == "dev" else {}),
        }

    def build_options(self) -> tuple[str, ...]:
        """Build the options of the local run: at the scale, and with closes soon if they are waited for."""
        scale, most = self.scale, self.most_environments()
        closing, close_times = choose_times(scale.speed) if self.is_whole else ({}, {})
        functions = FUNCTIONS if self.environment == "dev" else IN_BAND_FUNCTIONS
        known = {name for each in functions for name in MessageSettings.declared(each)}
        settings = {name: value for name, value in {**scale.settings(), **closing}.items() if name in known}
        return (
            *("--partition-write-limit", f"{scale.partition_write_limit_wcu:g}"),
            *("--partition-read-limit", f"{scale.partition_read_limit_rcu:g}"),
            *("--environment", self.environment),
            *("--settings", json.dumps(settings)),
            *environment_options("min", {name: max(1, count - SPARE_ENVIRONMENTS) for name, count in most.items()}),
            *environment_options("max", most),
            *("--more", json.dumps({"seed": self.seed, "close_times": close_times})),
            *self.up_options,
        )


@dataclass(kw_only=True)
class Run:
    """A plan that is carried out on a local run, and what became of it; moments are Unix seconds."""

    plan: Plan
    writer: Client
    reader: Client
    control: Control
    console: Console
    now: Callable[[], float]
    phase: str = "playing"
    seen: Observations = field(default_factory=Observations)
    timeline: tuple[TimelineRow, ...] = ()
    """What DynamoDB saw at each key."""
    environments: int = 0
    """The largest number of execution environments that there were at a time."""
    closed_at: float | None = None
    """From when on the hot conversation was closed, once it had cooled."""
    keys_after_close: int | None = None
    """How many partition keys its newest page queried behind that."""
    seconds: float = 0.0
    """How long all of it took."""

    def __post_init__(self) -> None:
        """Begin the clock."""
        self.started_at = self.now()
        self.recorder, self.name = self.writer.recorder, self.plan.workload.hot_conversation
        self.rush = ReadRush(client=self.reader, conversation_id=self.name)
        workload = self.plan.workload
        begins, ends = (self.started_at + after for after in (workload.onset_seconds, workload.hot_end_seconds))
        self.hot = Hot(begins=begins, ends=ends)

    async def perform(self) -> None:
        """Play each phase after the other."""
        plan, is_over = self.plan, asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_showing(is_over))
            await self._play()
            if plan.is_whole:
                self.phase = "read rush"
                await self._rush()
                self.phase = "cooling"
                await cool_down(self)
            self.phase = "reading"
            # The longest read comes first.
            names = sorted(plan.workload.conversations, key=lambda name: name != self.name)
            await read_all(self.reader, names, readers=CLOSING_READERS)
            await plan.read_more(self.reader)
            self.timeline = await self.control.list_loads()
            is_over.set()

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(f"{self.now() - self.started_at:6.1f} s  {text}", markup=False)

    async def _play(self) -> None:
        """Write the workload, while visitors read, parts break and all is watched."""
        plan, stopped = self.plan, asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_route(self.control, self.name, self.seen, now=self.now, stopped=stopped))
            tasks.create_task(plan.disturb(self, stopped))
            for _ in range(VISITORS):
                pause = plan.visitor_pause_seconds
                tasks.create_task(browse(self.reader, plan.workload, pause_seconds=pause, stopped=stopped))
            await play(self.writer, plan.workload.offers)
            stopped.set()

    async def _rush(self) -> None:
        """Ask for the newest page of the hot conversation at a rate, and give up what is late."""
        per_second = READ_RUSH_PAGES_PER_SECOND_AND_CORE * self.plan.scale.cores * self.plan.scale.speed
        asked = islice(every(1 / per_second, self.rush.ask), int(READ_RUSH_SECONDS * per_second))
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_RUSH_SECONDS + PATIENCE_SECONDS):
                await begin_each(asked, [])

    async def _keep_showing(self, is_over: asyncio.Event) -> None:
        """Show the figures now and then, as totals."""
        counts = self.recorder.counts
        while not await stopped_within(is_over, LINE_SECONDS):
            functions = (await self.control.look())["functions"].values()
            self.environments = max(self.environments, sum(int(each["environments"]) for each in functions))
            self.say(
                f"{self.phase:<9}  offered {counts['offered']}  "
                f"acknowledged {counts['acknowledged'] - counts['replays']}  throttled {counts['throttled']}  "
                f"pages {counts['pages']}  N {self.seen.shard_count}  environments {self.environments}"
            )

    # What became of it, once it is over.

    @cached_property
    def history(self) -> Verdict:
        """The judge's verdict on all that was written and read."""
        return self.recorder.judge()

    @cached_property
    def machine(self) -> Machine:
        """How well this machine kept up."""
        return measure_machine(self.recorder.queued_seconds, self.recorder.late_seconds)

    @cached_property
    def judgement(self) -> Judgement:
        """The bars of the plan."""
        return self.plan.judge(self)

    @property
    def raised_at(self) -> float | None:
        """When the onset brought a raise: the first one from then on."""
        return min((at for at in self.seen.raises.values() if at >= self.hot.begins), default=None)

    @cached_property
    def throttles(self) -> Throttles:
        """The refused writes of the hot conversation."""
        return count_throttles(self.timeline, conversation_id=self.name, raised_at=self.raised_at, hot=self.hot)

    @cached_property
    def figures(self) -> Mapping[str, Any]:
        """What `summary.json` has beside those of the history, the verdict and the machine."""
        settings, limit_wcu = self.plan.scale.settings(), self.plan.scale.partition_write_limit_wcu
        offered = [at for at, conversation_id in self.recorder.offered_at if conversation_id == self.name]
        return {
            "rejected": self.recorder.counts["rejected"],
            "hot_conversation": self.name,
            "hot_threshold_wcu": settings["hot_at_once_wcu"],
            "partition_limit_wcu": limit_wcu,
            "sampling_distance_wcu": settings["sampling_distance_wcu"],
            "onset_to_raise_seconds": round(self.raised_at - self.hot.begins, 3) if self.raised_at else None,
            "raises": len(self.seen.raises),
            "max_n": self.seen.shard_count,
            "throttled_before_raise": self.throttles.before_raise,
            "throttled_after_raise": self.throttles.after_raise,
            "environments": self.environments,
            "duration_seconds": round(self.seconds, 1),
            "hot_offered": len(offered),
            # Of them, those that one partition key would have stored when they were offered.
            "one_key_takes": count_taken_by_one_key(offered, limit_wcu),
            "seconds_until_closed": round(self.closed_at - self.hot.ends, 1) if self.closed_at else None,
            "keys_after_close": self.keys_after_close,
            **describe_rush(self.rush.asked, self.plan.out_dir / "local"),
        }

    @property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds."""
        return {
            **{name: getattr(self.history, name) for name in HISTORY_FIGURES},
            **self.figures,
            "verdict": self.judgement.verdict,
            "not_judged": list(self.judgement.not_judged),
            "machine_kept_up": self.machine.kept_up,
            "machine": self.machine.description,
        }


async def present(plan: Plan) -> int:
    """Carry out a plan, print the bars and the verdict, and whatever explains a failure; give the exit status.

    When the local run does not start, ends by itself or does not respond, that is a `StackError` or a `ControlError`.
    """
    console = Console(highlight=False, soft_wrap=True)
    run = await carry_out(plan, console)
    await asyncio.to_thread(write_down, run)
    try:
        await take_pictures(plan.report_file)
    except (NoBrowserError, TimeoutError) as error:
        console.print(f"no screenshots: {error}", markup=False)
    judgement = run.judgement
    passed = judgement.verdict == "pass"
    say_bars(judgement.bars)
    if judgement.not_judged:
        console.print(f"not judged: {', '.join(judgement.not_judged)}", style="yellow")
    details = [f"{one.fault}: {one.conversation_id} {one.message_id}: {one.detail}" for one in run.history.examples]
    if not passed:
        details += [f"unexpected: {note}" for note in run.recorder.notes[:MOST_NOTES]]
        details.append(f"what the functions said: {plan.out_dir / 'local' / 'logs'}")
    for detail in details:
        console.print(f"     {detail}", markup=False)
    console.print(run.machine.description, style="" if run.machine.kept_up else "yellow")
    console.print(
        f"verdict: [bold {'green' if passed else 'red'}]{judgement.verdict}[/] after "
        f"{run.seconds:.0f} s; {plan.summary_file}, {plan.report_file}",
    )
    return 0 if passed else MISSED


def steady_clock() -> Callable[[], float]:
    """Build a clock that reads like the wall clock and never goes back: the history's order depends on it."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


async def carry_out(plan: Plan, console: Console) -> Run:
    """Start the local run, play, and stop it."""
    now = steady_clock()
    began = now()
    # An interrupted run leaves nothing behind that looks like its own.
    for file in (plan.summary_file, plan.report_file, *plan.out_dir.glob("report*.png")):
        file.unlink(missing_ok=True)
    console.print(f"workload: {plan.workload.description}")
    console.print(f"scale: {plan.describe_scale()}")
    async with Stack(plan.out_dir, *plan.build_options()) as stack:
        console.print(f"starting the local run of {plan.environment}")
        ready = await stack.ready(say=lambda step: console.print(f"starting: {step}", markup=False))
        console.print(f"the local run serves {ready['api_url']} (after {now() - began:.1f} s)")
        async with asyncio.TaskGroup() as tasks:
            ending = tasks.create_task(stack.watch())
            run = await perform(plan, ready, console=console, now=now)
            ending.cancel()
        console.print("everything was read; stopping the local run, then judging")
    run.seconds = now() - began
    return run


async def perform(plan: Plan, ready: Mapping[str, Any], *, console: Console, now: Callable[[], float]) -> Run:
    """Open the ways to a local run that serves, and play."""
    recorder, most, application = Recorder(), plan.most_environments(), plan.application

    def open_client(function: str, seed: int) -> Client:
        api = application(session, ready["api_url"], connections=most[function])
        return Client(api=api, recorder=recorder, rng=random.Random(seed), now=now)

    async with open_session() as session, open_control(ready["control_url"]) as control:
        writer, reader = open_client(application.writer, plan.seed), open_client(application.reader, plan.seed + 1)
        run = Run(plan=plan, writer=writer, reader=reader, control=control, console=console, now=now)
        await run.perform()
        return run


def write_down(run: Run) -> None:
    """Judge a run, and write its summary and its report."""
    plan = run.plan
    plan.summary_file.write_text(json.dumps({**run.summary, **plan.facts(run)}, indent=2) + "\n")
    plan.report_file.write_text(build_report(run), encoding="utf-8")
