"""The write job: placed by what is known, refused cleanly, stored once; and what 201, 200, 409 and 404 promise."""

import pytest

from hotpartition.core.capacity import item_size_bytes
from hotpartition.core.errors import StoreUnavailableError, ThrottledError
from hotpartition.core.route import choose_placements
from hotpartition_messages import Message
from hotpartition_messages.errors import MessageConflictError, MessageNotFoundError
from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key, parse_sort_key
from hotpartition_messages.writing import Edit, Target
from support.builders import World, build_message, message_id, new_message, route_of
from support.fakes import KEY_RANGE_THROTTLE

from .conftest import failing

SHARDS = 8
REFUSED, OF_THE_ACCOUNT = KEY_RANGE_THROTTLE, ThrottledError(["TableWriteAccountLimitExceeded"])
NO_RESPONSE, LOST = StoreUnavailableError("500"), StoreUnavailableError("stored, the response lost")
OURS, OTHERS = "hello", "something else"


def choices_of(identifier, shards=SHARDS):
    """List the partition keys of a message's choices."""
    placements = choose_placements(route_of((shards, 0)), build_key("c", identifier), KEY_FORM)
    return [placement.partition_key for placement in placements]


class Raised(World):
    """A conversation with eight shards, and a message with an id of its client's."""

    def __init__(self):
        super().__init__()
        self.raise_to(SHARDS, 0)
        self.identifier = message_id(self.clock.now_ms, 5)
        self.choices = choices_of(self.identifier)

    def put_fates(self, fates):
        """Let one of these happen to each of the next puts; to those after them, nothing."""
        self.table.on_call = failing("put", *(None if fate is LOST else fate for fate in fates))
        left = [fate if fate is LOST else None for fate in fates]
        self.table.loses = lambda call: left[puts - 1] if 0 < (puts := len(self.puts)) <= len(left) else None

    @property
    def puts(self):
        return [call for call in self.table.calls if call.startswith("put")]

    def calls(self, identifier):
        """Say what DynamoDB was asked, beside the journal: puts by the number of the choice, and looks at all."""
        choices = choices_of(identifier)
        names = {f"put {key}": f"put {index}" for index, key in enumerate(choices)}
        names[f"batch-get {','.join(choices)}"] = "look"
        return ", ".join(names.get(call, call) for call in self.table.calls if call != "get c")

    def stored_bodies(self):
        return [item["body"]["S"] for (_, sort_key), item in self.table.items.items() if sort_key.startswith("m#")]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def raised():
    return Raised()


@pytest.mark.parametrize(
    ("has_id", "stored", "fates", "calls", "status"),
    [
        (False, {}, [], "put 0", 201),
        # Nothing is looked for under an id that was just made. What its repetition finds is this write's.
        (False, {}, [REFUSED] * 2, "put 0, put 1, put 2", 201),
        (False, {}, [REFUSED] * 3, "put 0, put 1, put 2, put 0", 201),
        (False, {}, [LOST], "put 0, put 0", 201),
        (False, {}, [LOST, REFUSED], "put 0, put 0, look", 201),
        # One that a client made is looked for before it goes elsewhere.
        (True, {}, [REFUSED], "put 0, look, put 1", 201),
        (True, {}, [REFUSED] * 3, "put 0, look, put 1, put 2, put 0", 201),
        # The outcome is unknown, or another place would be refused as well.
        (True, {}, [NO_RESPONSE] * 2, "put 0, put 0, put 0", 201),
        (True, {}, [OF_THE_ACCOUNT] * 2, "put 0, put 0, put 0", 201),
        (True, {}, [LOST], "put 0, put 0", 200),
        # A repetition, wherever among the choices the first one lies.
        (True, {0: OURS}, [], "put 0", 200),
        (True, {0: OURS}, [REFUSED], "put 0, look", 200),
        (True, {1: OURS}, [REFUSED], "put 0, look", 200),
        (True, {2: OURS}, [REFUSED], "put 0, look", 200),
        # Other content under the id.
        (True, {0: OTHERS}, [], "put 0", 409),
        (True, {0: OTHERS}, [REFUSED], "put 0, look", 409),
        (True, {2: OTHERS}, [REFUSED], "put 0, look", 409),
    ],
)
def test_a_message_is_stored_once_or_found(raised, has_id, stored, fates, calls, status):
    identifier = raised.identifier if has_id else None
    for choice, body in stored.items():
        raised.store(Message("c", raised.identifier, "ann", body), raised.choices[choice])
    raised.put_fates(fates)
    try:
        written = raised.writer().write(new_message(OURS, message_id=identifier))
        seen, identifier = 200 if written.is_replay else 201, written.message.message_id
    except MessageConflictError:
        seen = 409
    assert (raised.calls(identifier), seen) == (calls, status)
    assert raised.stored_bodies() == (list(stored.values()) or [OURS])


@pytest.mark.parametrize(("refusals", "everywhere"), [(0, 0), (2, 0), (3, 1), (6, 2)])
def test_only_what_all_choices_refused_waits_and_is_reported(raised, refusals, everywhere):
    """It has the route looked up again. The load is offered once; a throttled sample keeps its value, and says so."""
    raised.put_fates([REFUSED] * refusals)
    raised.writer(sampling_distance_wcu=0.5).write(new_message())
    counts = raised.telemetry.counts
    assert (len(raised.clock.slept), raised.registry.reads) == (everywhere, 1 + everywhere)
    first, *again = raised.reports.sent
    assert (first.is_throttled, again) == (False, [first._replace(is_throttled=True)] * min(1, everywhere))
    assert counts.get("WritesThrottled", 0) == refusals
    assert counts.get("WritesRefusedEverywhere", 0) == everywhere


