"""Partition keys of any table: forms, and which collections a table can have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.errors import InvalidCollectionError
from hotpartition.core.keys import KeyForm

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


@pytest.mark.parametrize("text", ["", "a#_1", "a#_0", "#_7", "x" * 2043, "\ud800"])
def test_other_collections_are_refused(text):
    """By the name that the caller knows them under."""
    with pytest.raises(InvalidCollectionError, match=r"^room: should be 1 to 2042 bytes .* '#_' and a number$"):
        KeyForm(label="room").check(text)


def test_the_default_form_is_a_storage_contract():
    """Other people's data lives under it."""
    assert KeyForm().shard_key("SENSOR#2026", 7) == "SENSOR#2026#_7"
