"""Lambda's part: pools of execution environments, each of which runs one request at a time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from tools.local.environment import ExecutionEnvironment, Invocation, Launcher, Outcome, failure
from tools.local.processes import LocalRunError, log_tail

_COUNTED = ("started", "killed", "invocations", "errors", "init_errors", "throttled")
"""What a pool counts since its start."""


class ThrottledInvocationError(Exception):
    """Lambda would respond with TooManyRequestsException: no environment within the time or concurrency allowed."""


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionPool:
    """Invokes one function, in a free environment that is drawn at random; requests wait in their order."""

    launcher: Launcher
    min_environments: int
    max_environments: int
    rng: random.Random
    queue_seconds: float = 25.0
    counts: Counter[str] = field(default_factory=Counter)
    _environments: list[ExecutionEnvironment] = field(default_factory=list)
    _requests: list[Invocation] = field(default_factory=list)
    """What is under way, in the order in which it came."""
    _is_closed: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

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
        while not self.counts["init_errors"] and not all(each.is_free for each in self._environments):
            self._changed.clear()
            await self._changed.wait()
        if self.counts["init_errors"]:
            name, log = self.launcher.function.name, self.launcher.log_path
            raise LocalRunError(f"function {name} cannot be initialized:{log_tail(log)}")

    async def stop(self) -> None:
        """Kill every environment."""
        self._is_closed = True
        await asyncio.gather(*(environment.kill() for environment in list(self._environments)))

    async def invoke(self, event: bytes) -> Outcome:
        """Run the function on an event.

        Raises:
            ThrottledInvocationError: when the reserved concurrency is used up, or no environment gets free in time.
        """
        function = self.launcher.function
        limit = 0 if self.max_environments == 0 else function.reserved_concurrency
        if limit is not None and len(self._requests) >= limit:
            self.counts["throttled"] += 1
            raise ThrottledInvocationError(f"the reserved concurrency of {function.name} is used up")
        invocation = Invocation(event)
        self._requests.append(invocation)
        try:
            self._assign()
            outcome = await self._run(invocation)
        finally:
            self._requests.remove(invocation)
        self.counts["errors"] += outcome.error is not None
        return outcome

    async def kill_one(self) -> int | None:
        """Kill one environment, a busy one if there is any, and return its process id."""
        alive = [environment for environment in self._environments if environment.pid is not None]
        if not alive:
            return None
        victim = max(alive, key=lambda environment: environment.is_busy)
        pid = victim.pid
        self.counts["killed"] += 1
        await victim.kill()
        return pid

    def status(self) -> dict[str, int]:
        """Describe the pool in numbers."""
        return {
            "environments": len(self._environments),
            "busy": sum(environment.is_busy for environment in self._environments),
            "frozen": sum(environment.is_frozen for environment in self._environments),
            **{name: self.counts[name] for name in _COUNTED},
        }

    @property
    def _waiting(self) -> list[Invocation]:
        """Those that no environment has taken, and that have not given up."""
        return [request for request in self._requests if not request.taken.done()]

    async def _run(self, invocation: Invocation) -> Outcome:
        function, seconds = self.launcher.function, self.launcher.function.timeout_seconds
        try:
            async with asyncio.timeout(self.queue_seconds):
                environment = await invocation.taken
        except TimeoutError:
            self.counts["throttled"] += 1
            raise ThrottledInvocationError(f"no environment of {function.name} got free") from None
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(invocation.outcome)
        except TimeoutError:
            message = f"{invocation.request_id} Task timed out after {seconds:.2f} seconds"
            invocation.finish(failure("Sandbox.Timedout", message))
            await environment.kill()
            return invocation.outcome.result()

    def _assign(self) -> None:
        """Hand waiting requests to free environments, and start one where those that will be free are too few."""
        for request in self._waiting:
            if not (free := [environment for environment in self._environments if environment.is_free]):
                break
            self.counts["invocations"] += 1
            self.rng.choice(free).invoke(request)
        # One that has just responded is free sooner than a new one could be.
        coming = sum(not environment.is_busy for environment in self._environments)
        if coming < len(self._waiting) and len(self._environments) < self.max_environments:
            self._start_environment()

    def _start_environment(self) -> None:
        self.counts["started"] += 1
        self._environments.append(ExecutionEnvironment(self.launcher, self.counts["started"], self._on_change))

    def _on_change(self, environment: ExecutionEnvironment) -> None:
        """Give a free environment its next request; forget one that is over.

        One that could not be initialized fails the request that waits longest.
        """
        self._changed.set()
        if environment.is_over:
            self._environments.remove(environment)
            if environment.init_error is not None:
                self.counts["init_errors"] += 1
                if waiting := self._waiting:
                    waiting[0].taken.set_result(environment)
                    waiting[0].finish(environment.init_error)
        if not self._is_closed:
            self._assign()
