"""The parts of one `ShardedTable`: what each call is passed to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hotpartition.table.batches import Batches
from hotpartition.table.cached_reads import CachedReads
from hotpartition.table.item_calls import ItemCalls
from hotpartition.table.page_calls import PageCalls


@dataclass(frozen=True, slots=True)
class Parts:
    """The calls of one table, by what they are about."""

    items: ItemCalls
    pages: PageCalls
    batches: Batches
    is_sharded: bool = True
    cached: CachedReads | None = None

    def change(self, method: str, request: Any) -> Any:
        """Carry out `put_item`, `update_item` or `delete_item`."""
        with self.changing([request.get("Item") or request.get("Key")]):
            return self.items.change(method, request)

    def batch_write_item(self, **request: Any) -> Any:
        """Write one batch, as the client's `batch_write_item`: boto3's `BatchWriter` takes this for its client."""
        (writes,) = request["RequestItems"].values()
        with self.changing([item for _, item in named_in(writes)]):
            return self.batches.batch_write_item(**request)

    def changing(self, named: Iterable[Any]) -> AbstractContextManager[None]:
        """Drop what the process has of items, given by themselves or their keys, around a change of them."""
        if self.cached is None:
            return nullcontext()
        subjects = []
        for item in named:
            try:
                subjects.append(self.items.subject_of(item))
            except (KeyError, TypeError):
                continue  # no item has such a key
        return self.cached.changing(subjects)


def named_in(actions: Iterable[Any]) -> list[tuple[object, Any]]:
    """List what actions of a batch or a transaction change: the table, if they name it, and the item or its key."""
    bodies = [body for action in actions if isinstance(action, Mapping) for body in action.values()]
    named = [body for body in bodies if isinstance(body, Mapping)]
    return [(body.get("TableName"), body.get("Item") or body.get("Key")) for body in named]
