"""Starts and stops the local run as a child process: of the demonstration, of trials, of the acceptance, of tests."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tools.local.processes import LocalRunError, kill, send_signal, start_process

STOP_SECONDS = 60.0
POLL_SECONDS = 0.1


class StackError(Exception):
    """The local run did not start, or ended by itself."""


def environment_options(bound: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Build the options that bound (`min`, `max`) the execution environments of functions."""
    return "--more", json.dumps({f"{bound}_environments": counts})


class Stack:
    """A local run that was started here; use as an asynchronous context, which always ends it.

    It dies with this process also when that is killed and has no time to end it (`local.processes`). Its files lie in
    `out_dir`. `options` are those of `python -m tools.local up`; of those given twice, the later count.
    """

    def __init__(self, out_dir: Path, *options: str) -> None:
        self.work_dir = out_dir / "local"
        self._ready_file = out_dir / "ready.json"
        self._log_file = out_dir / "local.log"
        where = ("--work-dir", str(self.work_dir), "--ready-file", str(self._ready_file))
        self._command = (sys.executable, "-m", "tools.local", "up", *where, *options)
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self._ready_file.unlink(missing_ok=True)
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("wb") as log:
            try:
                self._process = await start_process(self._command, log=log)
            except LocalRunError as error:
                raise StackError(f"the local run did not start: {error}") from error
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._process.returncode is not None:
            return
        send_signal(self._process, signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            await kill(self._process)

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.returncode

    async def ready(self, say: Callable[[str], None] = lambda _: None) -> Mapping[str, Any]:
        """Wait until the local run serves, say what it is at, and give what it wrote about itself.

        There is no limit: it limits each of its own steps, and on a busy machine all of them together take long.

        Raises:
            StackError: it ended; the text has its last line.
        """
        said = self._last_words()
        while not self._ready_file.exists():
            if self._process.returncode is not None:
                raise StackError(f"the local run did not start: {self._last_words()} (all of it: {self._log_file})")
            if (step := self._last_words()) != said:
                say(said := step)
            await asyncio.sleep(POLL_SECONDS)
        ready: Mapping[str, Any] = json.loads(self._ready_file.read_text())
        return ready

    async def watch(self) -> None:
        """Wait for the local run to end by itself, which is a `StackError`."""
        await self._process.wait()
        raise StackError(f"the local run ended by itself: {self._last_words()} (all of it: {self._log_file})")

    def _last_words(self) -> str:
        lines = [line for line in self._log_file.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it printed nothing"
