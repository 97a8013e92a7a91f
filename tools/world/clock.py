"""The engine: one virtual clock, one heap of events, and tasks that block without threads.

A task is a greenlet. Blocking code, the project's own core among it, runs unchanged: where it waits (for a store's
response, a sleep, another task's result) it switches to the loop, which goes on with the next event. Two events at the
same instant keep the order in which they were planned, so a run is a pure function of what was planned.

A `Process` is what can be frozen or die as a whole: an execution environment. While it is frozen its tasks' events wait
for the thaw; when it dies they never come, as for any process that is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future
from heapq import heappop, heappush
from typing import Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")
Work = Callable[[], object]
"""What an event or a task does; nobody looks at what it returns."""

EPOCH_MS = 1_800_000_000_000
"""When every run begins: an instant in 2027 that starts a slot and a minute."""
MOST_SKEW_MS = 2_000.0
"""No clock of a function is further off; beyond 5 s, messages would be refused as lying ahead."""


class Process:
    """A group of tasks that share a fate."""

    __slots__ = ("frozen", "is_alive", "parked", "tasks")

    def __init__(self) -> None:
        self.frozen = False
        self.is_alive = True
        self.parked: list[Work] = []
        # a dict, which keeps the order: a set of greenlets would be ordered by their addresses
        self.tasks: dict[Task, None] = {}

    @property
    def is_idle(self) -> bool:
        """Nothing of it runs or waits."""
        return not self.tasks


class Task(greenlet):  # type: ignore[misc]
    """Runs one piece of work after the other, and belongs to a process while it does."""

    work: Work
    process: Process

    def __init__(self, hub: greenlet, spare: list[Task]) -> None:
        super().__init__(parent=hub)
        self._spare = spare

    def resume(self) -> None:
        """Go on where it blocks, once its process is thawed, and unless that is dead."""
        process = self.process
        if process.frozen:
            process.parked.append(self.resume)
        elif process.is_alive:
            self.switch()

    def run(self) -> None:
        """Run its work, and then that of the next ones: a new greenlet costs more than ten switches."""
        while True:
            try:
                self.work()
            finally:
                self.process.tasks.pop(self, None)
                del self.work
            self._spare.append(self)
            self.parent.switch()


class Engine:
    """The virtual clock and what is planned. `now` is in seconds from the run's beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Work]] = []
        self._sequence = 0
        self._hub = getcurrent()
        self._immortal = Process()
        """Of tasks that belong to no other."""
        self._tasks: list[Task] = []
        self._spare: list[Task] = []
        """Those that have no work."""

    def now_ms(self) -> int:
        """Return the true time, Unix ms."""
        return EPOCH_MS + int(self.now * 1000)

    def at(self, time: float, work: Work) -> None:
        """Plan work for an instant; one in the past means now. It must not block."""
        self._sequence += 1
        heappush(self._heap, (max(time, self.now), self._sequence, work))

    def after(self, seconds: float, work: Work) -> None:
        """Plan work for later."""
        self._sequence += 1
        heappush(self._heap, (self.now + seconds, self._sequence, work))

    def spawn(self, work: Work, process: Process | None = None) -> None:
        """Start a task, now, after what is already planned for now; its work may block."""
        if self._spare:
            task = self._spare.pop()
        else:
            task = Task(self._hub, self._spare)
            self._tasks.append(task)
        task.work, task.process = work, process or self._immortal
        task.process.tasks[task] = None
        self.after(0.0, task.resume)

    def run_until(self, end: float) -> None:
        """Let everything happen that is planned up to an instant. What a task's work raises is raised here."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            time, _, work = heappop(heap)
            self.now = time
            work()
        self.now = max(self.now, end)

    def run_while(self, is_awaited: Callable[[], object], seconds: float) -> None:
        """Let everything happen, second by second, while something is awaited, and for so many seconds at most."""
        limit = self.now + seconds
        while is_awaited() and self.now < limit:
            self.run_until(self.now + 1.0)

    def run_to_end(self, work: Work, seconds: float) -> None:
        """Let a task run to its end.

        Raises:
            RuntimeError: it has not ended within so many seconds.
        """
        ended: list[object] = []
        self.spawn(lambda: ended.append(work()))
        self.run_while(lambda: not ended, seconds)
        if not ended:
            raise RuntimeError(f"not over within {seconds:g} s")

    def close(self) -> None:
        """End all tasks, wherever they wait: what a suspended greenlet refers to is never freed otherwise."""
        for task in self._tasks:
            task.throw(GreenletExit)
        self._tasks.clear()
        self._spare.clear()
        self._heap.clear()

    # What tasks call.

    def sleep(self, seconds: float) -> None:
        """Block the calling task."""
        self.after(seconds, self._running().resume)
        self._hub.switch()

    def call(self, out: float, effect: Callable[[], ResultT], back: float) -> ResultT:
        """Do something at another place: it happens `out` seconds from now, the response is here `back` seconds later.

        Once sent, it happens whatever becomes of the caller: a frozen or dead process has sent it all the same.
        What the effect raises is raised here.
        """
        resume = self._running().resume
        outcome: list[Any] = []

        def arrive() -> None:
            try:
                outcome.append(effect())
            except Exception as error:  # noqa: BLE001 - handed to the caller, below
                outcome.extend((None, error))
            self.after(back, resume)

        self.after(out, arrive)
        self._hub.switch()
        if len(outcome) > 1:
            # Taken out: an error in a frame of its own traceback is a circle, and stays until the run is over.
            raise outcome.pop()
        result: ResultT = outcome[0]
        return result

    def wait(self, futures: Collection[Future[Any]], timeout: float | None) -> None:
        """Block until one of several futures is done, or time is up."""
        if any(future.done() for future in futures):
            return
        resume = self._running().resume
        is_woken = False

        def wake(_: object = None) -> None:
            nonlocal is_woken
            if not is_woken:
                is_woken = True
                self.after(0.0, resume)

        for future in futures:
            future.add_done_callback(wake)
        if timeout is not None:
            self.after(timeout, wake)
        self._hub.switch()

    # Processes.

    def freeze(self, process: Process) -> None:
        """Stop a process between two of its steps."""
        process.frozen = True

    def thaw(self, process: Process) -> None:
        """Let a process go on; what it missed happens now, in its order."""
        process.frozen = False
        parked, process.parked = process.parked, []
        for work in parked:
            self.after(0.0, work)

    def kill(self, process: Process) -> None:
        """End a process; its tasks never run again. Not to be called from one of them: plan it with `after`."""
        process.is_alive = process.frozen = False
        process.parked.clear()
        for task in list(process.tasks):
            # So that nothing is left to chance (the garbage collector's), they end here; nobody hears of it.
            task.throw(GreenletExit)
        process.tasks.clear()

    def _running(self) -> Task:
        """Return the running task, which is to block."""
        task: Task = getcurrent()
        if task is self._hub:
            raise RuntimeError("only a task can block")
        return task


class SimulatedFuture(Future[ResultT]):
    """A future whose waiters are tasks. No thread knows it, so it goes without its base's locks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._has_begun = False
        self._outcome: tuple[Any, BaseException | None] | None = None
        """The result, or an error."""
        self._heard_by: list[Callable[[Future[ResultT]], object]] = []

    def set_running_or_notify_cancel(self) -> bool:
        """Begin, unless it was cancelled."""
        self._has_begun = not self.done()
        return self._has_begun

    def cancel(self) -> bool:
        """Cancel it, if it has not begun."""
        if not self._has_begun:
            self.set_exception(CancelledError())
        return not self._has_begun

    def done(self) -> bool:
        """Say whether it has ended."""
        return self._outcome is not None

    def set_result(self, result: ResultT) -> None:
        """End it with a result."""
        self._end(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """End it with an error."""
        self._end(None, exception)

    def _end(self, result: ResultT | None, error: BaseException | None) -> None:
        self._outcome = result, error
        for hear in self._heard_by:
            hear(self)

    def add_done_callback(self, fn: Callable[[Future[ResultT]], object]) -> None:
        """Call something when it has ended."""
        if self.done():
            fn(self)
        else:
            self._heard_by.append(fn)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return its error, once it has ended."""
        if self._outcome is None:
            self._engine.wait((self,), timeout)
        if self._outcome is None:
            raise TimeoutError
        return self._outcome[1]

    def result(self, timeout: float | None = None) -> ResultT:
        """Return the result, once it is there."""
        error = self.exception(timeout)
        try:
            if error is not None:
                raise error
            result: ResultT = self._outcome[0]  # type: ignore[index]
            return result
        finally:
            # As the usual future does: an error in a frame of its own traceback is a circle.
            del self, error


def wait_for(
    engine: Engine,
    futures: Collection[SimulatedFuture[Any]],
    timeout: float | None = None,
    return_when: str = FIRST_COMPLETED,
) -> tuple[list[SimulatedFuture[Any]], list[SimulatedFuture[Any]]]:
    """Wait for the first of several futures, as `concurrent.futures.wait` does; for more it is a `ValueError`.

    Lists: sets of futures would be ordered by their addresses.
    """
    if return_when != FIRST_COMPLETED:
        raise ValueError("only the first one can be waited for")
    engine.wait(futures, timeout)
    return [each for each in futures if each.done()], [each for each in futures if not each.done()]


class SimulatedExecutor(Executor):
    """A pool of so many workers, each of which is a task of one process."""

    def __init__(self, engine: Engine, process: Process | None, max_workers: int) -> None:
        self._engine = engine
        self._process = process
        self._free = max_workers
        self._queue: list[tuple[SimulatedFuture[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., ResultT], /, *args: Any, **kwargs: Any) -> SimulatedFuture[ResultT]:
        """Run a call on the next free worker."""
        future: SimulatedFuture[ResultT] = SimulatedFuture(self._engine)
        self._queue.append((future, lambda: fn(*args, **kwargs)))
        if self._free:
            self._free -= 1
            self._engine.spawn(self._work, self._process)
        return future

    def _work(self) -> None:
        while self._queue:
            future, call = self._queue.pop(0)
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - the future's owner hears of it
                future.set_exception(error)
            else:
                future.set_result(result)
        self._free += 1
