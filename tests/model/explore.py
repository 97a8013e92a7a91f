"""Breadth-first exploration of everything that a model can do, with shortest counterexamples."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

StateT = TypeVar("StateT", bound=Hashable)
StepT = TypeVar("StepT")


class Model(Protocol[StateT, StepT]):
    """What can be explored: finitely many states, and all that can happen in each."""

    def initial(self) -> StateT:
        """Return the state in which everything begins."""
        ...

    def steps(self, state: StateT) -> Iterable[tuple[StepT, StateT]]:
        """List what can happen next, and where it leads."""
        ...

    def fault(self, state: StateT) -> str | None:
        """Say what is wrong in this state, if anything is."""
        ...


@dataclass(frozen=True)
class Exploration(Generic[StateT, StepT]):
    """What was found. `trace` leads to the first fault, by as few steps as any; None where there is no fault."""

    states: int
    transitions: int
    trace: tuple[tuple[StateT, StepT], ...] | None = None
    fault: str | None = None


@dataclass
class _Search(Generic[StateT, StepT]):
    model: Model[StateT, StepT]
    parents: dict[StateT, StateT | None] = field(default_factory=dict)
    transitions: int = 0


def explore(model: Model[StateT, StepT], *, max_states: int = 2_000_000) -> Exploration[StateT, StepT]:
    """Visit every reachable state once, nearest first, until one has a fault.

    Raises:
        OverflowError: there are more states than allowed, so nothing was proven.
    """
    search = _Search(model, {model.initial(): None})
    frontier = list(search.parents)
    while frontier:
        found: list[StateT] = []
        for state in frontier:
            for _, following in model.steps(state):
                search.transitions += 1
                if following in search.parents:
                    continue
                search.parents[following] = state
                found.append(following)
                fault = model.fault(following)
                if fault is not None:
                    return Exploration(len(search.parents), search.transitions, _trace(search, following), fault)
        if len(search.parents) > max_states:
            raise OverflowError(f"more than {max_states} states")
        frontier = found
    return Exploration(len(search.parents), search.transitions)


def _trace(search: _Search[StateT, StepT], state: StateT) -> tuple[tuple[StateT, StepT], ...]:
    """Walk back to the beginning. The steps are found again rather than kept: states are many, traces are one."""
    trace: list[tuple[StateT, StepT]] = []
    parent = search.parents[state]
    while parent is not None:
        step = next(step for step, following in search.model.steps(parent) if following == state)
        trace.append((parent, step))
        state, parent = parent, search.parents[parent]
    return tuple(reversed(trace))
