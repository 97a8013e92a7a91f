"""Breadth-first exploration of everything that a model can do, with shortest counterexamples."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
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
class Exploration(Generic[StepT]):
    """The first fault that was found, if any, and the steps that lead to it, as few as any."""

    fault: str | None = None
    steps: tuple[StepT, ...] = ()


def explore(model: Model[StateT, StepT], *, max_states: int = 2_000_000) -> Exploration[StepT]:
    """Visit every reachable state once, nearest first, until one has a fault.

    Raises:
        OverflowError: there are more states than allowed, so nothing was proven.
    """
    parents: dict[StateT, StateT | None] = {model.initial(): None}
    frontier = list(parents)
    while frontier:
        found: list[StateT] = []
        for state in frontier:
            for _, following in model.steps(state):
                if following in parents:
                    continue
                parents[following] = state
                found.append(following)
                fault = model.fault(following)
                if fault is not None:
                    return Exploration(fault, _walk_back(model, parents, following))
        if len(parents) > max_states:
            raise OverflowError(f"more than {max_states} states")
        frontier = found
    return Exploration()


def _walk_back(
    model: Model[StateT, StepT], parents: Mapping[StateT, StateT | None], state: StateT
) -> tuple[StepT, ...]:
    """List the steps to a state. They are found again rather than kept: states are many, walks back are one."""
    steps: list[StepT] = []
    parent = parents[state]
    while parent is not None:
        steps.append(next(step for step, following in model.steps(parent) if following == state))
        state, parent = parent, parents[parent]
    return tuple(reversed(steps))
