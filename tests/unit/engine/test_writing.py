"""The write job: placed by what is known, refused cleanly, stored once; and what 200, 409 and 404 promise."""

from collections import Counter
from dataclasses import replace

import pytest

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, item_size_bytes
from hotpartition.core.errors import ItemTooLargeError, StoreUnavailableError, ThrottledError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import choose_placement, choose_placements
from hotpartition_messages import Message
from hotpartition_messages.attributes import encode_attributes
from hotpartition_messages.errors import MessageConflictError, MessageNotFoundError
from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key, parse_sort_key
from hotpartition_messages.writing import NewMessage
from support.builders import World, build_message, message_id, new_message, route_of
from support.fakes import KEY_RANGE_THROTTLE

from .conftest import failing, lose_next_response

ACCOUNT_THROTTLE = ThrottledError(["TableWriteAccountLimitExceeded"])


@pytest.fixture
def world():
    return World()


def puts(world):
    return [call for call in world.table.calls if call.startswith("put")]


def test_a_quiet_conversation_costs_one_put_and_one_lookup(world):
    """Never hot: the base key, one DynamoDB request, at most one request to Redis in a cached route's TTL."""
    writer = world.writer()
    for _ in range(3):
        writer.write(new_message())
    assert world.table.calls == ["put c"] * 3
    assert world.registry.reads == 1


@pytest.mark.parametrize("other", [{"a": True}, {"a": "1"}, {}])
def test_attributes_count_as_content(world, other):
    """True is not 1, and 1 is not "1"; but 1 is 1.0."""
    writer = world.writer()
    first = writer.write(NewMessage("c", "ann", "x", encode_attributes({"a": 1.0})))
    again = NewMessage("c", "ann", "x", encode_attributes({"a": 1}), first.message.message_id)
    assert writer.write(again).is_replay
    with pytest.raises(MessageConflictError):
        writer.write(replace(again, attributes=encode_attributes(other)))


def test_an_item_over_the_limit_is_refused_before_it_is_counted(world):
    """400 KiB with names and the longest shard key; nothing was offered to DynamoDB."""
    with pytest.raises(ItemTooLargeError) as caught:
        world.writer().write(new_message("x" * ITEM_LIMIT_BYTES))
    assert caught.value.item_bytes > ITEM_LIMIT_BYTES
    assert (world.table.calls, world.reports.sent) == ([], [])


def test_what_is_stored_is_the_messages_item_at_its_place(world):
    """The item is built once, and only its key follows the placement, also when that changes between two tries."""
    identifier = message_id(world.clock.now_ms, 5)
    world.table.failures = [KEY_RANGE_THROTTLE]
    world.clock.on_sleep = lambda: world.raise_to(8, 0)
    written = world.writer().write(new_message(message_id=identifier))
    key = choose_placement(route_of((8, 0)), build_key("c", identifier), KEY_FORM).partition_key
    stored = {place: dict(item) for place, item in world.table.items.items() if place[1].startswith("m#")}
    assert stored == {(key, f"m#{identifier}"): written.message.to_item(key)}


def test_with_redis_away_a_throttle_asks_the_journal(world):
    """A raised conversation is still found by an environment that started while Redis was down."""
    world.raise_to(8, 0)
    world.registry.is_down = True
    world.table.failures = [KEY_RANGE_THROTTLE]
    world.writer().write(new_message())
    assert world.table.calls[:2] == ["put c", "get c"]  # which is the lease as well
    assert world.table.calls[2].startswith("put c#")


def test_with_redis_away_writes_go_on_by_the_last_known_route(world):
    """A cached route outlives its freshness."""
    world.raise_to(8, 0)
    writer = world.writer()
    writer.write(new_message())
    world.registry.is_down = True
    world.clock.now_ms += 60_000
    writer.write(new_message())
    assert all(call.startswith("put c#") for call in puts(world))
    assert world.telemetry.counts["RegistryUnavailable"] == 1


@pytest.mark.parametrize("failure", [KEY_RANGE_THROTTLE, ACCOUNT_THROTTLE, StoreUnavailableError("500")])
def test_when_the_budget_is_spent_the_error_names_the_id(world, failure):
    """Nothing half written, and the id to repeat with; waits are jittered, short and within the budget."""
    started = world.clock.now_ms
    world.table.failures = [failure] * 100
    with pytest.raises(type(failure)) as caught:
        world.writer(budget_ms=300).write(new_message())
    assert caught.value.sort_key
    assert world.table.items == {}
    assert world.clock.now_ms - started < 300
    assert len(puts(world)) >= 3
    world.table.failures = []
    retried = world.writer().write(new_message(message_id=parse_sort_key(caught.value.sort_key)))
    assert not retried.is_replay


