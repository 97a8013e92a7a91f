"""One demonstration from start to end: start the stack, play the workload, read everything, judge, write it down."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from rich.console import Console

from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from tools.history import Verdict
from tools.play.browser import NoBrowserError, take_pictures
from tools.play.client import Client, HttpApi, Recorder, browse, list_closing_reads, open_session, play, read_all
from tools.play.cooling import NOT_CLOSED, CoolDown, close_settings, close_times
from tools.play.readers import ReadRush, count_origins, describe_rush
from tools.play.report import Played, Run, build_report, remove_results
from tools.play.scale import Scale
from tools.play.stack import Stack, environment_options
from tools.play.verdict import (
    Hot,
    Judgement,
    Summary,
    count_busiest_second,
    count_taken_by_one_key,
    count_throttles,
    first_raise_after,
    judge,
    measure_machine,
    summary_document,
)
from tools.play.watch import (
    Control,
    Event,
    Observations,
    View,
    keep_showing,
    look_at_parts,
    open_control,
    watch_parts,
    watch_route,
)
from tools.play.workload import Workload

ResultT = TypeVar("ResultT")

READ_RUSH_PAGES_PER_SECOND_AND_CORE = 20.0
VISITORS = 2
VISITOR_PAUSE_SECONDS = 0.4
CLOSING_READERS = 3
ENDING_SECONDS = 1.0
SIGN_SECONDS = 5.0
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

    def judge(self, plan: Plan, run: Run) -> Judgement:
        """Judge a run that has no judgement yet."""
        hot = run.played.hot
        return judge(
            summary=run.summary,
            history=run.history,
            throttles=run.throttles,
            offered=len(plan.workload.offers),
            conversations=len(plan.workload.conversations),
            unexpected=run.played.recorder.notes,
            kept_up=run.machine.kept_up,
            busiest_second=count_busiest_second(run.timeline, plan.workload.hot_conversation),
            cools=plan.cools,
            closes_in_heat=sum(seen_at < hot.ends for seen_at in run.played.observations.closes.values()),
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
    reads_from_both_ends: bool = False
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
        why = f" (this machine gets {100 * self.speed:.0f} % of its usual work done now)" if self.speed < 1 else ""
        return f"{self.scale.describe()}{why}"

    @property
    def summary_file(self) -> Path:
        """Where the figures go."""
        return self.out_dir / "summary.json"

    @property
    def report_file(self) -> Path:
        """Where the report goes."""
        return self.out_dir / "report.html"


async def demonstrate(
    plan: Plan,
    *,
    console: Console,
    now: Callable[[], float],
    started_at: float,
) -> Run:
    """Run a demonstration that began at `started_at`; `now` is the wall clock (seconds since the epoch).

    When the local run does not start, ends by itself or does not respond, that is a `StackError` or a `ControlError`.
    """
    remove_results(plan.out_dir)
    console.print(f"workload: {plan.workload.description}")
    console.print(f"scale: {plan.describe_scale()}")
    async with Stack(plan.out_dir, *_up_options(plan)) as stack:
        console.print(f"starting the local run of {plan.environment}: template, DynamoDB's stand-in, functions")
        ready = await with_signs_of_life(stack.ready(), console, lambda: f"starting: {stack.step}")
        console.print(f"the local run serves {ready['api_url']} (after {now() - started_at:.1f} s)")
        played = await _unless_it_ends(stack, _perform(plan, ready, console=console, now=now))
        console.print("everything was read; stopping the local run, then judging")
    conclusion = asyncio.to_thread(_conclude, plan, played, began=started_at, ended_at=now())
    run = await with_signs_of_life(conclusion, console, lambda: "still judging")
    try:
        await with_signs_of_life(take_pictures(plan.report_file), console, lambda: "taking screenshots")
    except (NoBrowserError, TimeoutError) as error:
        console.print(f"no screenshots: {error}", markup=False)
    return run


def _up_options(plan: Plan) -> tuple[str, ...]:
    """Build the options of the local run: at the plan's scale, with as many environments as its cores can run."""
    most = plan.most_environments
    fewest = {name: max(1, count - SPARE_ENVIRONMENTS) for name, count in most.items()}
    return (
        *("--partition-write-limit", f"{plan.scale.partition_write_limit_wcu:g}"),
        *("--partition-read-limit", f"{plan.scale.partition_read_limit_rcu:g}"),
        *("--environment", plan.environment),
        *("--settings", json.dumps(plan.settings)),
        *environment_options("min", fewest),
        *environment_options("max", most),
        # Any idle environment: the counts of the hot conversation lie in all of them, as they do in a large fleet.
        *("--more", json.dumps({"seed": plan.seed, "close_times": close_times(plan.speed) if plan.cools else {}})),
        *plan.up_options,
    )


