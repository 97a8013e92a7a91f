"""`make demo`: a chat workload against the local run; one conversation gets hot, and every message is checked.

`MESSAGES` in the environment names a .jsonl or .jsonl.gz file, whose messages take the place of the generated ones.
Other runs with a hot conversation and the same figures are kinds of this one: `make example` and `make soak`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Literal

from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from tools.figures import Bar, at_least, at_most
from tools.local.metering import SLOT_MS, TimelineRow
from tools.play.browser import NoBrowserError, take_pictures
from tools.play.client import begin_each, browse, every, play, read_all
from tools.play.read import ReadRush, describe_rush
from tools.play.report import build_report
from tools.play.run import Run
from tools.play.stack import Observations, read_route, stopped_within, watch_route
from tools.play.verdict import (
    Hot,
    Judgement,
    Machine,
    Throttles,
    conclude,
    count_busiest_second,
    count_taken_by_one_key,
    count_throttles,
    is_key_of,
    measure_machine,
    promise_bars,
)
from tools.play.workload import (
    Offer,
    Scale,
    Workload,
    generate_workload,
    measure_scale,
    read_messages_file,
    replay_workload,
)

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
LEAST_ACKNOWLEDGED, LEAST_CONVERSATIONS, LEAST_N = 5_000, 50, 4
LEAST_ACKNOWLEDGED_SHARE = 0.95
"""A workload that offers less is held to this share of it."""
RAISED_WITHIN_SECONDS = 3.0

MOST_SLOWNESS = 3.0
LONGEST_SECONDS = 120.0
"""How long a close is waited for, on any machine."""
PAGE_LIMIT = 20
MORE = 4
"""A page looks one message further, to know whether it is the last."""
MOST_PAGES = 8
QUIET_PER_SECOND, NEXT_PER_SECOND = 2.0, 8.0
QUIET_SHARE, NEXT_SHARE = 0.1, 0.4
"""Messages written while it is waited for, and behind the close; at most as large a share of what a partition takes."""
SETTLE_SECONDS = 2 * SLOT_MS / 1000


def choose_times(speed: float) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Choose the settings of closes, and their margin and pause, which are no settings; longer on a slow machine."""
    slowness = min(MOST_SLOWNESS, 1 / speed)
    settings = {"is_closing": True, "close_after_seconds": 3.0 * slowness, "lease_seconds": 2.0 * slowness}
    return settings, dict.fromkeys(("margin_ms", "pause_ms"), round(1_000 * slowness))