@pytest.mark.parametrize("is_minted", [True, False])
def test_a_put_whose_response_was_lost_is_found_again(world, is_minted):
    """Stored, but the response never came. Under an id of the server's own, what the retry finds is new."""
    identifier = None if is_minted else message_id(world.clock.now_ms, 9)
    lose_next_response(world)
    assert world.writer().write(new_message(message_id=identifier)).is_replay is not is_minted
    assert len(world.table.items) == 1


def test_a_write_is_counted_once_however_often_it_is_tried(world):
    """Offered load, once per request; a throttled sample is sent again with the same value, and says so."""
    world.table.failures = [KEY_RANGE_THROTTLE, KEY_RANGE_THROTTLE]
    world.writer(sampling_distance_wcu=0.5).write(new_message())
    values = [(r.value, r.is_throttled, r.shard_count) for r in world.reports.sent]
    assert len(values) == 2
    assert values[0][0] == values[1][0]
    assert [v[1:] for v in values] == [(False, 0), (True, 0)]


@pytest.mark.parametrize(("extra", "raised", "expected"), [(0, False, 1), (1, False, 2), (0, True, 2), (-2, True, 1)])
def test_units_are_those_of_the_very_item(world, extra, raised, expected):
    """At the edge of a KiB the shard's suffix decides; sampled at every 1/1000 unit, the value is the count."""
    if raised:
        world.raise_to(4, 0)
    empty = item_size_bytes(build_message(body="").to_item("c"))
    world.writer(sampling_distance_wcu=0.001).write(new_message("x" * (1024 - empty + extra)))
    assert world.reports.sent[-1].value == pytest.approx(expected, abs=0.001)


def test_dropped_reports_are_counted(world):
    """With Redis away reports are dropped, and an operator sees how many."""
    world.reports.take_dropped = lambda: 3
    world.writer().write(new_message())
    assert world.telemetry.counts["ReportsDropped"] == 3


class TestWhatOnlyRedisKnows:
    """A writer places by a generation only once the journal has shown it to this environment."""

    @pytest.fixture
    def world(self):
        world = World()
        world.registry.routes["c"] = route_of((7, 0))
        return world

    @staticmethod
    def write(world, count, *, pause_ms):
        writer = world.writer(ttl_seconds=0.0)
        for i in range(count):
            writer.write(new_message(str(i)))
            world.clock.now_ms += pause_ms
        return writer

    @staticmethod
    def places(world):
        return {partition_key for partition_key, _ in world.table.items}

    def test_what_the_journal_has_is_looked_up_once(self, world):
        """One look-up for a new generation, which is the lease as well; none for the messages after."""
        world.table.routes["c"] = JournalEntry(route_of((7, 0)))
        self.write(world, 50, pause_ms=100)
        assert world.table.calls.count("get c") == 1
        assert "c" not in self.places(world)

    def test_what_the_journal_does_not_show_yet_is_used_as_soon_as_it_does(self, world):
        """Without leases, reads are eventually consistent and lag: the next one, a moment later, shows it."""
        world.table.routes["c"] = JournalEntry(route_of((7, 0)))
        world.table.lagging["c"] = JournalEntry()
        writer = world.writer(lease_seconds=0)
        writer.write(new_message("early"))
        del world.table.lagging["c"]
        world.clock.now_ms += 250
        writer.write(new_message("late"))
        assert [key == "c" for key, _ in world.table.items] == [True, False]

    def test_inventions_are_looked_up_less_and_less_and_a_raise_among_them_is_found(self, world):
        """An hour of writes under a generation that was never raised: once Redis shows it, it is looked up."""
        writer = self.write(world, 3_600, pause_ms=1_000)
        assert world.table.calls.count("get c") < 75
        world.raise_to(4, world.clock.now_ms)
        world.table.items.clear()
        writer.write(new_message("after"))
        assert "c" not in self.places(world)

    def test_ever_new_inventions_are_looked_up_ten_times_a_second_at_most(self, world):
        """Not with each write, however many generations somebody writes to Redis."""
        writer = world.writer(ttl_seconds=0.0)
        for i in range(500):
            world.registry.routes["c"] = route_of((7, i))
            writer.write(new_message(str(i)))
            world.clock.now_ms += 10
        assert world.table.calls.count("get c") <= 51

    def test_a_journal_that_does_not_respond_costs_no_write(self, world):
        """The write goes where the confirmed route says; the journal is asked again, not in each write."""
        world.table.on_call = failing("get c", always=KEY_RANGE_THROTTLE)
        self.write(world, 100, pause_ms=10)
        assert self.places(world) == {"c"}
        assert world.table.calls.count("get c") == 10


