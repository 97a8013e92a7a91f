"""What operators run beside the load, in the world of `table_run`: processes that die at any request, started again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

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
KILLS_PER_SECOND = 0.25
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
        self._world.engine.spawn(self._kill)

    def _build(self, process: Process, index: int) -> Callable[[str], None]:
        calls = ThreadedCalls(self._world.store.client("operator", process).call)
        clock = self._world.clock(self._world.random(f"folder-{index}"))

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

    def _kill(self) -> None:
        while not self.is_over:
            self._world.engine.sleep(self._random.expovariate(KILLS_PER_SECOND))
            if not self.is_over:
                self._function.kill_one()


def rebuild_lost_journal(world: World, place: JournalPlace, form: ScanForm, *, kills_per_second: float) -> int:
    """Rebuild a journal by a process that is killed and started again until it has done it; return how often."""
    engine, random = world.engine, world.random("rebuilds")

    def build(process: Process, index: int) -> Callable[[None], None]:
        calls = ThreadedCalls(world.store.client("operator", process).call)
        clock = world.clock(world.random(f"rebuilder-{index}"))
        raiser = build_raiser(world, process, index, place)
        journal = DynamoDBJournal(calls, place)

        def rebuild(_: None) -> None:
            rebuild_journal(calls, form, journal, raiser, clock, by="simulated", units_per_second=200.0)

        return rebuild

    function: Function[None, None] = Function(engine, FunctionConfig(concurrency=1, warm=1), build, random)
    runs, is_done = 0, False

    def kill() -> None:
        while not is_done:
            engine.sleep(random.expovariate(kills_per_second))
            if not is_done:
                function.kill_one()

    engine.spawn(kill)
    while not is_done:
        runs += 1
        with suppress(NoResponseError, TooManyRequestsError, RetryLaterError):
            function.invoke(None, timeout_seconds=LONGEST_SECONDS)
            is_done = True
        engine.sleep(0.1)
    return runs
