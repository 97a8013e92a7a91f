"""Second and third choices: where a refused write goes, and what 200, 409 and 404 promise about them."""

from collections import Counter

import pytest

from hotpartition.core.errors import StoreUnavailableError, ThrottledError
from hotpartition.core.route import choose_placements
from hotpartition_messages import Message
from hotpartition_messages.errors import MessageConflictError, MessageNotFoundError
from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key
from support.builders import World, message_id, new_message, route_of
from support.fakes import KEY_RANGE_THROTTLE

from .conftest import failing, lose_next_response

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


@pytest.fixture
def world():
    return Raised()


@pytest.mark.parametrize("refusing", [0, 1, 2])
def test_a_refused_write_goes_to_its_next_choice_at_once(world, refusing):
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


def test_only_when_all_choices_refused_a_write_waits(world):
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
def test_what_is_no_refusal_of_the_key_is_repeated_where_it_was(world, failure):
    """The outcome is unknown, or another place would be refused as well."""
    world.table.on_call = failing("put", failure, failure)
    world.writer().write(new_message(message_id=world.identifier))
    assert world.calls == ["put 0"] * 3
    assert (len(world.clock.slept), world.registry.reads) == (2, 1)
    assert not any(report.is_throttled for report in world.reports.sent)


def test_a_write_of_a_batch_avoids_a_shard_that_refused_a_moment_ago(world):
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
def test_a_repetition_is_found_while_the_first_choice_refuses(world, choice):
    """200, wherever among the choices it lies: stored, the response lost."""
    world.refusing = set(world.choices[:choice])
    first = world.writer().write(new_message(message_id=world.identifier))
    world.refusing = {world.choices[0]}
    again = world.writer().write(new_message(message_id=world.identifier))
    assert (again.is_replay, again.message) == (True, first.message)
    assert world.stored_at() == [choice]


@pytest.mark.parametrize("refusing", [(), (0,), (0, 1)])
def test_other_content_under_an_id_is_a_conflict_while_the_same_shards_refuse(world, refusing):
    """409 at the place where the first one lies, and at a later one since it is looked for first."""
    world.writer().write(new_message("one", message_id=world.identifier))
    world.refusing = {world.choices[index] for index in refusing}
    with pytest.raises(MessageConflictError):
        world.writer().write(new_message("two", message_id=world.identifier))
    assert world.stored_at() == [0]


def test_of_two_contents_at_two_choices_readers_show_one(world):
    """Two clients with one id, the first of them refused at the first choice: both get 201, all pages show the same."""
    world.refusing = {world.choices[0]}
    world.writer().write(new_message("one", message_id=world.identifier))
    world.refusing.clear()
    world.writer().write(new_message("two", message_id=world.identifier))
    assert world.stored_at() == [0, 1]
    assert world.reader().read_message("c", world.identifier).body == "two"


def test_an_attempt_without_response_makes_the_writer_look_before_it_goes_elsewhere(world):
    """Also under an id of the server's own: stored, the response lost, then refused; found, not stored twice."""
    lose_next_response(world, then=lambda item: world.refusing.add(item["pk"]["S"]))
    assert not world.writer().write(new_message()).is_replay
    assert len([1 for _, sort in world.table.items if sort.startswith("m#")]) == 1


def test_what_cannot_be_looked_for_is_not_put_elsewhere(world):
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
def test_a_point_read_asks_other_choices_only_when_the_first_has_nothing(world, choice):
    """One request for nearly all messages, with the journal in it; a second one without for the rest."""
    message = Message("c", world.identifier, "ann", "hello")
    world.store(message, world.choices[choice])
    assert world.reader().read_message("c", world.identifier, is_strong=True) == message
    first, others = f"batch-get c,{world.choices[0]}", f"batch-get {','.join(world.choices[1:])}"
    assert world.table.calls == ([first] if choice == 0 else [first, others])


def test_a_message_is_not_found_after_all_choices_were_asked(world):
    """404 means at no choice of any generation."""
    world.raise_to(3, 0)
    with pytest.raises(MessageNotFoundError):
        world.reader().read_message("c", world.identifier, is_strong=True)
    asked = {key for call in world.table.calls for key in call.removeprefix("batch-get ").split(",")}
    assert asked == {"c", *choices_of(world.identifier, 3), *choices_of(world.identifier, SHARDS)}
