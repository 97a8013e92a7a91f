"""The keys of messages: what is allowed, and the storage contract."""

from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key, parse_sort_key
from hotpartition_messages.message_ids import MAX_MESSAGE_ID


def test_key_forms_are_a_storage_contract():
    """Stored data lives under these very texts."""
    assert KEY_FORM.shard_key("room:1", 12) == "room:1#12"
    assert build_sort_key("01ARZ3NDEKTSV4RRFFQ69G5FAV") == "m#01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert build_sort_key(MAX_MESSAGE_ID) < "r#"


def test_a_message_is_placed_by_its_id_and_lies_at_its_time():
    key = build_key("room", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert key == ("room", "m#01ARZ3NDEKTSV4RRFFQ69G5FAV", 1469922850259, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert parse_sort_key(key.sort_key) == key.hashed
