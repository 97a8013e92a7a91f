"""Traces of the model, told for people."""

from __future__ import annotations

from collections.abc import Sequence

from hotpartition.core.route import Generation
from hotpartition_messages.message_ids import message_time_ms
from hotpartition_messages.reading import PageRequest
from model.model import Broken, Lookup, Place, ProtocolModel, Reading, Response, State, Step


def narrate(model: ProtocolModel, trace: Sequence[tuple[State, Step]], fault: str) -> str:
    """Tell how a fault comes about, a line for each store operation. Times count from the world's start."""
    teller = _Teller(model)
    lines = [teller.tell(state, step) for state, step in trace]
    numbered = [f"{number:2}. {line}" for number, line in enumerate(lines, 1)]
    return "\n".join([*numbered, f"    {teller.tell_end(trace)}", f"    => {fault}"])


class _Teller:
    def __init__(self, model: ProtocolModel) -> None:
        self._model = model
        self._world = model.world

    def tell(self, state: State, step: Step) -> str:
        match step:
            case Step("journal", Generation() as generation):
                return f"raise    adds {self._generation(generation)} to the journal"
            case Step("ask", Place() as place):
                return f"writer   learns {self._route(step.hint)}; will put {self._place(place)}"
            case Step("put", Place() as place):
                return f"writer   puts {self._place(place)}: acknowledged"
            case Step("write", Place() as place):
                return f"writer   learns {self._route(step.hint)}; puts {self._place(place)}: acknowledged"
            case Step("begin", goal):
                return f"reader   begins {self._goal(state, goal)}; asks Redis: {self._route(step.hint)}"
            case Step("query", Response(query, found, is_exhausted)):
                rest = "" if is_exhausted else " (and there may be more)"
                return f"reader   queries {query.partition_key} for {query.limit}: {self._messages(found)}{rest}"
            case Step("read-journal"):
                return f"reader   reads the journal: {self._route(state.journal)}"
        raise ValueError(step)

    def tell_end(self, trace: Sequence[tuple[State, Step]]) -> str:
        """Say what the reader returns after the last step."""
        state, step = trace[-1]
        reading = self._model.reader_of(state)
        broken = next(self._model.reader_of(f) for s, f in self._model.steps(state) if s == step)
        assert isinstance(reading, Reading)
        assert isinstance(broken, Broken)
        owed = self._messages(sorted(reading.owed))
        return f"reader   returns {self._messages(broken.returned)}; acknowledged before it began: {owed}"

    def _generation(self, generation: Generation) -> str:
        return f"{generation.shard_count}@{generation.since_ms - self._world.start_ms}"

    def _route(self, mask: int) -> str:
        return "{" + ", ".join(self._generation(g) for g in self._model.generations(mask)) + "}"

    def _place(self, place: Place) -> str:
        return f"{self._message(place.message_id)} to {place.partition_key}"

    def _message(self, message_id: str) -> str:
        number = self._world.message_ids.index(message_id) + 1
        return f"m{number}@{message_time_ms(message_id) - self._world.start_ms}"

    def _messages(self, message_ids: Sequence[str]) -> str:
        return ", ".join(self._message(message_id) for message_id in message_ids) or "nothing"

    def _goal(self, state: State, goal: object) -> str:
        if isinstance(goal, Lookup):
            return f"a lookup of {self._message(goal.message_id)}"
        assert isinstance(goal, PageRequest)
        order = "newest first" if goal.newest_first else "oldest first"
        bounds = "".join(
            f", {name} {time_ms - self._world.start_ms}"
            for name, time_ms in (("after", goal.after_ms), ("before", goal.before_ms))
            if time_ms is not None
        )
        which = "the next page" if goal.cursor else "a page"
        return f"{which} of {goal.limit} ({order}{bounds})"
