"""Best-effort work beside the request, on one thread.

A frozen environment freezes this thread as well; what it was doing goes on when the next request thaws it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import BoundedSemaphore

MAX_PENDING = 8

_logger = logging.getLogger(__name__)


class BackgroundThread:
    """`Background` on a thread of its own, with at most a few pieces of work waiting."""

    def __init__(self, max_pending: int = MAX_PENDING, *, executor: Executor | None = None) -> None:
        self._executor = executor or ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._slots = BoundedSemaphore(max_pending)

    def submit(self, work: Callable[[], None]) -> bool:
        """Implement `Background.submit`."""
        if not self._slots.acquire(blocking=False):
            return False
        future = self._executor.submit(work)
        future.add_done_callback(self._end)
        return True

    def _end(self, future: Future[None]) -> None:
        self._slots.release()
        if error := future.exception():
            # The work handles expected errors itself; this is a bug, and the result is not waited for.
            _logger.error("background work failed", exc_info=error)

    def close(self) -> None:
        """Wait for pending work, and end the thread."""
        self._executor.shutdown(wait=True)
