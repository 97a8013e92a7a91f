"""Placement: keys of any table, generations, and the history of a route, with their stored forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.errors import InvalidCollectionError, MalformedGenerationError
from hotpartition.core.keys import MAX_SHARD_COUNT, KeyForm
from hotpartition.core.route import (
    MAX_CHOICES,
    Generation,
    Route,
    candidate_keys,
    choose_placement,
    choose_placements,
    choose_shards,
    stable_hash,
)
from hotpartition.core.route_history import BY_HAND, MAX_NAME_LENGTH, Cause, Raise, decode_raises, encode_raises
from hotpartition_messages.keys import KEY_FORM, build_key
from hotpartition_messages.message_ids import message_time_ms
from support.builders import message_id, route_of

generations = st.builds(Generation, since_ms=st.integers(0, 50), shard_count=st.integers(1, 12))

routes = st.frozensets(generations, max_size=6).map(Route)

times = st.integers(0, 60)

ids = st.builds(message_id, times, st.integers(0, (1 << 80) - 1))


def test_generations_are_a_storage_contract():
    """Stored journals hold these very texts."""
    generation = Generation(since_ms=1_700_000_000_000, shard_count=8)
    assert generation.encode() == "8@1700000000000"
    assert Generation.decode("8@1700000000000") == generation


@given(routes)
def test_a_stored_route_is_read_back(route):
    assert Route.decode(route.encode()) == route


@pytest.mark.parametrize("text", ["", "8", "8@", "@1", "0@1", "-1@1", "8@1.5", "8@01", "1e3@1", "8@1 ", "८@1"])
def test_a_malformed_generation_is_refused(text):
    """A reader must not go on without a generation it cannot read."""
    with pytest.raises(MalformedGenerationError, match="no generation"):
        Generation.decode(text)


GOLDEN_HASHES = {
    "00000000000000000000000000": 10648086316876872867,
    "01ARZ3NDEKTSV4RRFFQ69G5FAV": 3767538556104188261,
    "7ZZZZZZZZZZZZZZZZZZZZZZZZZ": 13556432816408783364,
}


def test_the_hash_is_a_storage_contract():
    """Placement is pinned for ever: other values would strand what is stored."""
    assert {text: stable_hash(text) for text in GOLDEN_HASHES} == GOLDEN_HASHES


GOLDEN_CHOICES = {
    1: (0,),
    2: (1, 0),
    3: (2, 0, 1),
    4: (1, 0, 3),
    8: (5, 1, 2),
    16: (5, 11, 6),
    128: (101, 75, 19),
    1024: (357, 897, 566),
}


def test_choices_are_a_storage_contract():
    """All choices of one message, under several shard counts."""
    assert {n: choose_shards("01ARZ3NDEKTSV4RRFFQ69G5FAV", n) for n in GOLDEN_CHOICES} == GOLDEN_CHOICES


@given(st.text(max_size=40), st.integers(1, MAX_SHARD_COUNT), st.integers(1, MAX_CHOICES))
def test_choices_are_distinct_shards(value, shard_count, choices):
    """As many as there are shards, three at most; fewer that are asked for are the first ones."""
    shards = choose_shards(value, shard_count)
    assert len(set(shards)) == len(shards) == min(MAX_CHOICES, shard_count)
    assert all(0 <= shard < shard_count for shard in shards)
    assert choose_shards(value, shard_count, choices=choices) == shards[:choices]


@pytest.mark.parametrize("identifier", [message_id(time_ms, time_ms << 7) for time_ms in (0, 17, 1_700_000_000_000)])
def test_the_first_choice_is_where_messages_always_were(identifier):
    """What was stored before there were other choices keeps its place, under each N that a route can have."""
    for shard_count in range(1, MAX_SHARD_COUNT + 1):
        assert choose_shards(identifier, shard_count)[0] == stable_hash(identifier) % shard_count


@given(routes, ids)
def test_the_first_of_all_placements_is_the_placement(route, identifier):
    """One of several, or on the base key the only one."""
    placements = choose_placements(route, build_key("c", identifier), KEY_FORM)
    shard_count = route.shard_count_at(message_time_ms(identifier))
    assert placements[0] == choose_placement(route, build_key("c", identifier), KEY_FORM)
    assert {placed.shard_count for placed in placements} == {shard_count}
    assert len(placements) == min(MAX_CHOICES, max(shard_count, 1))


def test_point_reads_look_under_every_generation():
    """A dominated generation is one that a stale writer may have known alone. First choices come first."""
    identifier = message_id(5000, 77)
    route = route_of((8, 1000), (3, 2000), (16, 9000))
    firsts, seconds, thirds = zip(choose_shards(identifier, 3), choose_shards(identifier, 8), strict=True)
    keys = [f"c#{shard}" for shard in (*firsts, *seconds, *thirds)]
    assert candidate_keys(route, build_key("c", identifier), KEY_FORM) == tuple(dict.fromkeys(("c", *keys)))
    assert candidate_keys(route, build_key("c", identifier), KEY_FORM, choices=1) == tuple(
        dict.fromkeys(("c", *keys[:2]))
    )


separators = st.sampled_from(["#", "#_", "-shard-"])

texts = st.text(min_size=1, max_size=40)


@given(texts, separators, st.integers(0, 1023))
def test_a_shard_key_names_its_collection_and_index(collection, separator, index):
    """Parsing undoes building, whatever the collection is called."""
    form = KeyForm(separator)
    assert form.parse(form.shard_key(collection, index)) == (collection, index)


@given(texts, separators)
def test_what_is_allowed_is_never_taken_for_a_shard(collection, separator):
    """Or else it is refused: it would be a shard of another collection."""
    form = KeyForm(separator)
    try:
        form.check(collection)
    except InvalidCollectionError:
        assert form.parse(collection)[1] is not None or not collection.isprintable()
    else:
        assert form.parse(collection) == (collection, None)


@pytest.mark.parametrize("text", ["a#_", "a#_01", "a#_1024x", "a#_-1", "a#_1_", "#_", "a#_x", "a#_1048576"])
def test_what_only_looks_like_a_shard_key_is_a_collection(text):
    """The end must be the separator and a number as we write it."""
    assert KeyForm().check(text) == text


@pytest.mark.parametrize("text", ["", "a#_1", "a#_0", "#_7", "x" * 2043, "\ud800", 7])
def test_other_collections_are_refused(text):
    """By the name that the caller knows them under."""
    with pytest.raises(InvalidCollectionError, match=r"^room: should be 1 to 2042 bytes .* '#_' and a number$"):
        KeyForm(label="room").check(text)


def test_the_default_form_is_a_storage_contract():
    """Other people's data lives under it."""
    assert KeyForm().shard_key("SENSOR#2026", 7) == "SENSOR#2026#_7"


