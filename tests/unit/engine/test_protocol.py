"""The promise, as a state machine: whatever happens in whatever order, one dictionary knows what must be read.

Writers with old routes, retries of the same id across raises, several raisers (late ones, zombies, ones that crash
between journal and registry), Redis emptied, set back, away or full of inventions, and pages of any size, order and
bounds.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import EMPTY_ROUTE, Generation, Route, choose_placement
from hotpartition.core.route_history import Cause
from hotpartition_messages import Message
from hotpartition_messages.errors import MessageConflictError
from hotpartition_messages.keys import KEY_FORM, build_key
from hotpartition_messages.message_ids import message_time_ms
from hotpartition_messages.reading import PageRequest
from hotpartition_messages.writing import NewMessage
from support.builders import World, build_message, message_id, read_all

START = 1_700_000_000_000
offsets = st.integers(-50, 50)


class Protocol(RuleBasedStateMachine):
    """Real writers, readers and raises over in-memory stores; `acknowledged` is the oracle."""

    def __init__(self):
        super().__init__()
        self.world = World()
        self.world.clock.now_ms = START
        self.acknowledged: dict[str, Message] = {}
        self.writers = [self.world.writer(ttl_seconds=ttl) for ttl in (0.0, 0.05, 3600.0)]
        self.readers = [self.world.reader(ttl_seconds=ttl) for ttl in (0.0, 3600.0)]
        self.snapshots: list[Route] = [EMPTY_ROUTE]
        self.zombie_raises: list[Generation] = []
        self.paging: dict[bool, PageRequest] = {}

    @rule(step=st.integers(1, 40))
    def time_passes(self, step):
        self.world.clock.now_ms += step

    @rule(writer=st.integers(0, 2), offset=offsets, tail=st.integers(0, 30))
    def write(self, writer, offset, tail):
        identifier = message_id(self.world.clock.now_ms + offset, tail)
        body = f"body of {identifier}"
        written = self.writers[writer].write(NewMessage("c", "ann", body, message_id=identifier))
        self.acknowledged[identifier] = written.message

    @precondition(lambda self: self.acknowledged)
    @rule(data=st.data(), writer=st.integers(0, 2))
    def retry(self, data, writer):
        message = self.acknowledged[data.draw(st.sampled_from(sorted(self.acknowledged)))]
        self.writers[writer].write(NewMessage("c", message.sender, message.body, message_id=message.message_id))

    @precondition(lambda self: self.acknowledged)
    @rule(data=st.data())
    def conflict_within_one_placement(self, data):
        message = self.acknowledged[data.draw(st.sampled_from(sorted(self.acknowledged)))]
        route = self.world.table.routes.get("c", JournalEntry()).route
        key = choose_placement(route, build_key("c", message.message_id), KEY_FORM).partition_key
        writer = self.world.writer(ttl_seconds=0.0)
        if self.world.registry.is_down or self.world.registry.get("c") != route:
            return
        if (key, f"m#{message.message_id}") in self.world.table.items:
            with pytest.raises(MessageConflictError):
                writer.write(NewMessage("c", "bob", "other", message_id=message.message_id))

    @rule(data=st.data(), offset=offsets, tail=st.integers(0, 30))
    def stale_put(self, data, offset, tail):
        """A writer that was frozen with any route the journal ever held, thawed now."""
        route = data.draw(st.sampled_from(self.snapshots))
        message = build_message(self.world.clock.now_ms + offset, tail)
        message = Message("c", message.message_id, "ann", f"body of {message.message_id}")
        self.world.store(message, choose_placement(route, build_key("c", message.message_id), KEY_FORM).partition_key)
        self.acknowledged[message.message_id] = message

    @rule(count=st.integers(2, 9), offset=offsets)
    def raise_(self, count, offset):
        self._journal(Generation(since_ms=self.world.clock.now_ms + offset, shard_count=count), in_redis=True)

    @rule(count=st.integers(2, 9), offset=offsets)
    def raise_and_crash_before_redis(self, count, offset):
        self._journal(Generation(since_ms=self.world.clock.now_ms + offset, shard_count=count), in_redis=False)

    @rule(count=st.integers(2, 9), offset=offsets)
    def decide_and_freeze(self, count, offset):
        self.zombie_raises.append(Generation(since_ms=self.world.clock.now_ms + offset, shard_count=count))

    @precondition(lambda self: self.zombie_raises)
    @rule(in_redis=st.booleans())
    def zombie_thaws(self, in_redis):
        self._journal(self.zombie_raises.pop(), in_redis=in_redis)

    def _journal(self, generation, *, in_redis):
        entry = self.world.journal.add("c", [generation], cause=Cause("test"), now_ms=self.world.clock.now_ms)
        self.snapshots.append(entry.route)
        if in_redis and not self.world.registry.is_down:
            self.world.registry.add("c", [generation])

    @rule()
    def redis_is_emptied(self):
        self.world.registry.routes.clear()
        self.world.registry.whole = False

    @rule(data=st.data())
    def redis_is_set_back(self, data):
        self.world.registry.routes["c"] = data.draw(st.sampled_from(self.snapshots))

    @rule(count=st.integers(2, 9), offset=offsets)
    def redis_invents(self, count, offset):
        """Somebody writes a generation to Redis that nobody raised."""
        generation = Generation(since_ms=self.world.clock.now_ms + offset, shard_count=count)
        self.world.registry.routes["c"] = Route(
            self.world.registry.routes.get("c", EMPTY_ROUTE).generations | {generation}
        )

    @rule(is_down=st.booleans())
    def redis_goes_or_returns(self, is_down):
        self.world.registry.is_down = is_down

    @rule(
        reader=st.integers(0, 1),
        newest_first=st.booleans(),
        limit=st.integers(1, 12),
        bounds=st.tuples(st.none() | offsets, st.none() | offsets),
        is_strong=st.booleans(),
    )
    def read(self, reader, newest_first, limit, bounds, is_strong):
        after, before = (None if b is None else self.world.clock.now_ms + b for b in bounds)
        request = PageRequest("c", newest_first, limit, after, before, None, is_strong)
        found = read_all(self.readers[reader], request)
        expected = [
            m
            for i, m in sorted(self.acknowledged.items(), reverse=newest_first)
            if (after is None or message_time_ms(i) >= after) and (before is None or message_time_ms(i) < before)
        ]
        assert found == expected

    @rule(
        reader=st.integers(0, 1),
        newest_first=st.booleans(),
        limit=st.integers(1, 6),
        bounds=st.tuples(st.none() | offsets, st.none() | offsets),
    )
    def read_a_page_more(self, reader, newest_first, limit, bounds):
        """One page of a read whose other pages lie before and after whatever else happens, at any environment."""
        after, before = (None if b is None else START + 400 + b for b in bounds)
        request = self.paging.get(newest_first) or PageRequest("c", newest_first, limit, after, before, None, True)
        request = replace(request, limit=limit)
        rest = self._rest_of(request)
        page = self.readers[reader].read_page(request)
        assert list(page.messages) == rest[:limit]
        assert (page.next_cursor is not None) == (len(rest) > limit)
        self.paging.pop(newest_first, None)
        if page.next_cursor is not None:
            self.paging[newest_first] = replace(request, cursor=page.next_cursor)

    def _rest_of(self, request):
        """What is acknowledged, within the bounds, and behind the cursor."""
        last = request.cursor.message_id if request.cursor else None
        return [
            message
            for identifier, message in sorted(self.acknowledged.items(), reverse=request.newest_first)
            if (request.after_ms is None or message_time_ms(identifier) >= request.after_ms)
            and (request.before_ms is None or message_time_ms(identifier) < request.before_ms)
            and (last is None or (identifier < last if request.newest_first else identifier > last))
        ]

    @precondition(lambda self: self.acknowledged)
    @rule(data=st.data(), reader=st.integers(0, 1))
    def read_one(self, data, reader):
        identifier = data.draw(st.sampled_from(sorted(self.acknowledged)))
        found = self.readers[reader].read_message("c", identifier, is_strong=True)
        assert found == self.acknowledged[identifier]


Protocol.TestCase.settings = settings(max_examples=100, stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestProtocol = Protocol.TestCase