SHARDS = 8

ACCOUNT_THROTTLE = ThrottledError(["TableWriteAccountLimitExceeded"])


def choices_of(identifier: str, shards: int) -> list[str]:
    """List the partition keys of a message's choices."""
    placements = choose_placements(route_of((shards, 0)), build_key("c", identifier), KEY_FORM)
    return [placement.partition_key for placement in placements]


class Raised(World):
    """A conversation with eight shards, some of which refuse writes."""

    def __init__(self, shards: int = SHARDS) -> None:
        super().__init__()
        self.raise_to(shards, 0)
        self.refusing: set[str] = set()
        self.identifier = message_id(self.clock.now_ms, 5)
        self.choices = choices_of(self.identifier, shards)
        self.table.on_call = self._refuse

    def _refuse(self, call: str) -> None:
        operation, key = call.split(" ")
        if operation == "put" and key in self.refusing:
            raise KEY_RANGE_THROTTLE

    @property
    def calls(self) -> list[str]:
        """What DynamoDB was asked, beside the journal: choices by number, reads of all of them as `look`."""
        names = {f"put {key}": f"put {index}" for index, key in enumerate(self.choices)}
        names[f"batch-get {','.join(self.choices)}"] = "look"
        return [names.get(call, call) for call in self.table.calls if call != "get c"]

    def stored_at(self) -> list[int]:
        return sorted(self.choices.index(key) for key, sort in self.table.items if sort == f"m#{self.identifier}")


