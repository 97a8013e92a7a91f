"""Starts and stops the local run as a child process of the demonstration."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tools.load.client import MESSAGES, Application
from tools.load.scale import Scale
from tools.local.errors import LocalRunError
from tools.local.processes import kill, send_signal, start_process

READY_SECONDS = 90.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.1


class StackError(Exception):
    """The local run did not start, or ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environments:
    """How many execution environments each function may have."""

    fewest: Mapping[str, int]
    most: Mapping[str, int]


def environments_for(cores: int, application: Application = MESSAGES) -> Environments:
    """Choose how many environments a machine of so many cores can run; each is a process with its own interpreter."""
    writers = max(4, min(16, 3 * cores))
    readers = max(2, min(8, cores))
    return Environments(
        fewest={application.writer: writers, application.reader: readers, "consume_reports": 1},
        most={application.writer: writers + 2, application.reader: readers + 2, "consume_reports": 2},
    )


def up_command(
    *, scale: Scale, environments: Environments, seed: int, ready_file: Path, work_dir: Path
) -> tuple[str, ...]:
    """Build the command that starts the local run at a scale."""
    return (
        sys.executable,
        *("-m", "tools.local", "up"),
        *("--partition-write-limit", f"{scale.partition_write_limit_wcu:g}"),
        *("--partition-read-limit", f"{scale.partition_read_limit_rcu:g}"),
        *("--settings", json.dumps(scale.settings())),
        *(text for name, count in environments.fewest.items() for text in ("--min-environments", f"{name}={count}")),
        *(text for name, count in environments.most.items() for text in ("--max-environments", f"{name}={count}")),
        # Any idle environment: the counts of the hot conversation lie in all of them, as they do in a large fleet.
        *("--idle-choice", "random"),
        *("--seed", str(seed)),
        *("--work-dir", str(work_dir)),
        *("--ready-file", str(ready_file)),
    )


class Stack:
    """A local run that was started here; use as an asynchronous context, which always ends it.

    It dies with this process also when that is killed and has no time to end it (`local.processes`).
    """

    def __init__(self, command: Sequence[str], *, ready_file: Path, log_file: Path) -> None:
        self._command = command
        self._ready_file = ready_file
        self._log_file = log_file
        self._process: asyncio.subprocess.Process | None = None

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
        process = self._process
        if process is None or process.returncode is not None:
            return
        send_signal(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            await kill(process)

    async def ready(self) -> Mapping[str, Any]:
        """Wait until the local run serves and give what it wrote about itself, or tell its last line."""
        for _ in range(int(READY_SECONDS / POLL_SECONDS)):
            if self._ready_file.exists():
                ready: Mapping[str, Any] = json.loads(self._ready_file.read_text())
                return ready
            if self._process is not None and self._process.returncode is not None:
                raise StackError(f"the local run did not start: {self._last_words()} (all of it: {self._log_file})")
            await asyncio.sleep(POLL_SECONDS)
        raise StackError(f"the local run was not ready after {READY_SECONDS:g} s (its output: {self._log_file})")

    async def watch(self) -> None:
        """Wait for the local run to end by itself, which is a `StackError`."""
        if self._process is not None:
            await self._process.wait()
            raise StackError(f"the local run ended by itself: {self._last_words()} (all of it: {self._log_file})")

    def _last_words(self) -> str:
        lines = [line for line in self._log_file.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it printed nothing"
