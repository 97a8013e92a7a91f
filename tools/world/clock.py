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
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeVar, cast

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


class Task:
    """A greenlet that runs one piece of work after the other, and belongs to a process while it does."""

    __slots__ = ("greenlet", "process", "work")

    def __init__(self) -> None:
        self.process: Process | None = None
        self.work: Work = _nothing
        self.greenlet: Any = None


def _nothing() -> None:
    """Do nothing."""


class Engine:
    """The virtual clock and what is planned. `now` is in seconds from the run's beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Work]] = []
        self._sequence = 0
        self._hub = getcurrent()
        self._running: Task | None = None
        self._spare: list[Task] = []
        self._tasks: list[Task] = []
        self._failure: BaseException | None = None

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

    def spawn(self, work: Work, process: Process | None = None) -> Task:
        """Start a task, now, after what is already planned for now; its work may block."""
        task = self._spare.pop() if self._spare else self._create_task()
        task.work = work
        task.process = process
        if process is not None:
            process.tasks[task] = None
        self.after(0.0, self._resumption(task))
        return task

    def _create_task(self) -> Task:
        task = Task()
        task.greenlet = greenlet(lambda: self._loop(task), self._hub)
        self._tasks.append(task)
        return task

    def _loop(self, task: Task) -> None:
        """Run a task's work, and then that of the next ones: a new greenlet costs more than all its switches."""
        while True:
            try:
                task.work()
            except GreenletExit:
                return
            except BaseException as error:  # noqa: BLE001 - a bug in what runs: the run ends with it
                self._failure = error
                return
            finally:
                if task.process is not None:
                    task.process.tasks.pop(task, None)
                task.work, task.process = _nothing, None
            self._spare.append(task)
            self._hub.switch()

    def run_until(self, end: float) -> None:
        """Let everything happen that is planned up to an instant. What a task's work raises is raised here."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            time, _, work = heappop(heap)
            self.now = time
            work()
            if self._failure is not None:
                raise self._failure
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
        is_over = False

        def run() -> None:
            nonlocal is_over
            work()
            is_over = True

        self.spawn(run)
        self.run_while(lambda: not is_over, seconds)
        if not is_over:
            raise RuntimeError(f"not over within {seconds:g} s")

    def close(self) -> None:
        """End all tasks, wherever they wait: what a suspended greenlet refers to is never freed otherwise."""
        for task in self._tasks:
            task.greenlet.throw(GreenletExit)
        self._tasks.clear()
        self._spare.clear()
        self._heap.clear()

    # What tasks call.

    def sleep(self, seconds: float) -> None:
        """Block the calling task."""
        self.after(seconds, self._resumption())
        self._hub.switch()

    def call(self, out: float, effect: Callable[[], ResultT], back: float) -> ResultT:
        """Do something at another place: it happens `out` seconds from now, the response is here `back` seconds later.

        Once sent, it happens whatever becomes of the caller: a frozen or dead process has sent it all the same.
        What the effect raises is raised here.
        """
        resume = self._resumption()
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

    def wait(self, is_done: Callable[[Work], bool], timeout: float | None) -> None:
        """Block until `is_done` says so; it is given what to call when it may have changed."""
        resume = self._resumption()
        is_woken = False

        def wake() -> None:
            nonlocal is_woken
            if not is_woken:
                is_woken = True
                self.after(0.0, resume)

        if is_done(wake):
            return
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
        process.is_alive = False
        process.parked.clear()
        for task in list(process.tasks):
            # So that nothing is left to chance (the garbage collector's), they end here; nobody hears of it.
            task.greenlet.throw(GreenletExit)
        process.tasks.clear()

    def _resumption(self, task: Task | None = None) -> Work:
        """Build what lets a task (the running one, if none is named) go on where it blocks."""
        blocked = task or self._running
        if blocked is None:
            raise RuntimeError("only a task can block")
        process = blocked.process
        if process is None:
            return partial(self._switch_to, blocked)
        return partial(self._resume, blocked, process)

    def _resume(self, task: Task, process: Process) -> None:
        if not process.is_alive:
            return
        if process.frozen:
            process.parked.append(partial(self._resume, task, process))
        else:
            self._switch_to(task)

    def _switch_to(self, task: Task) -> None:
        self._running = task
        task.greenlet.switch()
        self._running = None


class SimulatedFuture(Future[ResultT]):
    """A future whose waiters are tasks, one at a time; without threads it needs none of the usual one's locks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_running = self._is_over = self._is_cancelled = False
        self._outcome: tuple[Any, BaseException | None] = (None, None)
        self.wake: Work = _nothing
        """What its waiter is woken by."""
        self._callbacks: list[Callable[[Future[ResultT]], object]] = []

    def done(self) -> bool:
        """Implement `Future.done`."""
        return self._is_over

    def add_done_callback(self, fn: Callable[[Future[ResultT]], object]) -> None:
        """Implement `Future.add_done_callback`."""
        if self._is_over:
            fn(self)
        else:
            self._callbacks.append(fn)

    def cancel(self) -> bool:
        """Implement `Future.cancel`."""
        if not self._is_running and not self._is_over:
            self._is_cancelled = True
            self._end(None, CancelledError())
        return self._is_cancelled

    def set_running_or_notify_cancel(self) -> bool:
        """Implement `Future.set_running_or_notify_cancel`."""
        self._is_running = not self._is_cancelled
        return self._is_running

    def set_result(self, result: ResultT) -> None:
        """Implement `Future.set_result`."""
        self._end(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """Implement `Future.set_exception`."""
        self._end(None, exception)

    def _end(self, result: ResultT | None, exception: BaseException | None) -> None:
        self._is_over = True
        self._outcome = result, exception
        self.wake()
        for callback in self._callbacks:
            callback(self)

    def result(self, timeout: float | None = None) -> ResultT:
        """Return the result, once it is there."""
        exception = self.exception(timeout)
        if exception is None:
            return cast("ResultT", self._outcome[0])
        try:
            raise exception
        finally:
            # As the usual future does: an error in a frame of its own traceback is a circle.
            del self, exception

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what went wrong, once it is over."""
        if not self._is_over:
            wait_for(self._engine, (self,), timeout=timeout)
        if not self._is_over:
            raise TimeoutError
        return self._outcome[1]


def wait_for(
    engine: Engine,
    futures: Collection[SimulatedFuture[Any]],
    timeout: float | None = None,
    return_when: str = FIRST_COMPLETED,
) -> WaitResult:
    """Wait for the first of several futures, as `concurrent.futures.wait` does; for more it is a `ValueError`."""
    if return_when != FIRST_COMPLETED:
        raise ValueError("only the first one can be waited for")

    def is_done(wake: Work) -> bool:
        if any(future.done() for future in futures):
            return True
        for future in futures:
            future.wake = wake
        return False

    engine.wait(is_done, timeout)
    # Lists: a set of futures would be ordered by their addresses.
    result = WaitResult([], [])
    for future in futures:
        result[not future.done()].append(future)
    return result


class WaitResult(NamedTuple):
    """What `concurrent.futures.wait` returns."""

    done: list[SimulatedFuture[Any]]
    not_done: list[SimulatedFuture[Any]]


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
