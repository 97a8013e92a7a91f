"""Child processes that cannot outlive the local run, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from local.errors import LocalRunError

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


async def start_process(
    command: Sequence[str], *, log: IO[bytes], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a child in its own session, so that a terminal's Ctrl-C reaches only us; it is killed when we die.

    Raises:
        LocalRunError: when the program cannot be started.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # we died before the line above
            os._exit(1)

    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=cwd,
            env=env,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        raise LocalRunError(f"{command[0]} cannot be started: {error.strerror}") from error


async def kill(process: asyncio.subprocess.Process | None) -> None:
    """Kill a child, stopped or not, and wait until it is gone."""
    if process is None or process.returncode is not None:
        return
    send_signal(process, signal.SIGKILL)
    await process.wait()


def send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a child that may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
