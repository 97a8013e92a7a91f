"""Breadth-first exploration of everything that a model can do, with shortest counterexamples."""

from __future__ import annotations

from typing import Any, NamedTuple

MOST_STATES = 6_000_000


class Exploration(NamedTuple):
    """The first fault that was found, if any, and the steps that lead to it, as few as any."""

    fault: str | None = None
    steps: tuple[Any, ...] = ()


def explore(model: Any) -> Exploration:
    """Visit every reachable state once, nearest first, until one has a fault.

    A model has the `initial` state, lists the `steps` from a state with where they lead, and names a state's `fault`.

    Raises:
        OverflowError: there are more states than allowed, so nothing was proven.
    """
    parents: dict[Any, Any] = {model.initial(): None}
    frontier = list(parents)
    while frontier:
        found: list[Any] = []
        for state in frontier:
            for _, following in model.steps(state):
                if following in parents:
                    continue
                parents[following] = state
                found.append(following)
                fault = model.fault(following)
                if fault is not None:
                    return Exploration(fault, _walk_back(model, parents, following))
        if len(parents) > MOST_STATES:
            raise OverflowError(f"more than {MOST_STATES} states")
        frontier = found
    return Exploration()


def _walk_back(model: Any, parents: dict[Any, Any], state: Any) -> tuple[Any, ...]:
    """List the steps to a state. They are found again rather than kept: states are many, walks back are one."""
    steps: list[Any] = []
    parent = parents[state]
    while parent is not None:
        steps.append(next(step for step, following in model.steps(parent) if following == state))
        state, parent = parent, parents[parent]
    return tuple(reversed(steps))
