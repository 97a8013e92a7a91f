"""Child processes that cannot outlive the local run, however it ends (on macOS: unless it is killed)."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import IO

_TAIL_LINES = 15
START_SECONDS = 120.0
_PR_SET_PDEATHSIG = 1
_PORTS = range(20_000, 32_768)
"""Below those that Linux and macOS give to outgoing connections."""
_random = SystemRandom()  # tests seed the usual one alike in all their processes
_POLL_SECONDS = 0.02
_libc = ctypes.CDLL(None, use_errno=True)
"""Without `prctl` on macOS: there a child outlives a parent that is killed."""


class LocalRunError(Exception):
    """Something the local run needs is missing, taken or broken. The message is the line that the person reads."""


def log_tail(path: Path) -> str:
    """Return a log's last lines, indented, to stand below an error's line."""
    if not path.exists():
        return ""
    lines = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return "".join(f"\n    {line}" for line in lines if line.strip())


def _die_with(parent: int) -> None:
    """Have the child that calls this, before its program starts, killed when its parent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


async def start_process(
    command: Sequence[str], *, log: IO[bytes], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a child in its own session, so that a terminal's Ctrl-C reaches only us; it is killed when we die.

    On macOS it is not: what a killed run leaves there has to be ended by hand. Any other end stops it everywhere.
    """
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=cwd,
            env=env,
            start_new_session=True,
            preexec_fn=partial(_die_with, os.getpid()) if hasattr(_libc, "prctl") else None,
        )
    except OSError as error:
        raise LocalRunError(f"{command[0]} cannot be started: {error.strerror}") from error


@contextlib.asynccontextmanager
async def serve(
    what: str, command: Sequence[str], port: int, log_path: Path, cwd: Path | None = None
) -> AsyncIterator[str]:
    """Run a server on a loopback port while a block lasts, and yield its address."""
    with log_path.open("wb") as log:
        process = await start_process(command, log=log, cwd=cwd)

    async def is_ready() -> bool:
        if process.returncode is not None:
            raise LocalRunError(f"{what} does not start:{log_tail(log_path)}")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        if not await wait_until(is_ready, seconds=START_SECONDS):
            raise LocalRunError(f"{what} does not listen after {START_SECONDS:.0f} s:{log_tail(log_path)}")
        yield f"http://127.0.0.1:{port}"
    finally:
        await kill(process)


@contextlib.contextmanager
def serving(what: str, command: Sequence[str], port: int, cwd: Path | None = None) -> Iterator[str]:
    """Do what `serve` does for what is not asynchronous, with a log that goes with the block."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        server = serve(what, command, port, Path(folder) / "log", cwd)
        url = runner.run(server.__aenter__())
        try:
            yield url
        finally:
            runner.run(server.__aexit__(None, None, None))


async def wait_until(condition: Callable[[], Awaitable[bool]], *, seconds: float) -> bool:
    """Wait until a condition holds; False when it takes too long."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def free_port() -> int:
    """Pick a free loopback port, which neither an outgoing connection nor one of us takes."""
    while True:
        port = _random.choice(_PORTS)
        held = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe, contextlib.suppress(OSError):
            held.bind(("127.0.0.1", port))
            probe.bind(("127.0.0.1", port))
            # The port for datagrams, which is not used: while this process lives, no other process here is given it.
            held.detach()
            return port
        held.close()


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