async def with_signs_of_life(work: Awaitable[ResultT], console: Console, words: Callable[[], str]) -> ResultT:
    """Await something that is silent, and say every few seconds that it goes on."""
    task = asyncio.ensure_future(work)
    seconds = 0.0
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=SIGN_SECONDS)
            if done:
                return task.result()
            seconds += SIGN_SECONDS
            console.print(f"  {words()}, {seconds:.0f} s", markup=False)
    finally:
        task.cancel()


async def _unless_it_ends(stack: Stack, performance: Any) -> Played:
    """Await the performance, but not longer than the stack lives."""
    running = asyncio.ensure_future(performance)
    watching = asyncio.ensure_future(stack.watch())
    try:
        await asyncio.wait({running, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() or running.exception() is not None:
            # A request to a stack that is ending fails as well; that the stack ended is the better explanation.
            await asyncio.wait({watching}, timeout=ENDING_SECONDS)
            if watching.done():
                watching.result()
        played: Played = await running
        return played
    finally:
        for task in (running, watching):
            task.cancel()
        await asyncio.gather(running, watching, return_exceptions=True)


async def _perform(plan: Plan, ready: Mapping[str, Any], *, console: Console, now: Callable[[], float]) -> Played:
    recorder, observations = plan.variant.recorder(), Observations()

    def say(text: str) -> None:
        observations.events.append(Event(now(), text))

    rng = random.Random(plan.seed)
    async with (
        open_session(connections=plan.most_environments[plan.application.writer]) as writing,
        open_session(connections=plan.most_environments[plan.application.reader]) as reading,
        open_control(ready["control_url"]) as control,
    ):
        api = plan.application(writing, ready["api_url"])
        writer = Client(api=api, recorder=recorder, rng=rng, now=now)
        reader = replace(writer, api=plan.application(reading, ready["api_url"]), rng=random.Random(plan.seed + 1))
        await look_at_parts(control, observations, now=now)
        hot_conversation = plan.workload.hot_conversation
        started_at = now()
        observations.events.append(Event(started_at, "the workload starts"))
        hot = Hot(begins=started_at + plan.workload.onset_seconds, ends=started_at + plan.workload.hot_end_seconds)
        view = View(recorder, observations, now=now, started_at=started_at)
        stopped, closed = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_showing(view, console, stopped=closed))
            tasks.create_task(watch_parts(control, observations, now=now, stopped=stopped))
            tasks.create_task(watch_route(control, hot_conversation, observations, now=now, stopped=stopped))
            onset = Event(hot.begins, f"{hot_conversation} becomes hot")
            asyncio.get_running_loop().call_later(plan.workload.onset_seconds, observations.events.append, onset)
            disturbing = tasks.create_task(plan.variant.disturb(control, say, stopped))
            for _ in range(VISITORS):
                tasks.create_task(
                    browse(reader, plan.workload, pause_seconds=plan.visitor_pause_seconds, stopped=stopped)
                )
            view.phase = "playing"
            await play(writer, plan.workload.offers)
            stopped.set()
            workload_ended_at = now()
            await disturbing
            view.phase = "read rush"
            rush = ReadRush(api=reader.api, recorder=recorder, conversation_id=hot_conversation, now=now)
            rush_began = now()
            if plan.read_rush_seconds:
                say(f"everybody asks for the newest page of {hot_conversation}")
                await rush.last(plan.read_rush_seconds, READ_RUSH_PAGES_PER_SECOND_AND_CORE * plan.cores * plan.speed)
            cooled = NOT_CLOSED
            if plan.cools:
                view.phase = "cooling"
                cooled = await CoolDown(
                    writer=writer,
                    reader=reader,
                    conversation_id=hot_conversation,
                    control=control,
                    observations=observations,
                    now=now,
                    limit_wcu=plan.scale.partition_write_limit_wcu,
                ).run()
            view.phase = "reading"
            say(f"all written; every {plan.application.collection} is read to its end")
            reads = list_closing_reads(plan.workload, from_both_ends=plan.reads_from_both_ends)
            unread = await read_all(reader, reads, readers=CLOSING_READERS)
            await plan.variant.read_more(reader)
            await look_at_parts(control, observations, now=now)
            view.phase = "done"
            closed.set()
    return Played(
        recorder=recorder,
        observations=observations,
        hot=hot,
        started_at=started_at,
        workload_ended_at=workload_ended_at,
        unread=unread,
        rush=tuple(rush.asked),
        rush_began=rush_began,
        cooled=cooled,
    )


def _conclude(plan: Plan, played: Played, *, began: float, ended_at: float) -> Run:
    """Judge what was played and write summary and report."""
    recorder, observations, workload, hot = played.recorder, played.observations, plan.workload, played.hot
    raised = first_raise_after(observations.raises, hot.begins)
    timeline = observations.timeline()
    throttles = count_throttles(
        timeline, conversation_id=workload.hot_conversation, raised_at=raised.seen_at if raised else None, hot=hot
    )
    history = recorder.judge()
    closed_at = played.cooled.closed_at
    origins = count_origins(plan.out_dir / "local", played.rush_began) if played.rush else Counter()
    offered = [at for at, name in recorder.offered_at if name == workload.hot_conversation]
    summary = Summary(
        rejected=recorder.counts.rejected,
        hot_conversation=workload.hot_conversation,
        hot_threshold_wcu=plan.scale.settings()["hot_at_once_wcu"],
        partition_limit_wcu=plan.scale.partition_write_limit_wcu,
        sampling_distance_wcu=plan.scale.settings()["sampling_distance_wcu"],
        onset_to_raise_seconds=round(raised.seen_at - hot.begins, 3) if raised else None,
        raises=len(observations.raises),
        max_n=observations.shard_count,
        throttled_before_raise=throttles.before_raise,
        throttled_after_raise=throttles.after_raise,
        environments=observations.most_environments,
        duration_seconds=round(ended_at - began, 1),
        hot_offered=len(offered),
        one_key_takes=count_taken_by_one_key(offered, plan.scale.partition_write_limit_wcu),
        seconds_until_closed=round(closed_at - hot.ends, 1) if closed_at else None,
        keys_after_close=played.cooled.keys,
        **describe_rush(played.rush, origins),
    )
    run = Run(
        played=played,
        summary=summary,
        history=history,
        throttles=throttles,
        machine=measure_machine(recorder.queued_seconds, recorder.late_seconds),
        timeline=timeline,
        words=plan.application,
        done=_tell(plan, played, history),
    )
    run = replace(run, judgement=plan.variant.judge(plan, run))
    _write_down(plan, run)
    return run


def _write_down(plan: Plan, run: Run) -> None:
    plan.out_dir.mkdir(parents=True, exist_ok=True)
    document = {**summary_document(run.summary, run.history, run.judgement, run.machine), **plan.variant.facts()}
    plan.summary_file.write_text(json.dumps(document, indent=2) + "\n")
    plan.report_file.write_text(build_report(run), encoding="utf-8")


def _tell(plan: Plan, played: Played, history: Verdict) -> tuple[str, ...]:
    """Tell what was done, for the report."""
    counts, words = played.recorder.counts, plan.application
    started = (
        f"The template of {plan.environment} ran on this machine, "
        f"{'with real Redis and ' if plan.environment == 'dev' else 'with '}a DynamoDB that refuses what a partition "
        "would refuse."
    )
    written = (
        f"{counts.offered:,} {words.item}s were offered, {counts.throttled:,} responses said to come back later and "
        f"were obeyed ({counts.retries:,} retries with the same id), {counts.rejected} {words.item}s were given up, "
        f"{counts.unanswered} requests got no response; {counts.replays} acknowledged {words.item}s were sent once "
        "more on purpose."
    )
    closed = (
        f"{VISITORS} visitors read at random meanwhile. Then every {words.collection} was read completely and strongly "
        f"consistent; in all {history.reads:,} reads of {counts.pages:,} pages were checked."
    )
    unread = (f"Not read to the end: {', '.join(played.unread)}.",) if played.unread else ()
    scale, workload = f"Scale: {plan.describe_scale()}.", f"Workload: {plan.workload.description}."
    return (started, scale, workload, written, closed, *unread)
