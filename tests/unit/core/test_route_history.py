"""The history of a route: a stored form that stays small, is read back, and never stands in anybody's way."""

from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.route import Generation
from hotpartition.core.route_history import BY_HAND, MAX_NAME_LENGTH, Cause, Raise, decode_raises, encode_raises

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
