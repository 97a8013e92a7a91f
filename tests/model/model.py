"""The routing protocol as a small model: all that writers, raises and a reader can do, one store operation at a time.

Reader and writer are the product's own (`MessageReader`, `Writer`). What is modelled is the order in which their store
operations happen, since that is what the promise (docs/architecture.md) has to hold for. After each round, the reader
runs again from its beginning on the responses so far, until it asks for what nothing has responded to yet.

- A writer asks Redis, then the journal, then puts at any of the message's choices: which of them refuse is left to
  chance. Each writes any message, so a second one with the same id is a retry; it is stale when anything happens in
  between, or when Redis or the journal told it an old route.
- A raise adds to the journal. It may stop (crash) before, come late, or be done twice.
- The reader, for each page: asks Redis; then each query and the journal read on its own, in any order; then the next
  round's. Or it looks one message up: the same with gets.

Redis is a hint, so whoever asks it gets *any set* of generations, raised, to be raised and invented ones: that stands
for a cache of any age, for a Redis that was emptied, set back or failed over, for one that is down, and for one that
somebody else wrote to. Hence what a raise tells Redis, and when, is no step of the model. The journal shows a writer
any subset of what it holds, as eventually consistent reads do. The reader's reads of the table are strongly consistent.

What keeps the number of states small, and why nothing is lost by it:

- Writers have no names: the future depends only on which puts are under way and how many are still to begin.
  Puts of one message at one place are idempotent (conditional), so those under way are a set. And a put is acknowledged
  in the same step, the earliest moment there is: a later acknowledgement only demands less of readers.
- A finished page leaves nothing but its cursor. Every page is judged by itself, which is stricter than judging the
  whole: it must hold everything that was acknowledged before *its own* first step and lies between its cursor and its
  last message, or the range's end if it claims to be the last. So what was acknowledged before the *first* page's first
  step is on one of the pages; and since every page lies strictly past its cursor, it is on no more than one.
- Once the reader is done, nobody looks any more: such states have no next ones.
- `is_reduced` leaves out orders that cannot matter. (a) A writer asks and puts in one step: what the journal can show
  only grows, so what it showed long before the put it can still show just before it. (b) A read whose response no
  remaining step can change is done at once (no put that may still come is within its bounds; every raise is in the
  journal): it commutes with all that others may do until then. `test_model.py` shows that the pages which come out are
  the same without either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from hotpartition.core.errors import ThrottledError
from hotpartition.core.merge import KeyQuery, QueryResponse
from hotpartition.core.ports import Copy, Fetched, Got, JournalEntry, ReadRoute
from hotpartition.core.route import Generation, Route
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.load_counting import WriteCounting
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.engine.writer import Writer
from hotpartition_messages import Message
from hotpartition_messages.errors import MessageNotFoundError
from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key, position_of
from hotpartition_messages.message_ids import message_time_ms
from hotpartition_messages.reading import MessageReader, PageRequest
from support.fakes import KEY_RANGE_THROTTLE, FakeClock, FakeTelemetry, lies_within

CONVERSATION = "c"


@dataclass(frozen=True)
class World:
    """How much there is of everything. `start_ms` is when pages are read."""

    raises: tuple[Generation, ...]
    message_ids: tuple[str, ...]
    writers: int
    requests: tuple[PageRequest, ...]
    start_ms: int
    invented: tuple[Generation, ...] = ()
    """Generations that Redis may show although nobody ever raised them."""
    lookups: bool = True
    cuts: bool = True
    """Whether a response may end before its query's limit though more follows, as DynamoDB's do at 1 MB."""


class Place(NamedTuple):
    """Where a message is or may be stored."""

    partition_key: str
    message_id: str


class State(NamedTuple):
    """All that the future depends on. Sets are bit masks over the world's generations and places."""

    journal: int = 0
    stored: int = 0
    under_way: int = 0
    """Puts whose writers have asked and go on whenever they like."""
    unstarted_writers: int = 0
    reader: int = 0


class Step(NamedTuple):
    """One store operation. `what` is its object: a raise, place or goal, or a query's response."""

    kind: str
    what: object = None
    shown: tuple[int, ...] = ()
    """What Redis shows a reader, and what Redis and the journal have shown a writer."""


class Response(NamedTuple):
    """One key's response."""

    query: KeyQuery
    message_ids: tuple[str, ...]
    is_exhausted: bool


