"""Placement: keys of any table, members of a route, and its history, with their stored forms.

Hashes, choices, routes and the keys that are asked are pinned for all languages in docs/format-vectors.json.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.errors import InvalidCollectionError, MalformedGenerationError
from hotpartition.core.keys import MAX_SHARD_COUNT, KeyForm
from hotpartition.core.route import MAX_CHOICES, Generation, Route, choose_shards, stable_hash
from hotpartition.core.route_history import BY_HAND, MAX_NAME_LENGTH, Cause, Raise, decode_raises, encode_raises


@pytest.mark.parametrize(
    "text",
    [
        *("", "8", "@1", "0@1", "-1@1", "1e3@1", "8@1.5", "8@01", "8@1 ", "८@1"),
        *("closing", "closed@", "closed@-1", "closed@01", "closed@1 ", "Closed@1", "close@1"),
    ],
)
def test_a_malformed_member_is_refused(text):
    """A reader must not go on without a generation or close that it cannot read."""
    with pytest.raises(MalformedGenerationError):
        Route.decode([text])


@given(st.text(max_size=40), st.integers(1, MAX_SHARD_COUNT), st.integers(1, MAX_CHOICES))
def test_choices_are_distinct_shards(value, shard_count, choices):
    """As many as there are shards, three at most; fewer that are asked for are the first ones.

    What was stored before there were other choices keeps its place.
    """
    shards = choose_shards(value, shard_count)
    assert shards[0] == stable_hash(value) % shard_count
    assert len(set(shards)) == len(shards) == min(MAX_CHOICES, shard_count)
    assert all(0 <= shard < shard_count for shard in shards)
    assert choose_shards(value, shard_count, choices=choices) == shards[:choices]


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
