"""The command line: `python -m tools.local up`."""

from __future__ import annotations

import asyncio
import signal
import sys

from tools.local.config import LocalConfig, parse_arguments
from tools.local.processes import LocalRunError
from tools.local.run import LocalRun


async def up(config: LocalConfig) -> None:
    """Run until a signal, or the control API, says stop."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    run = LocalRun(config, say=lambda line: print(line, flush=True))
    started = False

    def stop() -> None:
        if started or main is None:
            run.stop_requested.set()
        else:
            main.cancel()  # still starting: what was started is stopped again

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with run:
            started = True
            await run.stop_requested.wait()
            print("stopping", flush=True)
    except asyncio.CancelledError:
        print("stopped while starting", flush=True)


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