class Round(NamedTuple):
    """The responses of one round, by key, and what the journal showed."""

    responses: tuple[Response, ...]
    journal: int | None


class Lookup(NamedTuple):
    """The wish to read one message."""

    message_id: str


Goal: TypeAlias = PageRequest | Lookup


class Rest(Enum):
    """The reader has not begun, or has read its last page."""

    IDLE = "idle"
    DONE = "done"


class Between(NamedTuple):
    """The reader has the cursor of its next page."""

    request: PageRequest
    position: str


class Broken(NamedTuple):
    """The promise was broken by what was returned."""

    fault: str


class Reading(NamedTuple):
    """The reader is at one page, or at one lookup."""

    goal: Goal
    position: str | None
    """The message that the last page ended with."""
    owed: frozenset[str]
    """What was acknowledged before this page's first step and lies in the rest of the range."""
    hint: int
    """What Redis said."""
    past: tuple[Round, ...] = ()
    responses: tuple[Response, ...] = ()
    """Responses of this round, by key: within a round their order is of no account."""
    pending: tuple[KeyQuery[str], ...] = ()
    wants_journal: bool = False
    journal: int | None = None


Reader: TypeAlias = Rest | Between | Broken | Reading


class Outcome(NamedTuple):
    """A page, or what a lookup found, that came out of some order of steps."""

    goal: Goal
    message_ids: tuple[str, ...]
    has_more: bool = False


class AskedError(Exception):
    """A reader asks for a round that has no responses yet."""

    def __init__(self, queries: Sequence[KeyQuery[str]], *, wants_journal: bool) -> None:
        self.queries, self.wants_journal = tuple(queries), wants_journal


class Rounds:
    """The store of a reader: it has the responses of some rounds."""

    def __init__(self, model: ProtocolModel, rounds: Sequence[Round]) -> None:
        self._model, self._left = model, list(rounds)

    def fetch(
        self, queries: Sequence[KeyQuery[str]], *, is_strong: bool, journal_of: str | None = None
    ) -> Fetched[str, Message]:
        """Implement `ItemStore.fetch`."""
        assert is_strong
        if not self._left:
            raise AskedError(queries, wants_journal=journal_of is not None)
        round_ = self._left.pop(0)
        found = {response.query: response for response in round_.responses}
        responses = [
            QueryResponse(tuple(map(self._model.message, found[query].message_ids)), found[query].is_exhausted)
            for query in queries
        ]
        entry = None if round_.journal is None else JournalEntry(self._model.route(round_.journal))
        return Fetched(tuple(responses), entry)

    def get(self, places: Sequence[tuple[str, str]], *, is_strong: bool, journals_of: Sequence[str] = ()) -> Got[Any]:
        """Implement `ItemStore.get`: each place is a query of its own."""
        queries = [KeyQuery(key, newest_first=True, limit=1, first=name, last=name) for key, name in places]
        fetched = self.fetch(queries, is_strong=is_strong, journal_of=next(iter(journals_of), None))
        responded: Any = zip(places, fetched.responses, strict=True)
        copies = tuple(Copy(place[0], message) for place, response in responded for message in response.items)
        journal: Any = fetched.journal
        return Got(copies, dict.fromkeys(journals_of, journal))


