"""Partition keys: the form in which a table's shard keys are stored.

The base key is the collection's name itself; shard keys have a separator and the shard's index behind it. A form is a
storage contract: data written under it stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hotpartition.core.errors import InvalidCollectionError

MAX_SHARD_COUNT = 1024
"""Largest N that can be stored: a garbled member must not make every reader ask a million keys."""
MAX_PARTITION_KEY_BYTES = 2048
"""DynamoDB's own limit."""


@dataclass(frozen=True)
class KeyForm:
    """How the partition keys of one table are built, and which collections it can have.

    `label` names the collection in refusals. `has_base` is False where nothing was ever stored at a base key: then no
    read asks it.
    """

    separator: str = "#_"
    label: str = "collection"
    has_base: bool = True
    suffixes: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Looked up once: building one would take a third of a placement's time.
        object.__setattr__(self, "suffixes", tuple([f"{self.separator}{i}" for i in range(MAX_SHARD_COUNT)]))

    @property
    def longest_suffix_bytes(self) -> int:
        """Bytes that a shard key is longer than its base key, at most."""
        return len(self.suffixes[-1].encode())

    def base_keys(self, collection: str) -> tuple[str, ...]:
        """List the base key, where items can lie there."""
        return (collection,) if self.has_base else ()

    def shard_key(self, collection: str, shard_index: int) -> str:
        """Build the partition key of one shard; indexes count from 0."""
        return collection + self.suffixes[shard_index]

    def parse(self, partition_key: str) -> tuple[str, int | None]:
        """Split a partition key into its collection and shard index; a base key has no index."""
        collection, separator, index = partition_key.rpartition(self.separator)
        if not (separator and _is_shard_index(index)):
            return partition_key, None
        return collection, int(index)

    def check(self, collection: str) -> str:
        """Return a collection's name, or refuse it.

        Raises:
            InvalidCollectionError: it is no text, empty, too long or no valid Unicode; or it ends as a shard key does:
                then it would *be* a shard of another collection.
        """
        most = MAX_PARTITION_KEY_BYTES - self.longest_suffix_bytes
        is_text = isinstance(collection, str)
        is_shard_key = is_text and self.separator in collection and self.parse(collection)[1] is not None
        if not is_text or is_shard_key or not 0 < _size_bytes(collection) <= most:
            rule = f"1 to {most} bytes of UTF-8 that do not end like a shard key, with {self.separator!r} and a number"
            raise InvalidCollectionError.of(self.label, f"should be {rule}")
        return collection


def _size_bytes(text: str) -> int:
    """Count bytes in UTF-8; 0 for a text that cannot be encoded."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def _is_shard_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_SHARD_COUNT)) and str(int(text)) == text