class TestChoices:
    """Second and third choices: where a refused write goes."""

    @pytest.fixture
    def world(self):
        return Raised()

    @pytest.mark.parametrize("refusing", [0, 1, 2])
    def test_a_refused_write_goes_to_its_next_choice_at_once(self, world, refusing):
        """Without a wait, and without asking for a route; nothing is looked for under an id that was just made."""
        world.table.on_call = failing("put", *[KEY_RANGE_THROTTLE] * refusing)
        written = world.writer(sampling_distance_wcu=0.5).write(new_message())
        choices = choices_of(written.message.message_id, SHARDS)
        calls = [call for call in world.table.calls if call != "get c"]
        assert calls == [f"put {key}" for key in choices[: refusing + 1]]
        assert (world.clock.slept, world.registry.reads) == ([], 1)
        assert not any(report.is_throttled for report in world.reports.sent)
        counts = Counter(world.telemetry.counts)
        assert (counts["WritesThrottled"], counts["WritesRefusedEverywhere"]) == (refusing, 0)

    def test_only_when_all_choices_refused_a_write_waits(self, world):
        """Then it is reported as throttled, asks for the route, and begins anew at its first choice."""
        world.refusing = set(world.choices)
        world.clock.on_sleep = world.refusing.clear
        world.writer(sampling_distance_wcu=0.5).write(new_message(message_id=world.identifier))
        assert world.calls == ["put 0", "look", "put 1", "put 2", "put 0"]
        assert len(world.clock.slept) == 1
        assert world.registry.reads == 2
        assert [report.is_throttled for report in world.reports.sent] == [False, True]
        assert world.telemetry.counts["WritesRefusedEverywhere"] == 1

    @pytest.mark.parametrize("failure", [StoreUnavailableError("500"), ACCOUNT_THROTTLE])
    def test_what_is_no_refusal_of_the_key_is_repeated_where_it_was(self, world, failure):
        """The outcome is unknown, or another place would be refused as well."""
        world.table.on_call = failing("put", failure, failure)
        world.writer().write(new_message(message_id=world.identifier))
        assert world.calls == ["put 0"] * 3
        assert (len(world.clock.slept), world.registry.reads) == (2, 1)
        assert not any(report.is_throttled for report in world.reports.sent)

    def test_a_write_of_a_batch_avoids_a_shard_that_refused_a_moment_ago(self, world):
        """By the same environment, for a second: a batch is not repeated at other choices. Single writes begin anew."""
        writer, message = world.writer(), new_message(message_id=world.identifier)
        writer.writer.refused(world.choices[0])
        key = build_key("c", world.identifier)
        assert writer.writer.place(key, size_bytes=100).partition_key == world.choices[1]
        writer.write(message)
        assert world.calls == ["put 0"]
        world.clock.now_ms += 1_001
        assert writer.writer.place(key, size_bytes=100).partition_key == world.choices[0]

    @pytest.mark.parametrize("choice", [0, 1, 2])
    def test_a_repetition_is_found_while_the_first_choice_refuses(self, world, choice):
        """200, wherever among the choices it lies: stored, the response lost."""
        world.refusing = set(world.choices[:choice])
        first = world.writer().write(new_message(message_id=world.identifier))
        world.refusing = {world.choices[0]}
        again = world.writer().write(new_message(message_id=world.identifier))
        assert (again.is_replay, again.message) == (True, first.message)
        assert world.stored_at() == [choice]

    @pytest.mark.parametrize("refusing", [(), (0,), (0, 1)])
    def test_other_content_under_an_id_is_a_conflict_while_the_same_shards_refuse(self, world, refusing):
        """409 at the place where the first one lies, and at a later one since it is looked for first."""
        world.writer().write(new_message("one", message_id=world.identifier))
        world.refusing = {world.choices[index] for index in refusing}
        with pytest.raises(MessageConflictError):
            world.writer().write(new_message("two", message_id=world.identifier))
        assert world.stored_at() == [0]

    def test_of_two_contents_at_two_choices_readers_show_one(self, world):
        """Two clients with one id, the first of them refused at the first choice: both get 201, pages show the same."""
        world.refusing = {world.choices[0]}
        world.writer().write(new_message("one", message_id=world.identifier))
        world.refusing.clear()
        world.writer().write(new_message("two", message_id=world.identifier))
        assert world.stored_at() == [0, 1]
        assert world.reader().read_message("c", world.identifier).body == "two"

    def test_an_attempt_without_response_makes_the_writer_look_before_it_goes_elsewhere(self, world):
        """Also under an id of the server's own: stored, the response lost, then refused; found, not stored twice."""
        lose_next_response(world, then=lambda item: world.refusing.add(item["pk"]["S"]))
        assert not world.writer().write(new_message()).is_replay
        assert len([1 for _, sort in world.table.items if sort.startswith("m#")]) == 1

    def test_what_cannot_be_looked_for_is_not_put_elsewhere(self, world):
        """A 503 with the id, not a second copy."""
        refuse = world.table.on_call

        def refuse_reads_too(call):
            if call.startswith("batch-get"):
                raise ThrottledError
            refuse(call)

        world.table.on_call = refuse_reads_too
        world.refusing = {world.choices[0]}
        with pytest.raises(StoreUnavailableError) as caught:
            world.writer().write(new_message(message_id=world.identifier))
        assert caught.value.sort_key == build_sort_key(world.identifier)
        assert world.stored_at() == []

    @pytest.mark.parametrize("choice", [0, 1, 2])
    def test_a_point_read_asks_other_choices_only_when_the_first_has_nothing(self, world, choice):
        """One request for nearly all messages, with the journal in it; a second one without for the rest."""
        message = Message("c", world.identifier, "ann", "hello")
        world.store(message, world.choices[choice])
        assert world.reader().read_message("c", world.identifier, is_strong=True) == message
        first, others = f"batch-get c,{world.choices[0]}", f"batch-get {','.join(world.choices[1:])}"
        assert world.table.calls == ([first] if choice == 0 else [first, others])

    def test_a_message_is_not_found_after_all_choices_were_asked(self, world):
        """404 means at no choice of any generation."""
        world.raise_to(3, 0)
        with pytest.raises(MessageNotFoundError):
            world.reader().read_message("c", world.identifier, is_strong=True)
        asked = {key for call in world.table.calls for key in call.removeprefix("batch-get ").split(",")}
        assert asked == {"c", *choices_of(world.identifier, 3), *choices_of(world.identifier, SHARDS)}