class ProtocolModel:
    """Everything that can happen in one world."""

    def __init__(self, world: World, *, is_reduced: bool = True) -> None:
        self.world = world
        self.is_reduced = is_reduced
        self.outcomes: set[Outcome] = set()
        """Every page and every lookup that came out so far."""
        self._clock = FakeClock(world.start_ms)
        self._generations = (*world.raises, *world.invented)
        self._all_raises = (1 << len(world.raises)) - 1
        self._anything = (1 << len(self._generations)) - 1
        # Readers are numbered, so that states are small tuples of integers.
        self._readers: list[Reader] = []
        self._numbers: dict[Reader, int] = {}
        self._reads: list[tuple[tuple[KeyQuery[str], int], ...]] = []
        self.number_of(Rest.IDLE)

    # What explore() needs.

    def initial(self) -> State:
        return State(unstarted_writers=self.world.writers)

    def fault(self, state: State) -> str | None:
        reader = self._readers[state.reader]
        return reader.fault if isinstance(reader, Broken) else None

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        reader = self._readers[state.reader]
        if reader is Rest.DONE or isinstance(reader, Broken):
            return  # whatever else happens, nobody looks any more
        if self.is_reduced and isinstance(reader, Reading):
            settled = self._settled_read(state, reader)
            if settled:
                yield from settled
                return
        for step, following in self._steps_of_others(State(*state[:4])):
            yield step, _with_reader(following, state.reader)
        yield from self._reader_steps(state, reader)

    @cache  # noqa: B019 - a model lives as long as its test
    def _steps_of_others(self, state: State) -> tuple[tuple[Step, State], ...]:
        """List what raises and writers do next: the same wherever the reader is."""
        return (*self._raise_steps(state), *self._writer_steps(state))

    # Raises.

    def _raise_steps(self, state: State) -> Iterator[tuple[Step, State]]:
        for index, generation in enumerate(self.world.raises):
            bit = 1 << index
            if not state.journal & bit:
                yield Step("journal", generation), state._replace(journal=state.journal | bit)

    # Writers.

    def _writer_steps(self, state: State) -> Iterator[tuple[Step, State]]:
        if state.unstarted_writers:
            begun = state._replace(unstarted_writers=state.unstarted_writers - 1)
            for shown, place in self._placements(state.journal):
                bit = self._bits[place]
                if self.is_reduced:
                    yield Step("write", place, shown), begun._replace(stored=state.stored | bit)
                else:
                    yield Step("ask", place, shown), begun._replace(under_way=state.under_way | bit)
        for index, place in enumerate(self.places):
            bit = 1 << index
            if state.under_way & bit:
                put = state._replace(stored=state.stored | bit, under_way=state.under_way & ~bit)
                yield Step("put", place), put

    @cache  # noqa: B019 - a model lives as long as its test
    def _placements(self, journal: int) -> tuple[tuple[tuple[int, ...], Place], ...]:
        """List where writers can place messages, whatever Redis and the journal show them; one way for each."""
        found: dict[Place, tuple[int, ...]] = {}
        for hint in _subsets(self._anything):
            for shown in _subsets(journal):
                for message_id in self.world.message_ids:
                    for partition_key in self._write(message_id, hint, shown):
                        found.setdefault(Place(partition_key, message_id), (hint, shown))
        return tuple((shown, place) for place, shown in found.items())

    @cache  # noqa: B019 - a model lives as long as its test
    def _write(self, message_id: str, hint: int, shown: int) -> tuple[str, ...]:
        """Let the writer try all choices of a message, which all refuse, and list them."""
        tried: list[str] = []

        def put(partition_key: str) -> None:
            tried.append(partition_key)
            raise KEY_RANGE_THROTTLE

        writer: Any = Writer(
            routes=self._open_routes(hint, SimpleNamespace(get=lambda *_, **__: JournalEntry(self.route(shown)))),
            counting=WriteCounting(),
            **self._shared,
        )
        key = build_key(CONVERSATION, message_id)
        with suppress(ThrottledError):
            writer.write(key, put=put, find=lambda _: None, size_bytes=100, may_be_stored=True)
        return tuple(tried)

    @property
    def _shared(self) -> dict[str, Any]:
        clock = self._clock.as_clock()
        return {"telemetry": FakeTelemetry(), "clock": clock, "budget_ms": 0, "form": KEY_FORM}

    def _open_routes(self, hint: int, journal: Any = None) -> Any:
        """Open routes whose Redis shows a hint."""
        route = self.route(hint)
        registry: Any = SimpleNamespace(get=lambda _: route, get_for_reading=lambda _: ReadRoute(route, 0))
        clock = self._clock.as_clock()
        return RegistryRoutes(
            registry=registry,
            journal=journal,
            telemetry=FakeTelemetry(),
            now_ms=clock.now_ms,
            random=clock.random,
            ttl_seconds=0,
        )

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Every place that any message can ever come to; bit masks number them."""
        return tuple(sorted(place for _, place in self._placements(self._all_raises)))

    @cached_property
    def _bits(self) -> dict[Place, int]:
        return {place: 1 << index for index, place in enumerate(self.places)}

    # The reader.

    def _reader_steps(self, state: State, reader: Reader) -> Iterator[tuple[Step, State]]:
        if not isinstance(reader, Reading):
            for step, number in self._beginnings(state.reader, state.stored):
                yield step, _with_reader(state, number)
            return
        if reader.wants_journal:
            yield Step("read-journal"), _with_reader(state, self._read_journal(state.reader, state.journal))
        for index in range(len(reader.pending)):
            yield from self._run_query(state, index)

    def _settled_read(self, state: State, reader: Reading) -> list[tuple[Step, State]]:
        """Return what a read finds that nothing which may still happen could change, if one is pending."""
        if reader.wants_journal and state.journal == self._all_raises:
            return [(Step("read-journal"), _with_reader(state, self._read_journal(state.reader, state.journal)))]
        to_come = state.under_way | (self._all_places if state.unstarted_writers else 0)
        for index, (_, mask) in enumerate(self._reads[state.reader]):
            if not mask & to_come & ~state.stored:
                return self._run_query(state, index)
        return []

    @cached_property
    def _all_places(self) -> int:
        return (1 << len(self.places)) - 1

    @cache  # noqa: B019 - a model lives as long as its test
    def _beginnings(self, reader: int, stored: int) -> tuple[tuple[Step, int], ...]:
        acknowledged = frozenset(p.message_id for i, p in enumerate(self.places) if stored >> i & 1)
        return tuple(
            (Step("begin", goal, (hint,)), self.number_of(self.begin(goal, position, acknowledged, hint)))
            for goal, position in self._goals(self._readers[reader])
            for hint in _subsets(self._anything)
        )

    def _goals(self, reader: Reader) -> Iterator[tuple[Goal, str | None]]:
        if isinstance(reader, Between):
            yield reader.request, reader.position
            return
        yield from ((request, None) for request in self.world.requests)
        if self.world.lookups:
            yield from ((Lookup(message_id), None) for message_id in self.world.message_ids)

    def begin(self, goal: Goal, position: str | None, acknowledged: frozenset[str], hint: int) -> Reader:
        """Begin a page or a lookup, with Redis's response."""
        owed = frozenset(i for i in acknowledged if lies_in_rest(goal, position, i))
        return self._go_on(Reading(goal, position, owed, hint))

    def _go_on(self, reading: Reading) -> Reader:
        """Run the reader on the responses so far: it asks for more, or ends."""
        store: Any = Rounds(self, reading.past)
        routes = self._open_routes(reading.hint)
        gatherer: Any = Gatherer(store=store, routes=routes, position_of=position_of, **self._shared)
        reader = MessageReader(gatherer, now_ms=lambda: self.world.start_ms, settle_ms=0)
        try:
            if isinstance(reading.goal, Lookup):
                return self._end_lookup(reading, reading.goal, reader)
            return self._end_page(reading, reading.goal, reader)
        except AskedError as asked:
            return reading._replace(pending=asked.queries, wants_journal=asked.wants_journal)

    def _end_lookup(self, reading: Reading, goal: Lookup, reader: MessageReader) -> Reader:
        found: tuple[str, ...] = ()
        with suppress(MessageNotFoundError):
            found = (reader.read_message(CONVERSATION, goal.message_id, is_strong=True).message_id,)
        self.outcomes.add(Outcome(goal, found))
        return Broken("an acknowledged message was not found") if reading.owed and not found else Rest.DONE

    def _end_page(self, reading: Reading, goal: PageRequest, reader: MessageReader) -> Reader:
        page = reader.read_page(goal)
        ids = tuple(message.message_id for message in page.messages)
        has_more = page.next_cursor is not None
        self.outcomes.add(Outcome(goal, ids, has_more))
        fault = judge_page(reading, ids, has_more=has_more)
        if fault:
            return Broken(fault)
        return Between(replace(goal, cursor=page.next_cursor), ids[-1]) if has_more else Rest.DONE

    def _run_query(self, state: State, index: int) -> list[tuple[Step, State]]:
        _, mask = self._reads[state.reader][index]
        replies = self._replies(state.reader, index, state.stored & mask)
        return [(step, _with_reader(state, number)) for step, number in replies]

    @cache  # noqa: B019 - a model lives as long as its test
    def _replies(self, reader: int, index: int, stored: int) -> tuple[tuple[Step, int], ...]:
        query, _ = self._reads[reader][index]
        reading = self._readers[reader]
        pending = tuple(q for q in reading.pending if q != query)
        return tuple(
            (Step("query", response), self.number_of(self._take(reading, pending, response)))
            for response in self._responses(query, stored)
        )

    def _take(self, reading: Reading, pending: tuple[KeyQuery, ...], response: Response) -> Reader:
        responses = tuple(sorted((*reading.responses, response), key=lambda a: a.query.partition_key))
        return self._close_round(reading._replace(responses=responses, pending=pending))

    def _responses(self, query: KeyQuery, stored: int) -> Iterator[Response]:
        """Respond as DynamoDB does: a query that stops at its limit or before cannot know whether anything follows."""
        found = [p.message_id for i, p in enumerate(self.places) if stored >> i & 1]
        taken = tuple(sorted(found, reverse=query.newest_first)[: query.limit])
        yield Response(query, taken, is_exhausted=len(taken) < query.limit)
        if self.world.cuts:
            yield from (Response(query, taken[:size], is_exhausted=False) for size in range(1, len(taken) + 1))

    @cache  # noqa: B019 - a model lives as long as its test
    def _read_journal(self, reader: int, journal: int) -> int:
        reading = self._readers[reader]
        return self.number_of(self._close_round(reading._replace(wants_journal=False, journal=journal)))

    def _close_round(self, reading: Reading) -> Reader:
        """Once everything of the round is there, hand it to the reader."""
        if reading.pending or reading.wants_journal:
            return reading
        round_ = Round(reading.responses, reading.journal)
        return self._go_on(Reading(*reading[:4], past=(*reading.past, round_)))

    # Values.

    @cache  # noqa: B019 - a model lives as long as its test
    def route(self, generations: int) -> Route:
        """Build the route of a set of generations."""
        return Route(frozenset(g for i, g in enumerate(self._generations) if generations >> i & 1))

    @cache  # noqa: B019 - a model lives as long as its test
    def message(self, message_id: str) -> Message:
        return Message(CONVERSATION, message_id, "ann", "hello")

    def number_of(self, reader: Reader) -> int:
        """Number a reader; equal ones have equal numbers."""
        number = self._numbers.get(reader)
        if number is None:
            number = self._numbers[reader] = len(self._readers)
            self._readers.append(reader)
            pending = reader.pending if isinstance(reader, Reading) else ()
            self._reads.append(tuple((query, self._mask_of(query)) for query in pending))
        return number

    def _mask_of(self, query: KeyQuery) -> int:
        """Collect the places that a query looks at."""
        return sum(1 << index for index, place in enumerate(self.places) if looks_at(query, place))


