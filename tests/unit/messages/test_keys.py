"""The keys of messages: what is allowed, and the storage contract."""

from hypothesis import given
from hypothesis import strategies as st

from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key, parse_conversation_id, parse_sort_key
from hotpartition_messages.message_ids import MAX_MESSAGE_ID

conversation_ids = st.from_regex(r"[A-Za-z0-9_.:@-]{1,256}", fullmatch=True).filter(lambda c: c not in {".", ".."})


def test_key_forms_are_a_storage_contract():
    """Stored data lives under these very texts."""
    assert KEY_FORM.shard_key("room:1", 12) == "room:1#12"
    assert build_sort_key("01ARZ3NDEKTSV4RRFFQ69G5FAV") == "m#01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert build_sort_key(MAX_MESSAGE_ID) < "r#"


@given(conversation_ids, st.integers(0, 1023))
def test_a_shard_key_names_its_conversation_and_index(conversation_id, index):
    """Parsing undoes building, and a base key is never taken for a shard."""
    assert parse_conversation_id(conversation_id) == conversation_id
    assert KEY_FORM.parse(KEY_FORM.shard_key(conversation_id, index)) == (conversation_id, index)
    assert KEY_FORM.parse(conversation_id) == (conversation_id, None)


def test_a_message_is_placed_by_its_id_and_lies_at_its_time():
    key = build_key("room", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert key == ("room", "m#01ARZ3NDEKTSV4RRFFQ69G5FAV", 1469922850259, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert parse_sort_key(key.sort_key) == key.hashed
