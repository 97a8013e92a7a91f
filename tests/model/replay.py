"""Runs of the model, repeated with the real reader and writer: the model's steps must be exactly theirs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from hotpartition.core.merge import KeyQuery
from hotpartition.core.ports import Copy, Fetched, Got, JournalEntry, QueryResponse
from hotpartition.core.route import Generation, choose_placements
from hotpartition_messages.errors import MessageNotFoundError
from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key
from hotpartition_messages.reading import PageRequest
from hotpartition_messages.writing import NewMessage
from model.model import CONVERSATION, Broken, Done, Lookup, Place, ProtocolModel, Response, Step
from support.builders import World as Stores
from support.fakes import KEY_RANGE_THROTTLE
from support.world import Table


def walk(model: ProtocolModel, random: Random) -> list[Step]:
    """Take steps at random until the reader is done; every kind of step is as likely as any other."""
    state = model.initial()
    steps: list[Step] = []
    while not isinstance(model.reader_of(state), Done | Broken):
        possible = [(step, following) for step, following in model.steps(state) if following != state]
        kind = random.choice(sorted({step.kind for step, _ in possible}))
        step, state = random.choice([(s, f) for s, f in possible if s.kind == kind])
        steps.append(step)
    return steps


class _ScriptedTable(Table):
    """Responds to a round of queries by doing the script's next steps; so each query sees what is stored at its own."""

    def __init__(self, script: deque[Step], do: Callable[[Step], None]) -> None:
        super().__init__()
        self.script, self.do, self.is_written = script, do, False

    def fetch(self, queries: Sequence[KeyQuery], *, is_strong: bool, journal_of: str | None = None) -> Fetched:
        responses: dict[KeyQuery, QueryResponse] = {}
        journal: JournalEntry | None = None
        while len(responses) < len(queries) or (journal_of is not None and journal is None):
            step = self.script.popleft()
            match step:
                case Step("read-journal"):
                    assert journal_of is not None, "the real reader did not ask for the journal"
                    journal = self.routes.get(journal_of, JournalEntry())
                case Step("query", Response() as told):
                    assert told.query in queries, "the real reader did not ask this"
                    responses[told.query] = self._cut(told, is_strong=is_strong)
                case _:
                    self.do(step)
        return Fetched(tuple(responses[query] for query in queries), journal)

    def _cut(self, told: Response, *, is_strong: bool) -> QueryResponse:
        """Respond truly, but end where the model's response ended."""
        response = super().fetch([told.query], is_strong=is_strong).responses[0]
        assert isinstance(response, QueryResponse)
        messages = response.items[: len(told.message_ids)]
        assert tuple(message.message_id for message in messages) == told.message_ids
        return QueryResponse(messages, told.is_exhausted)

    def get(self, places, *, is_strong, journals_of=()):
        if self.is_written:
            return Got((), {})
        queries = [KeyQuery(key, newest_first=True, limit=1, first=sk, last=sk) for key, sk in places]
        journal_of = next(iter(journals_of), None)
        fetched = self.fetch(queries, is_strong=is_strong, journal_of=journal_of)
        responded = zip(places, fetched.responses, strict=True)
        copies = tuple(Copy(place[0], message) for place, response in responded for message in response.items)
        return Got(copies, {journal_of: fetched.journal} if journal_of else {})


class Replay:
    """Runs the real reader and writers over in-memory stores, in the order that a list of steps says."""

    def __init__(self, model: ProtocolModel, steps: Sequence[Step]) -> None:
        self._model = model
        self._script = deque(steps)
        self._hints: dict[Place, int] = {}
        self._stores = Stores(table=_ScriptedTable(self._script, self._do))
        self._stores.clock.now_ms = model.world.start_ms

    def run(self) -> list[str]:
        """Repeat all steps.

        Returns:
            The ids that the reader returned, those of all pages in one list.
        """
        returned: list[str] = []
        following: PageRequest | None = None
        while self._script:
            step = self._script.popleft()
            if step.kind != "begin":
                self._do(step)
                continue
            assert following in {None, step.what}, "the real cursor is not the model's"
            found, following = self._read(step)
            returned.extend(found)
        assert following is None, "the real reader has another page"
        return returned

    def _do(self, step: Step) -> None:
        """Do a step of anybody but the reader."""
        match step:
            case Step("journal", Generation() as generation):
                self._stores.raise_to(generation.shard_count, generation.since_ms, in_redis=False)
            case Step("ask", Place() as place):
                self._hints[place] = step.hint
            case Step("put", Place() as place):
                self._put(place)
            case _:
                raise AssertionError(f"the real reader is not where the model is: {step}")

    def _put(self, place: Place) -> None:
        """Write by a writer to whom Redis and an eventually consistent journal show what the model's was shown.

        The choices before the place refuse; whether the message lies at one of them was looked at before.
        """
        route = self._model.route(self._hints[place])
        self._say(self._hints[place])
        self._stores.table.lagging[CONVERSATION] = JournalEntry(route)
        keys = [p.partition_key for p in choose_placements(route, build_key(CONVERSATION, place.message_id), KEY_FORM)]
        refusing = {f"put {key}" for key in keys[: keys.index(place.partition_key)]}

        def refuse(call: str) -> None:
            if call in refusing:
                raise KEY_RANGE_THROTTLE

        self._stores.table.on_call = refuse
        self._stores.table.is_written = True
        # The model has no closes, so its writers have no leases.
        self._stores.writer(lease_seconds=0).write(
            NewMessage(CONVERSATION, "ann", "hello", message_id=place.message_id)
        )
        self._stores.table.is_written = False
        assert (place.partition_key, build_sort_key(place.message_id)) in self._stores.table.items

    def _read(self, step: Step) -> tuple[list[str], PageRequest | None]:
        """Read one page or one message, by a reader that knows only what Redis says.

        Returns:
            The ids it returned, and the request for the next page if there is one.
        """
        self._say(step.hint)
        reader = self._stores.reader(budget_ms=0)
        if isinstance(step.what, Lookup):
            try:
                return [reader.read_message(CONVERSATION, step.what.message_id, is_strong=True).message_id], None
            except MessageNotFoundError:
                return [], None
        assert isinstance(step.what, PageRequest)
        page = reader.read_page(step.what)
        following = replace(step.what, cursor=page.next_cursor) if page.next_cursor else None
        return [message.message_id for message in page.messages], following

    def _say(self, hint: int) -> None:
        self._stores.registry.routes[CONVERSATION] = self._model.route(hint)
