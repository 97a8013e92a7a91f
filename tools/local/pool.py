"""The environments of one function: as many as its concurrency needs, up to a limit."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import deque
from dataclasses import asdict, dataclass, field

from tools.local.environments import ExecutionEnvironment, Launcher, State
from tools.local.processes import LocalRunError, log_tail
from tools.local.runtime_api import Invocation, Outcome, error_payload


class ThrottledInvocationError(Exception):
    """Lambda would respond with TooManyRequestsException: no environment within the time or concurrency allowed."""


class _InitError(Exception):
    """The function cannot be initialized; `payload` says why, as Lambda does."""

    def __init__(self, report: str) -> None:
        super().__init__(report)
        is_report = report.startswith("{")
        self.payload = report.encode() if is_report else error_payload("Runtime.ExitError", report)


@dataclass(slots=True)
class PoolCounts:
    """What happened to one function since the start."""

    started: int = 0
    killed: int = 0
    invocations: int = 0
    errors: int = 0
    init_errors: int = 0
    throttled: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionPool:
    """Invokes one function, in an idle environment that is drawn at random."""

    launcher: Launcher
    min_environments: int
    max_environments: int
    rng: random.Random
    queue_seconds: float = 25.0
    counts: PoolCounts = field(default_factory=PoolCounts)
    _environments: list[ExecutionEnvironment] = field(default_factory=list)
    _idle: list[ExecutionEnvironment] = field(default_factory=list)
    _waiting: deque[asyncio.Future[ExecutionEnvironment]] = field(default_factory=deque)
    _in_flight: int = 0
    _is_closed: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _prepared: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Keep both limits within the function's reserved concurrency."""
        reserved = self.launcher.function.reserved_concurrency
        if reserved is not None:
            self.max_environments = min(self.max_environments, reserved)
        self.min_environments = min(self.min_environments, self.max_environments)

    async def start(self) -> None:
        """Start the least number of environments and wait until they are initialized."""
        for _ in range(self.min_environments):
            self._start_environment()
        while not self._is_prepared():
            self._prepared.clear()
            await self._prepared.wait()
        if self.counts.init_errors:
            name, log = self.launcher.function.name, self.launcher.log_path
            raise LocalRunError(f"function {name} cannot be initialized:{log_tail(log)}")

    async def stop(self) -> None:
        """Kill every environment."""
        self._is_closed = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(environment.kill() for environment in list(self._environments)))

    async def invoke(self, event: bytes) -> Outcome:
        """Run the function on an event.

        Raises:
            ThrottledInvocationError: when the reserved concurrency is used up, or no environment gets free in time.
        """
        function = self.launcher.function
        limit = 0 if self.max_environments == 0 else function.reserved_concurrency
        if limit is not None and self._in_flight >= limit:
            self.counts.throttled += 1
            raise ThrottledInvocationError(f"the reserved concurrency of {function.name} is used up")
        self._in_flight += 1
        try:
            environment = await self._acquire()
            while environment.state is not State.IDLE:  # it was killed on the way here
                environment = await self._acquire()
            return await self._run(environment, event)
        except _InitError as error:
            self.counts.errors += 1
            return Outcome(error.payload, "Unhandled")
        finally:
            self._in_flight -= 1

    async def kill_one(self) -> int | None:
        """Kill one environment, a busy one if there is any, and return its process id."""
        alive = [e for e in self._environments if e.state is not State.DEAD and e.pid is not None]
        victim = next((e for e in alive if e.state is State.BUSY), alive[0] if alive else None)
        if victim is None:
            return None
        self.counts.killed += 1
        await victim.kill()
        return victim.pid

    def status(self) -> dict[str, int]:
        """Describe the pool in numbers."""
        return {
            "environments": len(self._environments),
            "busy": sum(e.state is State.BUSY for e in self._environments),
            "frozen": sum(e.is_frozen for e in self._environments),
            **asdict(self.counts),
        }

    async def _run(self, environment: ExecutionEnvironment, event: bytes) -> Outcome:
        function = self.launcher.function
        invocation = Invocation(
            request_id=str(uuid.uuid4()),
            event=event,
            outcome=asyncio.get_running_loop().create_future(),
            deadline_ms=int((time.time() + function.timeout_seconds) * 1000),
        )
        self.counts.invocations += 1
        environment.invoke(invocation)
        try:
            async with asyncio.timeout(function.timeout_seconds):
                outcome = await asyncio.shield(invocation.outcome)
        except TimeoutError:
            message = f"{invocation.request_id} Task timed out after {function.timeout_seconds:.2f} seconds"
            invocation.finish(Outcome(error_payload("Sandbox.Timedout", message), "Sandbox.Timedout"))
            await environment.kill()
            outcome = invocation.outcome.result()
        if outcome.error is not None:
            self.counts.errors += 1
        return outcome

    async def _acquire(self) -> ExecutionEnvironment:
        if self._idle:
            return self._idle.pop(self.rng.randrange(len(self._idle)))
        future: asyncio.Future[ExecutionEnvironment] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._start_what_is_missing()
        try:
            async with asyncio.timeout(self.queue_seconds):
                return await asyncio.shield(future)
        except TimeoutError:
            self._give_up(future)
            self.counts.throttled += 1
            raise ThrottledInvocationError(f"no environment of {self.launcher.function.name} got free") from None
        except asyncio.CancelledError:
            self._give_up(future)
            raise

    def _give_up(self, future: asyncio.Future[ExecutionEnvironment]) -> None:
        """Leave the queue; an environment that came at the last moment goes to the next in line."""
        if future in self._waiting:
            self._waiting.remove(future)
        if not future.cancel() and future.exception() is None and future.result().state is State.IDLE:
            self._on_idle(future.result())

    def _start_what_is_missing(self) -> None:
        # One that has just responded is free sooner than a new one could be.
        coming = sum(e.state is State.STARTING or e.is_finishing for e in self._environments)
        if coming < len(self._waiting) and len(self._environments) < self.max_environments:
            self._start_environment()

    def _start_environment(self) -> None:
        self.counts.started += 1
        environment = ExecutionEnvironment(self.launcher, self.counts.started, self._on_change)
        self._environments.append(environment)
        task = asyncio.create_task(self._launch(environment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _launch(self, environment: ExecutionEnvironment) -> None:
        try:
            await environment.start()
        except LocalRunError as error:
            environment.init_error = str(error)
            environment.state = State.DEAD
            self._on_change(environment)

    def _on_change(self, environment: ExecutionEnvironment) -> None:
        """Give a free environment to the request that waits longest, or freeze it; forget a dead one."""
        self._prepared.set()
        if environment.state is State.IDLE:
            self._on_idle(environment)
            return
        self._environments.remove(environment)
        if environment in self._idle:
            self._idle.remove(environment)
        if environment.init_error is not None and not self._is_closed:
            self.counts.init_errors += 1
            self._fail_oldest(environment.init_error)
        elif not self._is_closed:
            self._start_what_is_missing()

    def _on_idle(self, environment: ExecutionEnvironment) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                # Nothing else may take it before the waiting request runs.
                future.set_result(environment)
                return
        self._idle.append(environment)
        environment.freeze()

    def _fail_oldest(self, reason: str) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(_InitError(reason))
                return

    def _is_prepared(self) -> bool:
        return self.counts.init_errors > 0 or len(self._idle) >= self.min_environments
