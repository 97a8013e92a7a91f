"""Lambda: environments that start cold, serve one request at a time, freeze in between, and die.

Source: Lambda Developer Guide, "Lambda execution environment lifecycle" (freeze and thaw). Which idle environment gets
the next request is not documented: here it is any, at random, which spreads a conversation thinnest. Other traffic of
the same function can be given as a whole, without its requests: some environments are taken by it at any time, and each
idle one is thawed by it now and then. How fast a function grows is not limited: 1,000 environments may start at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import log
from random import Random
from typing import Any

from tools.world.clock import Engine, Process, SimulatedFuture

Call = Callable[[Any], Any]
"""A request: it is made on what its environment holds, a writer for instance."""

COLD_START_MEDIAN_SECONDS = 0.6
COLD_START_SIGMA = 0.25
"""Assumption: the functions' imports take some 0.5 s."""
BUSY_SECONDS = 0.006
"""How long a request of other traffic keeps an environment awake."""


class NoResponseError(Exception):
    """The caller got no response that says what became of the request: the environment died, or time was up."""


class TooManyRequestsError(Exception):
    """No environment was free, and none could be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionConfig:
    """How one function's environments behave.

    `warm` environments are there at the beginning; `taken` are busy with other traffic at any time, and each idle one
    is thawed by it `other_requests_per_second` times a second. `death` is the odds that an environment dies in the
    course of a request.
    """

    concurrency: int = 1000
    warm: int = 0
    taken: int = 0
    other_requests_per_second: float = 0.0
    death: float = 0.0


class _Environment(Process):
    """One execution environment. What it holds is built at its first request, as a cold start does."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.held: object = None
        self.response: SimulatedFuture[Any] | None = None
        """Of the request under way."""


@dataclass(slots=True)
class Function:
    """One function and all its environments; `build` makes what one holds, given its process and its number."""

    engine: Engine
    config: FunctionConfig
    build: Callable[[Process, int], object]
    random: Random
    cold_starts: int = 0
    deaths: int = 0
    _idle: list[_Environment] = field(init=False)
    _all: list[_Environment] = field(init=False)

    def __post_init__(self) -> None:
        self._idle = [_Environment(index) for index in range(self.config.warm)]
        self._all = list(self._idle)

    def invoke(self, call: Call, *, timeout_seconds: float = 29.0) -> Any:
        """Have a call made, in the calling task's time, and raise what it raises.

        `TooManyRequestsError`: no environment could take it. `NoResponseError`: its environment died, or time was up;
        the call may go on.
        """
        environment = self._take()
        response: SimulatedFuture[Any] = SimulatedFuture(self.engine)
        environment.response = response
        self.engine.spawn(partial(self._serve, environment, response, call), environment)
        if self.config.death and self.random.random() < self.config.death:
            self.engine.after(self.random.expovariate(50.0), partial(self._die, environment, response))
        self.engine.wait((response,), timeout_seconds)
        if not response.done():
            raise NoResponseError("time is up")
        try:
            return response.result()
        finally:
            del response  # see `SimulatedFuture.result`

    def kill_one(self) -> bool:
        """Kill an environment at random, whatever it does; say whether there was one."""
        if not self._all:
            return False
        environment = self._all[self.random.randrange(len(self._all))]
        self._die(environment, environment.response)
        return True

    def kill(self, process: Process) -> None:
        """Kill the environment that a process is, if it is still there."""
        for environment in self._all:
            if environment is process:
                self._die(environment, environment.response)
                return

    def _take(self) -> _Environment:
        if len(self._idle) > self.config.taken:
            place = self.random.randrange(len(self._idle))
            self._idle[place], self._idle[-1] = self._idle[-1], self._idle[place]
            environment = self._idle.pop()
            self.engine.thaw(environment)
            return environment
        if len(self._all) >= self.config.concurrency:
            raise TooManyRequestsError("no environment is free")
        born = _Environment(self.config.warm + self.cold_starts)
        self.cold_starts += 1
        self._all.append(born)
        return born

    def _serve(self, environment: _Environment, response: SimulatedFuture[Any], call: Call) -> None:
        if environment.held is None:
            if environment.index >= self.config.warm:
                self.engine.sleep(self.random.lognormvariate(log(COLD_START_MEDIAN_SECONDS), COLD_START_SIGMA))
            environment.held = self.build(environment, environment.index)
        try:
            result = call(environment.held)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self._rest(environment)
            response.set_exception(error)
            del response  # see `SimulatedFuture.result`
        else:
            self._rest(environment)
            response.set_result(result)

    def _rest(self, environment: _Environment) -> None:
        environment.response = None
        self._idle.append(environment)
        if len(environment.tasks) > 1:
            # After this very step, so that this task has ended by then.
            self.engine.after(0.0, lambda: self._freeze(environment))

    def _freeze(self, environment: _Environment) -> None:
        if environment.response is not None or environment.is_idle:
            return
        self.engine.freeze(environment)
        if self.config.other_requests_per_second:
            wait = self.random.expovariate(self.config.other_requests_per_second)
            self.engine.after(wait, lambda: self._serve_other(environment))

    def _serve_other(self, environment: _Environment) -> None:
        """Be awake for a request of other traffic: what hangs in the background goes on."""
        if environment.response is None and environment.frozen:
            self.engine.thaw(environment)
            self.engine.after(BUSY_SECONDS, lambda: self._freeze(environment))

    def _die(self, environment: _Environment, response: SimulatedFuture[Any] | None) -> None:
        """Kill an environment, unless the request that it was to die of has ended."""
        if environment.response is not response or not environment.is_alive:
            return
        self.deaths += 1
        self.engine.kill(environment)
        self._all.remove(environment)
        if response is None:
            self._idle.remove(environment)
        else:
            environment.response = None
            response.set_exception(NoResponseError("the environment died"))
