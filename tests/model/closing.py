"""Closes as a small model: all that writers, raises and those who close can do, one store operation at a time.

The decisions are the project's own: `plan_close`, `may_confirm`, `is_leased`, `Route` with its views,
`choose_placement` and `needed_keys`. What is modelled is their order, and DynamoDB's clock:

- Time passes in whole seconds, whenever it likes. The `Date` of each response is the time of its request, or as much
  later as servers may differ.
- A writer knows what the journal showed at its last strongly consistent look, and nothing at first but what was raised
  long ago: a stale one just never looks. It decides where to put any message, of any time; the put comes whenever it
  likes.
- Who closes plans, announces and confirms: three steps, with anything in between, or nothing any more.
- A raise adds its generation, and then what its response shows to be missing behind closes.

Messages stay where they are and the journal only grows. So a reader, which looks at the journal and at the items once
it has begun, finds all that was acknowledged before if, in every state, the keys that the journal asks for hold all
that is stored: of each range, by a hint that knows nothing and by ones that invent. That pages find what lies on those
keys is for the tests of `PageMerge`, which is not modelled.

It is long because each way to break the protocol is a switch at the step where it belongs: one less is a mistake that
the model is not known to find.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from hotpartition.core.closes import CloseTimes, is_leased, may_confirm, plan_close
from hotpartition.core.route import Close, Generation, Route, choose_placement, needed_keys
from hotpartition_messages.keys import KEY_FORM, build_key
from model.model import CONVERSATION, Step
from support.builders import build_message

SECOND = 1_000


@dataclass(frozen=True)
class Variant:
    """The protocol as it is, or with something broken on purpose."""

    has_lease: bool = True
    lease_skew: int = 0
    """By how much the clock that a lease is timed by is ahead of DynamoDB's."""
    is_lease_strong: bool = True
    writers_obey_announced: bool = True
    readers_obey_announced: bool = False
    readers_obey_hints: bool = False
    is_announced_first: bool = True
    is_date_checked: bool = True
    is_raise_completed: bool = True


@dataclass(frozen=True)
class World:
    """How much there is of everything; times in seconds."""

    raised: Generation
    """Raised long ago: every writer knows it."""
    raises: tuple[Generation, ...] = ()
    times: tuple[int, ...] = ()
    """Of messages: each is of one of them."""
    writers: int = 1
    closers: int = 1
    seconds: int = 6
    skew: int = 1
    lease: int = 2
    margin: int = 1
    hints: tuple[Route, ...] = (Route(),)

    @property
    def limits(self) -> CloseTimes:
        return CloseTimes(self.lease * SECOND, self.margin * SECOND)


class Writer(NamedTuple):
    """What a writer knows, and the `Date` of its last look in seconds; -1: it has not looked."""

    route: Route
    looked: int = -1


class Closing(NamedTuple):
    """A close that was planned (`announced` is None), and one that may be confirmed."""

    close: Close
    announced: int | None = None


class State(NamedTuple):
    """All that the future depends on."""

    journal: Route
    now: int = 0
    stored: frozenset[tuple[int, str]] = frozenset()
    """Time and partition key of each message."""
    under_way: frozenset[tuple[int, str]] = frozenset()
    writers: tuple[Writer, ...] = ()
    closings: frozenset[Closing] = frozenset()
    unstarted_closers: int = 0
    to_raise: tuple[Generation, ...] = ()
    raising: tuple[tuple[Generation, frozenset[Close]], ...] = ()
    """Raises that have added their generation, and the closes that their response showed."""
    is_undone: bool = False


