"""An event loop in a thread of its own, so that a test can use blocking clients, and break parts meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any


class Loop:
    """Runs coroutines; how long they may take is for the test's own timeout."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.submit(coroutine).result()

    def close(self) -> None:
        """Cancel what runs, and end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()


@contextmanager
def opened(context: AbstractAsyncContextManager[Any]) -> Iterator[tuple[Loop, Any]]:
    """Open an asynchronous context in a loop of its own, and close both after the block."""
    loop = Loop()
    try:
        value = loop.run(context.__aenter__())
        try:
            yield loop, value
        finally:
            loop.run(context.__aexit__(None, None, None))
    finally:
        loop.close()
