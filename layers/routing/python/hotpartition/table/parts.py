"""The parts of one `ShardedTable`: what each call is passed to."""

from __future__ import annotations

from dataclasses import dataclass

from hotpartition.table.batches import Batches
from hotpartition.table.item_calls import ItemCalls
from hotpartition.table.page_calls import PageCalls


@dataclass(frozen=True, slots=True)
class Parts:
    """The calls of one table, by what they are about."""

    items: ItemCalls
    pages: PageCalls
    batches: Batches
    is_sharded: bool = True
