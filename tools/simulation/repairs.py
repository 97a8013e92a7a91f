"""What operators run beside the load, in the world of `table_run`: processes that die at any request, started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.folding import Folder, FoldForm
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.journal_rebuild import ScanForm, rebuild_journal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.errors import InvalidRequestError, RetryLaterError
from tools.simulation.engine import Function, FunctionConfig, NoResponseError, Process, TooManyRequestsError
from tools.simulation.wiring import World, build_raiser

FOLD_SETTLE_SECONDS = 2.0
FOLDED_PER_SECOND = 400.0
FOLD_DEATHS, REBUILD_DEATHS = 0.005, 0.3
"""The odds that a process dies of one of its requests: a fold takes hundreds of them, a rebuild less than ten."""
DEATH_SECONDS = 0.01
"""Mean time from there to its death: as long as a request takes, so that it has happened, or not."""
LONGEST_SECONDS = 600.0


class Folds:
    """Folds one collection after another, in two processes at a time."""

    def __init__(
        self,
        world: World,
        table_name: str,
        place: JournalPlace,
        *,
        choose: Callable[[Random], str],
        folder: type[Folder] = Folder,
        settle_seconds: float = FOLD_SETTLE_SECONDS,
    ) -> None:
        self.moved = self.finished = 0
        self.is_over = False
        self._world = world
        self._form = FoldForm(table_name, "PK", "SK", KeyForm(), place, changes="hp_changes", dropped=("hp_shards",))
        self._choose = choose
        self._folder = folder
        self._settle_seconds = settle_seconds
        self._random = world.random("folds")
        self._function: Function[str, None] = Function(
            world.engine, FunctionConfig(concurrency=2, warm=2), self._build, world.random("folders")
        )

    def start(self) -> None:
        """Begin."""
        for _ in range(2):
            self._world.engine.spawn(self._run)

    @property
    def killed(self) -> int:
        """How many processes died."""
        return self._function.deaths

    def _build(self, process: Process, index: int) -> Callable[[str], None]:
        random = self._world.random(f"folder-{index}")
        calls = _deadly(self._world, process, self._function, FOLD_DEATHS, random)
        clock = self._world.clock(random)

        def fold(collection: str) -> None:
            before = [0]

            def progress(moved: int) -> None:
                self.moved += moved - before[0]
                before[0] = moved

            folder = self._folder(
                calls, self._form, clock, items_per_second=FOLDED_PER_SECOND, settle_seconds=self._settle_seconds
            )
            folder.fold(collection, progress=progress)
            self.finished += 1

        return fold

    def _run(self) -> None:
        engine = self._world.engine
        while not self.is_over:
            engine.sleep(0.2 + self._random.random())
            with suppress(NoResponseError, TooManyRequestsError, RetryLaterError, InvalidRequestError):
                self._function.invoke(self._choose(self._random), timeout_seconds=LONGEST_SECONDS)


def _deadly(
    world: World, process: Process, function: Function[Any, None], deaths: float, random: Random
) -> ThreadedCalls:
    """Build the calls of a process that may die of each of them."""
    call = world.store.client("operator", process).call

    def call_and_die(operation: str, request: Mapping[str, Any]) -> Any:
        if random.random() < deaths:
            world.engine.after(random.expovariate(1 / DEATH_SECONDS), lambda: function.kill(process))
        return call(operation, request)

    return ThreadedCalls(call_and_die)


def rebuild_lost_journal(world: World, place: JournalPlace, form: ScanForm) -> int:
    """Rebuild a journal by a process that is started again until it has done it; return how often it was killed."""
    engine, random = world.engine, world.random("rebuilds")

    def build(process: Process, index: int) -> Callable[[None], None]:
        own_random = world.random(f"rebuilder-{index}")
        calls = _deadly(world, process, processes, REBUILD_DEATHS, own_random)
        clock = world.clock(own_random)
        raiser = build_raiser(world, process, index, place)
        journal = DynamoDBJournal(calls, place)

        def rebuild(_: None) -> None:
            rebuild_journal(calls, form, journal, raiser, clock, by="simulated", units_per_second=200.0)

        return rebuild

    processes: Function[None, None] = Function(engine, FunctionConfig(concurrency=1, warm=1), build, random)
    while True:
        with suppress(NoResponseError, TooManyRequestsError, RetryLaterError):
            processes.invoke(None, timeout_seconds=LONGEST_SECONDS)
            return processes.deaths
        engine.sleep(0.1)