@dataclass(kw_only=True)
class Demonstration(Run):
    """A workload with a hot conversation, and what its readers, DynamoDB and the journal see of it.

    After the workload of one that `is_whole`, readers rush for the hot conversation's newest page. Then it is waited
    until that is closed, and its newest page is read behind that.
    """

    workload: Workload
    scale: Scale
    environment: Literal["dev", "lite"] = "dev"
    visitor_pause_seconds: float = VISITOR_PAUSE_SECONDS
    is_whole: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    """More of what the local run is like."""
    phase: str = "playing"
    seen: Observations = field(default_factory=Observations)
    rush: ReadRush = field(init=False)
    timeline: tuple[TimelineRow, ...] = ()
    """What DynamoDB saw at each key."""
    most_environments: int = 0
    """The largest number of execution environments that there were at a time."""
    closed_at: float | None = None
    """From when on the hot conversation was closed, once it had cooled."""
    keys_after_close: int | None = None
    """How many partition keys its newest page queried behind that."""
    complete: dict[str, int] = field(default_factory=dict)
    """How often the views of a kind were read to their ends."""

    @property
    def name(self) -> str:
        """The hot conversation."""
        return self.workload.hot_conversation

    def introduce(self) -> Iterable[str]:
        """Say what is played, at which scale, and why that is smaller than usual if it is."""
        scale = self.scale
        why = f"; this machine gets {100 * scale.speed:.0f} % of its usual work done now" if scale.speed < 1 else ""
        yield f"workload: {self.workload.description}"
        yield (
            f"scale: {scale.factor:.4g} of DynamoDB's own numbers: a partition takes "
            f"{scale.partition_write_limit_wcu:g} WCU/s and {scale.partition_read_limit_rcu:g} RCU/s{why}"
        )
        yield f"starting the local run of {self.environment}"

    def configure(self) -> Mapping[str, Any]:
        """Choose the local run: at the scale, with closes soon if they are waited for, and no more than cores can run.

        Each environment is a process.
        """
        scale, cores = self.scale, self.scale.cores
        most = {
            self.application.writer: max(4, min(16, 3 * cores)) + SPARE_ENVIRONMENTS,
            self.application.reader: max(2, min(8, cores)) + SPARE_ENVIRONMENTS,
            **({CONSUMER: 2} if self.environment == "dev" else {}),
        }
        closing, close_times = choose_times(scale.speed) if self.is_whole else ({}, {})
        functions = FUNCTIONS if self.environment == "dev" else IN_BAND_FUNCTIONS
        known = {name for each in functions for name in MessageSettings.declared(each)}
        return {
            "environment": self.environment,
            "partition_write_limit": scale.partition_write_limit_wcu,
            "partition_read_limit": scale.partition_read_limit_rcu,
            "settings": {name: value for name, value in {**scale.settings(), **closing}.items() if name in known},
            "min_environments": {name: max(1, count - SPARE_ENVIRONMENTS) for name, count in most.items()},
            "max_environments": most,
            "close_times": close_times,
            **self.more,
        }

    async def perform(self) -> None:
        """Play each phase after the other."""
        is_over = asyncio.Event()
        self.rush = ReadRush(client=self.reader, conversation_id=self.name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_showing(is_over))
            await self._play()
            if self.is_whole:
                self.phase = "read rush"
                await self._rush()
                self.phase = "cooling"
                await self._cool_down()
            self.phase = "reading"
            await self.read_views()
            self.timeline = await self.control.list_loads()
            is_over.set()

    async def disturb(self, stopped: asyncio.Event) -> None:
        """Break parts while the workload is played, and repair them before the closing reads."""

    def list_views(self) -> Mapping[str, Sequence[str]]:
        """List what the application shows when all was written, by kind: the conversations, the longest one first."""
        return {self.application.collection: sorted(self.workload.conversations, key=lambda name: name != self.name)}

    async def read_views(self) -> None:
        """Read all views from both ends, one kind after the other."""
        for kind, views in self.list_views().items():
            self.complete[kind] = await read_all(self.reader, views, readers=CLOSING_READERS)

    async def _play(self) -> None:
        """Write the workload, while visitors read, parts break and all is watched."""
        stopped = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_route(self.control, self.name, self.seen, now=self.now, stopped=stopped))
            tasks.create_task(self.disturb(stopped))
            for _ in range(VISITORS):
                pause = self.visitor_pause_seconds
                tasks.create_task(browse(self.reader, self.workload, pause_seconds=pause, stopped=stopped))
            await play(self.writer, self.workload.offers)
            stopped.set()

    async def _rush(self) -> None:
        """Ask for the newest page of the hot conversation at a rate, and give up what is late."""
        per_second = READ_RUSH_PAGES_PER_SECOND_AND_CORE * self.scale.cores * self.scale.speed
        asked = islice(every(1 / per_second, self.rush.ask), int(READ_RUSH_SECONDS * per_second))
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_RUSH_SECONDS + PATIENCE_SECONDS):
                await begin_each(asked, [])

    async def _cool_down(self) -> None:
        """Write a little until the hot conversation is closed, then a page more, and read that."""
        limit_wcu, deadline = self.scale.partition_write_limit_wcu, self.now() + LONGEST_SECONDS
        while self.closed_at is None or self.now() <= self.closed_at:
            if self.now() > deadline:
                return
            await self._write(min(QUIET_PER_SECOND, QUIET_SHARE * limit_wcu))
            self.closed_at = self.closed_at or await self._find_close()
        for _ in range(PAGE_LIMIT + MORE):
            await self._write(min(NEXT_PER_SECOND, NEXT_SHARE * limit_wcu))
        # Without Redis, an environment that has not read the conversation since learns of the close by its first page.
        for _ in range(MOST_PAGES):
            if self.keys_after_close != 1:
                self.keys_after_close = await self._count_keys()

    async def _write(self, per_second: float) -> None:
        await self.writer.write(Offer(0.0, self.name, "ada", f"after the rush, {self.now()}"))
        await asyncio.sleep(1 / per_second)

    async def _find_close(self) -> float | None:
        route = read_route(await self.control.routing_item(self.name))
        if route.shard_count_at(None):
            return None  # not closed, or raised since
        return max((close.at_ms / 1000 for close in route.closes if close.is_confirmed), default=None)

    async def _count_keys(self) -> int:
        """Read the newest page, strongly consistent so that no cache has it, and count the keys that were read."""
        await asyncio.sleep(SETTLE_SECONDS)
        began_ms = self.now() * 1000
        await self.reader.read(self.name, order="newest", consistency="strong", limit=PAGE_LIMIT, most_pages=1)
        await asyncio.sleep(SETTLE_SECONDS)
        loads = await self.control.list_loads(since_ms=began_ms - SLOT_MS)
        return len({row.key for row in loads if row.reads and is_key_of(row.key, self.name)})

    async def _keep_showing(self, is_over: asyncio.Event) -> None:
        """Show the figures now and then, as totals."""
        counts = self.recorder.counts
        while not await stopped_within(is_over, LINE_SECONDS):
            functions = (await self.control.look())["functions"].values()
            environments = sum(int(each["environments"]) for each in functions)
            self.most_environments = max(self.most_environments, environments)
            self.say(
                f"{self.phase:<9}  offered {counts['offered']}  "
                f"acknowledged {counts['acknowledged'] - counts['replays']}  throttled {counts['throttled']}  "
                f"pages {counts['pages']}  N {self.seen.shard_count}  environments {self.most_environments}"
            )

    # What became of it, once it is over.

    @cached_property
    def hot(self) -> Hot:
        """When it was hot."""
        began, workload = self.started_at, self.workload
        return Hot(begins=began + workload.onset_seconds, ends=began + workload.hot_end_seconds)

    @cached_property
    def machine(self) -> Machine:
        """How well this machine kept up."""
        return measure_machine(self.recorder.queued_seconds, self.recorder.late_seconds)

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
        settings, limit_wcu = self.scale.settings(), self.scale.partition_write_limit_wcu
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
            "environments": self.most_environments,
            "duration_seconds": round(self.seconds, 1),
            "hot_offered": len(offered),
            # Of them, those that one partition key would have stored when they were offered.
            "one_key_takes": count_taken_by_one_key(offered, limit_wcu),
            "seconds_until_closed": round(self.closed_at - self.hot.ends, 1) if self.closed_at else None,
            "keys_after_close": self.keys_after_close,
            **describe_rush(self.rush.asked, self.out_dir / "local"),
        }

    def judge_promise(self, unexpected: Sequence[str]) -> list[Bar]:
        """Hold the promise, and that all views were read to their ends."""
        bars = promise_bars(self.history, unexpected, item=self.application.item)
        for kind, views in self.list_views().items():
            unit = f"reads of {len(views)}, from both ends"
            bars.append(at_least(f"{kind} complete", self.complete[kind], 2 * len(views), unit))
        return bars

    def judge(self) -> Judgement:
        """Judge by bars in the order in which a reader cares, in the application's words.

        On a machine that has not kept up, what depends on time is not judged, and N has to do for what DynamoDB saw in
        the busiest second. The promises are judged in any case, and so are closes while the heat lasted.
        """
        figures, history, workload = self.figures, self.history, self.workload
        collection, item = self.application.collection, self.application.item
        partitions = ceil(count_busiest_second(self.timeline, self.name) / figures["partition_limit_wcu"])
        least_n = LEAST_N if self.machine.kept_up else min(LEAST_N, partitions if partitions > 1 else 0)
        least_conversations = min(LEAST_CONVERSATIONS, len(workload.conversations))
        acknowledged = min(LEAST_ACKNOWLEDGED, round(LEAST_ACKNOWLEDGED_SHARE * len(workload.offers)))
        first, last = self.throttles.in_first_second, self.throttles.in_last_third
        closes_in_heat = sum(seen_at < self.hot.ends for seen_at in self.seen.closes.values())
        timed = [
            at_least(f"{item}s acknowledged", history.acknowledged, acknowledged, f"{item}s"),
            at_most("onset to raise", figures["onset_to_raise_seconds"], RAISED_WITHIN_SECONDS, "s"),
            at_most("throttles fall", last, first - 1, "in the last third of the heat, fewer than in its first second"),
        ]
        if self.is_whole:
            timed.append(
                at_most("newest page of what has cooled", figures["keys_after_close"] or None, 1, "keys queried")
            )
        bars = [
            *self.judge_promise(self.recorder.notes),
            at_least(f"{collection}s", history.conversations, least_conversations, f"{collection}s"),
            at_least("largest N", figures["max_n"], least_n, "shards"),
            at_most("not closed in the heat", closes_in_heat, 0, "closes"),
        ]
        return conclude(bars, timed, kept_up=self.machine.kept_up)

    def summarize(self) -> Mapping[str, Any]:
        """Build what `summary.json` holds."""
        return {
            **{name: getattr(self.history, name) for name in HISTORY_FIGURES},
            **self.figures,
            "verdict": self.judgement.verdict,
            "not_judged": list(self.judgement.not_judged),
            "machine_kept_up": self.machine.kept_up,
            "machine": self.machine.description,
        }

    def explain(self) -> Iterable[str]:
        """Say as well, of a run that failed, where to look; and how the machine did."""
        yield from super().explain()
        if self.judgement.verdict != "pass":
            yield from (f"     unexpected: {note}" for note in self.recorder.notes[:MOST_NOTES])
            yield f"     what the functions said: {self.out_dir / 'local' / 'logs'}"
        yield self.machine.description

    async def write_down(self) -> tuple[Path, ...]:
        """Write the summary and the report, and take pictures of the latter."""
        report = self.out_dir / "report.html"
        files = (*await super().write_down(), report)
        report.write_text(build_report(self), encoding="utf-8")
        try:
            await take_pictures(report)
        except (NoBrowserError, TimeoutError) as error:
            self.console.print(f"no screenshots: {error}", markup=False)
        return files


async def run(options: argparse.Namespace) -> int:
    """Play the demonstration, from a file of messages if one is named."""
    file = os.environ.get("MESSAGES")
    found = read_messages_file(Path(file)) if file else ()
    scale = measure_scale(len(found[0][1]) if found else None)
    workload = generate_workload(seed=options.seed, scale=scale, duration_seconds=options.duration)
    if file:
        workload = replay_workload(workload, found, name=Path(file).name)
    demonstration = Demonstration(
        workload=workload,
        scale=scale,
        seed=options.seed,
        out_dir=options.out,
        environment=options.environment,
        is_whole=True,
    )
    return await demonstration.present()
