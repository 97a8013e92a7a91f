"""Best-effort work beside the request, on one thread.

A frozen environment freezes this thread as well; what it was doing goes on when the next request thaws it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore

MAX_PENDING = 8


class BackgroundThread:
    """`Background` on a thread of its own, with at most a few pieces of work waiting."""

    def __init__(self, max_pending: int = MAX_PENDING) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._slots = BoundedSemaphore(max_pending)

    def submit(self, work: Callable[[], None]) -> bool:
        """See `Background.submit`."""
        if not self._slots.acquire(blocking=False):
            return False
        future = self._executor.submit(work)
        future.add_done_callback(lambda _: self._slots.release())
        return True

    def close(self) -> None:
        """Wait for what is pending, and end the thread."""
        self._executor.shutdown(wait=True)
