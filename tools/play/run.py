"""One run of the player: start a local run, play on it, stop it; then judge, write down what came, and say it."""

from __future__ import annotations

import json
import random
import time
from abc import ABC, abstractmethod
from asyncio import TaskGroup
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from tools.figures import MISSED, say_bars
from tools.history import Verdict
from tools.play.client import Client, HttpApi, Recorder, open_session
from tools.play.stack import Control, running_stack
from tools.play.verdict import Judgement


def steady_clock() -> Callable[[], float]:
    """Build a clock that reads like the wall clock and never goes back: the history's order depends on it."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


@dataclass(kw_only=True)
class Run(ABC):
    """What is played on a local run of its own, and what becomes of it; moments are Unix seconds.

    A kind of run says what its local run is like, what happens there, and how that is judged and summed up.
    """

    out_dir: Path
    seed: int
    application: type[HttpApi] = HttpApi
    recorder: Recorder = field(default_factory=Recorder)
    now: Callable[[], float] = field(default_factory=steady_clock)
    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    control: Control = field(init=False)
    writer: Client = field(init=False)
    reader: Client = field(init=False)
    started_at: float = 0.0
    """When the local run served."""
    seconds: float = 0.0
    """How long all of it took."""

    @abstractmethod
    def configure(self) -> Mapping[str, Any]:
        """Say what the local run is like, in fields of its `LocalConfig`.

        The largest number of environments of the writing and of the reading function is that of connections as well.
        """

    @abstractmethod
    async def perform(self) -> None:
        """Do what there is to do while the local run serves."""

    @abstractmethod
    def judge(self) -> Judgement:
        """Hold what came against the bars."""

    @abstractmethod
    def summarize(self) -> Mapping[str, Any]:
        """Build what `summary.json` holds."""

    def introduce(self) -> Iterable[str]:
        """Say what is about to be done, in lines."""
        return ()

    def explain(self) -> Iterable[str]:
        """Say what a reader of the bars should know besides, in lines: the breaches of the promise."""
        for one in self.history.examples:
            yield f"     {one.fault}: {one.conversation_id} {one.message_id}: {one.detail}"

    async def write_down(self) -> tuple[Path, ...]:
        """Write the results, and list their files."""
        file = self.out_dir / "summary.json"
        file.write_text(json.dumps(self.summarize(), indent=2) + "\n")
        return (file,)

    @cached_property
    def history(self) -> Verdict:
        """The judge's verdict on all that was written and read, once it is over."""
        return self.recorder.judge()

    @cached_property
    def judgement(self) -> Judgement:
        """What the bars say, once it is over."""
        return self.judge()

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(f"{self.now() - self.started_at:6.1f} s  {text}", markup=False)

    async def present(self) -> int:
        """Carry it out, print the bars and the verdict, and whatever explains them; give the exit status.

        When the local run does not start, ends by itself or does not respond, that is a `LocalRunError`.
        """
        await self._carry_out()
        files = await self.write_down()
        judgement = self.judgement
        passed = judgement.verdict == "pass"
        say_bars(judgement.bars)
        if judgement.not_judged:
            self.console.print(f"not judged: {', '.join(judgement.not_judged)}", style="yellow")
        for line in self.explain():
            self.console.print(line, markup=False)
        self.console.print(
            f"verdict: [bold {'green' if passed else 'red'}]{judgement.verdict}[/] after {self.seconds:.0f} s; "
            f"{', '.join(map(str, files))}",
        )
        return 0 if passed else MISSED

    async def _carry_out(self) -> None:
        """Start the local run, play, and stop it."""
        began, config = self.now(), self.configure()
        for line in self.introduce():
            self.console.print(line, markup=False)
        # An interrupted run leaves nothing behind that looks like its own.
        for pattern in ("summary.json", "report.html", "report*.png"):
            for file in self.out_dir.glob(pattern):
                file.unlink()
        application = self.application
        async with running_stack(self.out_dir, self._say_step, seed=self.seed, **config) as self.control:
            url = self.control.status["api_url"]
            self.console.print(f"the local run serves {url} (after {self.now() - began:.1f} s)")
            async with TaskGroup() as tasks, open_session() as session:
                ending = tasks.create_task(self.control.watch())
                self.started_at = self.now()
                self.writer, self.reader = (
                    Client(
                        api=application(session, url, config["max_environments"][function]),
                        recorder=self.recorder,
                        rng=random.Random(self.seed + number),
                        now=self.now,
                    )
                    for number, function in enumerate((application.writer, application.reader))
                )
                await self.perform()
                ending.cancel()
            self.console.print("everything was done; stopping the local run, then judging")
        self.seconds = self.now() - began

    def _say_step(self, step: str) -> None:
        self.console.print(f"starting: {step}", markup=False)
