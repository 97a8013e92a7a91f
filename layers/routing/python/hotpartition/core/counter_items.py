"""How a counter is spread: the items of its shards, and how an addition with a token counts once. Pure.

Each shard of a counter has one item for additions without a token, and `CELLS` items, its cells, for those with one:
two transactions on one item at the same time exclude each other, where two plain additions do not. All forms here are
a storage contract, pinned by golden values: a repetition is only recognised while it is built as its first attempt was.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import NamedTuple

from hotpartition.core.capacity import number_size_bytes, text_size_bytes

CELLS = 16
"""Items of a shard that take additions with a token. In a power of two, each token has the same odds."""
AMOUNT = "counted"
"""The attribute with the sum that an item has counted."""

_LARGEST_AMOUNT_BYTES = number_size_bytes("9" * 38) + 1


class Cell(NamedTuple):
    """The sum in one item of a counter."""

    sort_key: str
    amount: int

    @property
    def rank(self) -> int:
        """Implement `MergeItem.rank`."""
        return self.amount


class Addition(NamedTuple):
    """An addition that counts once: DynamoDB's own token for it, the cell that it goes to, and how much it adds.

    The cell and the amount determine the request, so every process builds the same one.
    """

    request_token: str
    sort_key: str
    amount: int


def plain_sort_key(name: str) -> str:
    """Build the sort key of a shard's item for additions without a token."""
    return f"{name}#"


def cell_sort_key(name: str, cell: int) -> str:
    """Build the sort key of a cell; cells count from 0."""
    return f"{name}#{cell:02}"


def list_sort_keys(name: str) -> frozenset[str]:
    """List the sort keys of a counter's items; those of another, as `likes#07#`, may lie between them."""
    return frozenset({plain_sort_key(name), *(cell_sort_key(name, cell) for cell in range(CELLS))})


def build_addition(table_name: str, name: str, collection: str, token: str, amount: int) -> Addition:
    """Build the addition that a client's token stands for: another amount gives the same token and cell."""
    text = json.dumps([table_name, name, collection, token])
    request_token = blake2b(text.encode(), digest_size=16, person=b"addition").hexdigest()
    return Addition(request_token, cell_sort_key(name, int(request_token[-2:], 16) % CELLS), amount)


def counter_size_bytes(partition_key_name: str, sort_key_name: str, collection: str, name: str) -> int:
    """Compute the size of a counter's item at its base key, at most."""
    names = text_size_bytes(partition_key_name) + text_size_bytes(sort_key_name) + len(AMOUNT)
    keys = text_size_bytes(collection) + text_size_bytes(cell_sort_key(name, CELLS - 1))
    return names + keys + _LARGEST_AMOUNT_BYTES
