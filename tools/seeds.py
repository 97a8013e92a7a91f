"""Work on many seeds at once, on worker processes, with a progress bar for each part of it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

ResultT = TypeVar("ResultT")
Advance = Callable[[], None]
"""Notes that one more step of a part is done."""

PROCESSES = min(2, os.cpu_count() or 1)
"""What the studies' times are meant for: two cores, whatever the machine has."""


@contextmanager
def open_workers(steps: Mapping[str, int]) -> Iterator[tuple[Executor, Mapping[str, Advance]]]:
    """Open the processes, and a bar for each part; `steps`: how many steps each part has."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress, _Workers() as workers:
        for name, count in steps.items():
            progress.add_task(name, total=count)

        def advance(task: Task) -> None:
            progress.advance(task.id)
            if not console.is_terminal:
                _say_each_tenth(task)

        yield workers, {task.description: partial(advance, task) for task in progress.tasks}


class _Workers(ProcessPoolExecutor):
    """Looks for garbage in circles between two runs only: among a run's many objects, it takes a fifth of the time."""

    def __init__(self) -> None:
        super().__init__(PROCESSES, mp_context=get_context("spawn"), initializer=gc.disable)

    def submit(self, fn: Callable[..., ResultT], /, *args: Any, **kwargs: Any) -> Future[ResultT]:
        """Implement `Executor.submit`."""
        return super().submit(_run_and_tidy, fn, *args, **kwargs)


def _run_and_tidy(work: Callable[..., ResultT], *args: Any, **kwargs: Any) -> ResultT:
    result = work(*args, **kwargs)
    gc.collect()
    return result


def _say_each_tenth(task: Task) -> None:
    """Say in a line of plain text how far a part is: where no terminal shows its bar."""
    done, total = int(task.completed), int(task.total or 0)
    if done * 10 // total > (done - 1) * 10 // total:
        sys.stderr.write(f"{task.description}: {done} of {total}, {task.elapsed or 0:.0f} s\n")
        sys.stderr.flush()