class ClosingModel:
    """Everything that can happen in one world, under one variant of the protocol."""

    def __init__(self, world: World, variant: Variant | None = None) -> None:
        self.world = world
        self.variant = variant or Variant()
        self.seen: set[str] = set()
        """Every kind of step that was taken, and what came of closes."""
        self._initial = Route(frozenset({world.raised}))

    def initial(self) -> State:
        world = self.world
        writers = (Writer(self._initial),) * world.writers
        return State(self._initial, writers=writers, unstarted_closers=world.closers, to_raise=world.raises)

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        for step, following in self._steps(state):
            self.seen.add(step.kind)
            yield step, following

    def fault(self, state: State) -> str | None:
        if state.is_undone:
            return "a raise was undone by a close that was announced before"
        return self._fault(state.journal, state.stored)

    def _steps(self, state: State) -> Iterator[tuple[Step, State]]:
        if state.now < self.world.seconds:
            yield Step("wait"), state._replace(now=state.now + 1)
        yield from self._writer_steps(state)
        yield from self._closer_steps(state)
        yield from self._raise_steps(state)
        for put in state.under_way:
            yield Step("put", put), state._replace(stored=state.stored | {put}, under_way=state.under_way - {put})

    def _dates(self, state: State) -> range:
        """What a response may say of the time, in seconds."""
        return range(state.now, state.now + self.world.skew + 1)

    # Writers.

    def _writer_steps(self, state: State) -> Iterator[tuple[Step, State]]:
        for index, writer in enumerate(state.writers):
            others = state.writers[:index] + state.writers[index + 1 :]
            shown = state.journal if self.variant.is_lease_strong else self._initial
            for date in self._dates(state):
                looked = Writer(writer.route.union(shown), date + self.variant.lease_skew)
                if looked != writer:
                    yield Step("look", date), state._replace(writers=_sorted((*others, looked)))
            for time in self.world.times:
                put = (time, self._place(writer, time))
                if put not in state.stored | state.under_way:
                    yield Step("place", put), state._replace(under_way=state.under_way | {put})

    def _place(self, writer: Writer, time: int) -> str:
        """Decide as `Leases.route_for` does; one that has no lease looks again, or goes to the base key."""
        usable = writer.route.as_announced if self.variant.writers_obey_announced else writer.route
        is_held = writer.looked >= 0 and is_leased(time * SECOND, writer.looked * SECOND, self.world.limits.lease_ms)
        if not is_held and self.variant.has_lease:
            return CONVERSATION
        return choose_placement(usable, _key_of(time), KEY_FORM).partition_key

    # Closes.

    def _closer_steps(self, state: State) -> Iterator[tuple[Step, State]]:
        limits = self.world.limits
        if state.unstarted_closers:
            for date in self._dates(state):
                planned = plan_close(state.journal, date * SECOND, limits)
                if isinstance(planned, Close):
                    closings = state.closings | {Closing(planned)}
                    begun = state._replace(closings=closings, unstarted_closers=state.unstarted_closers - 1)
                    yield Step("plan", planned), begun
        for closing in state.closings:
            rest = state._replace(closings=state.closings - {closing})
            if closing.announced is not None or not self.variant.is_announced_first:
                yield Step("confirm", closing), _with(rest, Close(closing.close.at_ms, is_confirmed=True))
                continue
            announced = _with(rest, closing.close)
            for date in self._dates(state):
                if may_confirm(closing.close, date * SECOND, limits) or not self.variant.is_date_checked:
                    confirming = announced.closings | {closing._replace(announced=date)}
                    yield Step("announce", date), announced._replace(closings=confirming)
                else:
                    yield Step("announce in vain", date), announced

    # Raises.

    def _raise_steps(self, state: State) -> Iterator[tuple[Step, State]]:
        for index, generation in enumerate(state.to_raise):
            raised = _with(state, generation)
            left = state.to_raise[:index] + state.to_raise[index + 1 :]
            raising = (*state.raising, (generation, raised.journal.closes))
            yield Step("raise", generation), raised._replace(to_raise=left, raising=raising)
        for index, (generation, known) in enumerate(state.raising):
            left_raising = state.raising[:index] + state.raising[index + 1 :]
            seen = Route(state.journal.generations, known)
            missing = seen.complete_raise([generation]) if self.variant.is_raise_completed else frozenset()
            completed = _with(state._replace(raising=left_raising), *missing)
            view = Route(completed.journal.generations, known).as_announced
            is_undone = view.shard_count_at(None) < generation.shard_count
            yield Step("complete", generation), completed._replace(is_undone=is_undone)

    # Reads.

    @cache  # noqa: B019 - a model lives as long as its test
    def _fault(self, journal: Route, stored: frozenset[tuple[int, str]]) -> str | None:
        shown = journal.as_announced if self.variant.readers_obey_announced else journal
        for hint in self.world.hints:
            route = hint.union(shown) if self.variant.readers_obey_hints else hint.checked_by(shown)
            for first in (0, *self.world.times):
                asked = needed_keys(route, CONVERSATION, None, KEY_FORM, from_position=first * SECOND)
                if any(key not in asked for time, key in stored if time >= first):
                    return "an acknowledged message is missing"
        return None


@cache
def _key_of(time: int):
    return build_key(CONVERSATION, build_message(time * SECOND, time).message_id)


def _with(state: State, *members: Generation | Close) -> State:
    return state._replace(journal=state.journal.union(Route.of(members)))


def _sorted(writers: tuple[Writer, ...]) -> tuple[Writer, ...]:
    """Writers have no names."""
    return tuple(sorted(writers, key=lambda writer: (writer.looked, sorted(writer.route.encode()))))