def test_of_two_contents_at_two_choices_readers_show_one(raised):
    """Two clients with one id, the first of them refused at the first choice: both get 201, pages show the same."""
    raised.store(Message("c", raised.identifier, "ann", OTHERS), raised.choices[1])
    assert not raised.writer().write(new_message(OURS, message_id=raised.identifier)).is_replay
    assert sorted(raised.stored_bodies()) == [OURS, OTHERS]
    assert raised.reader().read_message("c", raised.identifier).body == OURS


def test_what_cannot_be_looked_for_is_not_put_elsewhere(raised):
    """A 503 with the id, not a second copy."""
    raised.table.on_call = failing((f"put {raised.choices[0]}", "batch-get"), always=KEY_RANGE_THROTTLE)
    with pytest.raises(StoreUnavailableError) as caught:
        raised.writer().write(new_message(message_id=raised.identifier))
    assert (caught.value.sort_key, raised.stored_bodies()) == (build_sort_key(raised.identifier), [])


def test_a_write_of_a_batch_avoids_a_shard_that_refused_a_moment_ago(raised):
    """By the same environment, for a second: a batch is not repeated at other choices. Single writes begin anew."""
    writer, key = raised.writer(), build_key("c", raised.identifier)
    writer.writer.refused(raised.choices[0])
    assert writer.writer.place(key, size_bytes=100).partition_key == raised.choices[1]
    writer.write(new_message(message_id=raised.identifier))
    assert raised.calls(raised.identifier) == "put 0"
    raised.clock.now_ms += 1_001
    assert writer.writer.place(key, size_bytes=100).partition_key == raised.choices[0]


@pytest.mark.parametrize("choice", [0, 1, 2])
def test_a_point_read_asks_other_choices_only_when_the_first_has_nothing(raised, choice):
    """One request for nearly all messages, with the journal in it; a second one without for the rest."""
    message = Message("c", raised.identifier, "ann", "hello")
    raised.store(message, raised.choices[choice])
    assert raised.reader().read_message("c", raised.identifier, is_strong=True) == message
    first, others = f"batch-get c,{raised.choices[0]}", f"batch-get {','.join(raised.choices[1:])}"
    assert raised.table.calls == ([first] if choice == 0 else [first, others])


def test_a_message_is_not_found_after_all_choices_were_asked(raised):
    """404 means at no choice of any generation."""
    raised.raise_to(3, 0)
    with pytest.raises(MessageNotFoundError):
        raised.reader().read_message("c", raised.identifier, is_strong=True)
    asked = {key for call in raised.table.calls for key in call.removeprefix("batch-get ").split(",")}
    assert asked == {"c", *choices_of(raised.identifier, 3), *raised.choices}


def test_with_redis_away_a_throttle_asks_the_journal(world):
    """A raised conversation is still found by an environment that started while Redis was down."""
    world.raise_to(8, 0)
    world.registry.is_down = True
    world.table.failures = [KEY_RANGE_THROTTLE]
    world.writer().write(new_message())
    assert [call.partition("#")[0] for call in world.table.calls] == ["put c", "get c", "put c"]
    assert world.table.calls[2].startswith("put c#")


@pytest.mark.parametrize("failure", [REFUSED, OF_THE_ACCOUNT, NO_RESPONSE])
def test_when_the_budget_is_spent_the_error_names_the_id(world, failure):
    """Nothing half written, and the id to repeat with; waits are jittered, short and within the budget.

    Only what no other choice would take counts as refused everywhere.
    """
    started = world.clock.now_ms
    world.table.failures = [failure] * 100
    with pytest.raises(type(failure)) as caught:
        world.writer(budget_ms=300).write(new_message())
    assert world.table.items == {}
    assert world.clock.now_ms - started < 300
    assert world.table.calls.count("put c") >= 3
    assert ("WritesRefusedEverywhere" in world.telemetry.counts) == (failure is REFUSED)
    world.table.failures = []
    assert not world.writer().write(new_message(message_id=parse_sort_key(caught.value.sort_key))).is_replay


@pytest.mark.parametrize(("extra", "raised", "expected"), [(0, False, 1), (1, False, 2), (0, True, 2), (-2, True, 1)])
def test_units_are_those_of_the_very_item(world, extra, raised, expected):
    """At the edge of a KiB the shard's suffix decides; sampled at every 1/1000 unit, the value is the count."""
    if raised:
        world.raise_to(4, 0)
    empty = item_size_bytes(build_message(body="").to_item("c"))
    world.writer(sampling_distance_wcu=0.001).write(new_message("x" * (1024 - empty + extra)))
    assert world.reports.sent[-1].value == pytest.approx(expected, abs=0.001)


def test_a_change_is_one_transaction_and_counted_as_it_costs(world):
    """As every write: an item that shrinks costs what it was; in a transaction each of two copies costs twice."""
    world.store(build_message(body="x" * 3000), "c")
    target = Target(conversation_id="c", message_id=message_id(world.clock.now_ms))
    world.writer().edit(target, Edit(body="y" * 3000))
    world.raise_to(4, 0)
    world.store(build_message(body="x" * 3000), "c#1")
    world.writer().edit(target, Edit(body="short"))
    assert [report.value for report in world.reports.sent] == [4, 16]
    assert [call for call in world.table.calls if call.startswith("replace")] == ["replace c", "replace c,c#1"]


def test_dropped_reports_are_counted(world):
    """With Redis away reports are dropped, and an operator sees how many."""
    world.reports.take_dropped = lambda: 3
    world.writer().write(new_message())
    assert world.telemetry.counts["ReportsDropped"] == 3