EIGHT = Generation(since_ms=1_700_000_000_123, shard_count=8)


def test_the_stored_form_is_a_contract():
    """Pinned: other versions and people read it."""
    raised = Raise(EIGHT, 1_700_000_001_999, Cause("raised", rate_wcu_per_second=4012))
    assert raised.encode() == "8@1700000000123 1700000001 raised rate=4012"
    by_hand = Raise(EIGHT, 1_700_000_001_999, Cause(BY_HAND, by="arn:aws:iam::1:user/ann"))
    assert by_hand.encode() == "8@1700000000123 1700000001 by-hand by=arn:aws:iam::1:user/ann"


causes = st.builds(
    Cause,
    st.from_regex(r"[a-z-]{1,30}", fullmatch=True),
    st.none() | st.integers(0, 999_999_999_999),
    st.none() | st.from_regex(rf"[A-Za-z0-9_.:@/+=,-]{{1,{MAX_NAME_LENGTH}}}", fullmatch=True),
)

raises = st.builds(
    Raise,
    st.builds(Generation, st.integers(0, 10**14), st.integers(1, 1024)),
    st.integers(0, 253_402_300_799).map(lambda seconds: seconds * 1000),
    causes,
)


@given(raises)
def test_what_is_stored_is_read_back(record):
    """To the second, with all of its parts."""
    assert Raise.decode(record.encode()) == record


@given(st.text(max_size=60))
def test_anything_else_is_left_out(member):
    """Whatever stands in the set, nobody fails for it."""
    known = decode_raises([member, "8@5 7 raised"])
    assert Raise(Generation(5, 8), 7_000, Cause("raised")) in known
    assert len(known) <= 2


@given(st.text(max_size=60))
def test_any_reason_is_a_cause(text):
    """A reason of another form is shown as it is."""
    assert Cause.decode(text).reason in text


def test_one_raise_adds_one_short_member_and_its_repetition_none():
    """The set rides on every newest page, so it is a matter of bytes; a repeated attempt is within the second."""
    first = encode_raises([EIGHT], cause=Cause("raised", 4012), now_ms=1_700_000_001_100)
    again = encode_raises([EIGHT, EIGHT], cause=Cause("raised", 4012), now_ms=1_700_000_001_900)
    assert first == again
    assert [len(member) <= 45 for member in first] == [True]


def test_decisions_are_listed_in_their_order():
    """As they happened, whatever order the set has."""
    members = ["16@9 30 raised", "8@5 10 raised", "4@7 20 by-hand by=ann"]
    assert [r.generation.shard_count for r in decode_raises(members)] == [8, 4, 16]