def _with_reader(state: State, number: int) -> State:
    return State(*state[:4], number)  # the most frequent step by far; `_replace` takes twice as long


def looks_at(query: KeyQuery, place: Place) -> bool:
    """Say whether a place lies on a query's key and within its bounds."""
    return place.partition_key == query.partition_key and lies_within(query, build_sort_key(place.message_id))


def lies_in_rest(goal: Goal, position: str | None, message_id: str) -> bool:
    """Say whether a message is asked for: worked out from times, not from the core's ranges of ids."""
    if isinstance(goal, Lookup):
        return message_id == goal.message_id
    time_ms = message_time_ms(message_id)
    is_within = (goal.after_ms is None or time_ms >= goal.after_ms) and (
        goal.before_ms is None or time_ms < goal.before_ms
    )
    return is_within and (position is None or _comes_after(goal, message_id, position))


def judge_page(reading: Reading, ids: tuple[str, ...], *, has_more: bool) -> str | None:
    """Hold a page against the promise."""
    request = reading.goal
    if any(not _comes_after(request, b, a) for a, b in pairwise(ids)):
        return "the page is out of order, or holds a message twice"
    if any(not lies_in_rest(request, reading.position, i) for i in ids):
        return "the page holds a message from outside its bounds or an earlier page"
    if len(ids) > request.limit or (has_more and not ids):
        return "the page has a wrong size"
    responded = {i for round_ in reading.past for response in round_.responses for i in response.message_ids}
    if not responded.issuperset(ids):
        return "the page holds a message that nobody stored"
    missing = [i for i in reading.owed if i not in ids and not (has_more and _comes_after(request, i, ids[-1]))]
    return "an acknowledged message is missing" if missing else None


def _comes_after(request: PageRequest, message_id: str, other: str) -> bool:
    return message_id < other if request.newest_first else message_id > other


@cache
def _subsets(mask: int) -> tuple[int, ...]:
    return tuple(subset for subset in range(mask + 1) if subset & ~mask == 0)
