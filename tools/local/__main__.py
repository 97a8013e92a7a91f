"""The command line: `python -m tools.local up`."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial

from tools.local.config import LocalConfig, parse_arguments
from tools.local.processes import LocalRunError
from tools.local.run import LocalRun


async def up(config: LocalConfig) -> None:
    """Run until a signal says stop."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    assert main is not None  # noqa: S101 - asyncio runs this

    def stop() -> None:
        if not main.cancelling():  # once: then what runs is being stopped
            main.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    try:
        async with AsyncExitStack() as cleanup:
            await LocalRun(config, cleanup, partial(print, flush=True)).start()
            await loop.create_future()
    except asyncio.CancelledError:
        print("stopped", flush=True)


def main() -> int:
    """Run and return the exit status."""
    try:
        asyncio.run(up(parse_arguments(sys.argv[1:])))
    except LocalRunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
