"""What operators run beside the load: processes that die at any request, and are started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar

from hotpartition.control.folding import Call, Folder, FoldForm
from hotpartition.core.backoff import Clock
from hotpartition.core.errors import InvalidRequestError, RetryLaterError
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.engine.closing import Closer, CloseStep
from hotpartition.engine.raising import Raiser
from tools.world.clock import Process
from tools.world.functions import Function, FunctionConfig, NoResponseError, TooManyRequestsError
from tools.world.product import World, build_control_ends
from tools.world.scenario import SHORT_TIMES

CAUSE = Cause("simulated")
DYING, PAUSING = 0.2, 0.3
"""Odds of who closes between two steps."""
LONGEST_PAUSE_SECONDS = 5.0
NEAR_MARGIN = 0.5
"""Share of the closes that are announced near the margin."""
RAISER_SECONDS = 0.3
"""How often something looks whether there is anything to raise."""
FOLD_SETTLE_SECONDS = 2.0
FOLDED_PER_SECOND = 400.0
FOLD_DEATHS = 0.005
"""The odds that a process that folds dies of one of its requests: it sends hundreds of them."""
DEATH_SECONDS = 0.01
"""Mean time from there to its death: as long as a request takes, so that it has happened, or not."""
LONGEST_REPAIR_SECONDS = 600.0


@dataclass(slots=True)
class _Operators:
    """Processes of one kind of operator, which work until the world is over."""

    config: ClassVar[FunctionConfig]
    chances: ClassVar[tuple[str, str]]
    """Names of the processes' chance, and of who starts them."""
    workers: ClassVar[int] = 1
    world: World
    function: Function = field(init=False)
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        processes, starts = self.chances
        self.function = self.world.open_function(self.config, self._build, processes)
        self._random = self.world.random(starts)

    def start(self) -> None:
        """Begin."""
        for _ in range(self.workers):
            self.world.engine.spawn(self._run)

    def _build(self, world: World, process: Process, index: int) -> Any:
        """Build what one process has."""
        raise NotImplementedError

    def _run(self) -> None:
        raise NotImplementedError

    def _ask(self, call: Callable[[Any], object], *, timeout_seconds: float = 29.0) -> bool:
        """Have something done; say whether it was."""
        try:
            self.function.invoke(call, timeout_seconds=timeout_seconds)
        except (RetryLaterError, NoResponseError, TooManyRequestsError):
            return False
        return True


@dataclass(slots=True, kw_only=True)
class RaisesByHand(_Operators):
    """Raises at random moments, beside the consumer or instead of it: by something that may die in between."""

    config = FunctionConfig(concurrency=1, warm=1)
    chances = "raisers", "raises"
    place: JournalPlace
    per_second: float
    most_shards: int
    choose: Callable[[], str]
    is_timed: bool = True
    """Whether keys have positions; without, their generations begin at the beginning of time."""
    urgent: list[str] = field(default_factory=list)
    """Keys that are raised first, as soon as there is something that can."""
    count: int = 0

    def _build(self, world: World, process: Process, index: int) -> Raiser:
        return build_control_ends("raiser", self.place, world, process, index).raiser

    def _run(self) -> None:
        engine, random = self.world.engine, self._random
        next_at = engine.now + random.expovariate(self.per_second)
        while not self.world.is_over:
            engine.sleep(RAISER_SECONDS)
            if self.urgent or engine.now >= next_at:
                key = self.urgent.pop() if self.urgent else self.choose()
                next_at = engine.now + random.expovariate(self.per_second)
                self._raise(key)

    def _raise(self, key: str) -> None:
        since_ms = self.world.engine.now_ms() - self._random.randrange(6_000) if self.is_timed else 0
        generation = Generation(since_ms=since_ms, shard_count=self._random.randint(1, self.most_shards))
        self.count += self._ask(lambda raiser: raiser.raise_route(key, (generation,), cause=CAUSE))


@dataclass(slots=True, kw_only=True)
class ClosesByHand(_Operators):
    """Closes raised keys at random moments, by something that may pause or die between any two requests."""

    config = FunctionConfig(concurrency=4, warm=2)
    chances = "closers", "closes"
    place: JournalPlace
    choose: Callable[[Random], str]
    confirmed: int = 0
    void: int = 0
    """Announcements that were made, and never confirmed."""

    def _build(self, world: World, process: Process, index: int) -> Closer:
        return build_control_ends("raiser", self.place, world, process, index).build_closer(SHORT_TIMES)

    def _run(self) -> None:
        engine, choice = self.world.engine, self.world.random("closed")
        while not self.world.is_over:
            engine.sleep(self._random.expovariate(self.world.plan.closes_per_second))
            if not self.world.is_over:
                engine.spawn(lambda: self._ask(partial(self._close, self.choose(choice))))

    def _close(self, collection: str, closer: Closer) -> None:
        closing = closer.plan(collection, cause=CAUSE)
        if self._random.random() < NEAR_MARGIN:
            # Announced about when it is just in time, or just too late.
            self.world.engine.sleep(self._random.uniform(0.5, 1.5) * SHORT_TIMES.margin_ms / 1000)
        else:
            self._pause()
        closing = closer.announce(closing)
        # Until it is confirmed, for whatever reason that does not come about.
        self.void += closing.step in {CloseStep.ANNOUNCED, CloseStep.VOID}
        if self._random.random() < DYING:
            return
        self._pause()
        if closer.confirm(closing).step is CloseStep.CONFIRMED:
            self.confirmed += 1
            self.void -= 1

    def _pause(self) -> None:
        """Be stopped for a while, at times for longer than an announcement may take."""
        if self._random.random() < PAUSING:
            self.world.engine.sleep(self._random.uniform(0.0, LONGEST_PAUSE_SECONDS))


@dataclass(slots=True, kw_only=True)
class Folds(_Operators):
    """Folds one collection after another, in two processes at a time."""

    config = FunctionConfig(concurrency=2, warm=2)
    chances = "folders", "folds"
    workers = 2
    form: FoldForm
    shard_count: int
    choose: Callable[[Random], str]
    moved: dict[int, int] = field(default_factory=dict)
    """How many items each fold has moved so far."""

    def _build(self, world: World, process: Process, index: int) -> tuple[Call, Clock]:
        random, call = world.random(f"folder-{index}"), world.store.client("operator", process)

        def call_and_die(operation: str, request: Mapping[str, Any]) -> Any:
            if random.random() < FOLD_DEATHS:
                world.engine.after(random.expovariate(1 / DEATH_SECONDS), lambda: self.function.kill(process))
            return call(operation, request)

        return ThreadedCalls(call_and_die).call, world.clock(random)

    def _run(self) -> None:
        while not self.world.is_over:
            self.world.engine.sleep(0.2 + self._random.random())
            fold = partial(self._fold, self.choose(self._random))
            with suppress(InvalidRequestError):
                self._ask(fold, timeout_seconds=LONGEST_REPAIR_SECONDS)

    def _fold(self, collection: str, ends: tuple[Call, Clock]) -> None:
        number = len(self.moved)
        self.moved[number] = 0

        def note(moved: int) -> None:
            self.moved[number] = moved

        call, clock = ends
        folder = Folder(call, self.form, clock, items_per_second=FOLDED_PER_SECOND, settle_seconds=FOLD_SETTLE_SECONDS)
        folder.fold(collection, shard_count=self.shard_count, progress=note)
