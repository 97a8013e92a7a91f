"""Moves the items of one collection from its shards to its base key, while they are read and written: the way out.

    note what lies on the shards ─> wait ─> move each item that is unchanged

REQUIRES: every reader and writer of the table runs `fixed(0, readable=N)`: it writes new items to the base key, reads
all shards, and asks the base key last. One transaction moves an item: it puts the copy and deletes the original, so a
change meets one of them and never brings back the other. A read in parts might meet neither: the base key's response
before the move, the shard's after it; so the base key is asked last. The wait is longer than any call takes, so that
writes end before the first move that looked for an item before it was there.

Nothing is kept between runs. Items on shards are still to be moved, so a run that was killed is started again. Each
item gets an attribute when it is noted: by which run. Otherwise an item that was deleted and created anew meanwhile
would pass for the one that was noted. Of two runs, the later one moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from hotpartition.core.backoff import Clock, try_for
from hotpartition.core.capacity import AttributeValue, Item
from hotpartition.core.counter_items import AMOUNT
from hotpartition.core.errors import ConditionFailedError, InvalidRequestError
from hotpartition.core.keys import KeyForm

CHUNK_ITEMS = 5_000
"""How many items are noted before they are moved: each chunk waits once."""
PAGE_ITEMS = 200
MAX_PASSES = 3
"""How often the shards are looked through: new items may come there as fast as they leave."""
CALL_BUDGET_MS = 60_000.0

Progress = Callable[[int], None]
Call = Callable[[str, Mapping[str, Any]], Any]
"""Sends one request to DynamoDB, as `DynamoDBCalls.call`."""


@dataclass(frozen=True, slots=True)
class FoldForm:
    """The properties of a table whose items are moved.

    Attributes:
        table_name: its name.
        partition_key: the name of that key attribute.
        sort_key: the name of that key attribute.
        keys: how partition keys are built.
        changes: the attribute that counts an item's changes.
        noted: the attribute of an item that is about to be moved: by which run.
        dropped: attributes that only an item on a shard has.
        index_keys: attributes that may name the shard as the partition key does: hash keys of indexes.
    """

    table_name: str
    partition_key: str
    sort_key: str
    keys: KeyForm
    changes: str
    noted: str
    dropped: tuple[str, ...] = ()
    index_keys: tuple[str, ...] = ()


class Folded(NamedTuple):
    """How many items were moved, and how many of the last look-through are still on shards."""

    moved: int
    left: int


class _Noted(NamedTuple):
    """An item on a shard: its key, and its number of changes."""

    key: Mapping[str, AttributeValue]
    changes: int


class Folder:
    """Moves items."""

    def __init__(
        self, call: Call, form: FoldForm, clock: Clock, *, items_per_second: float, settle_seconds: float
    ) -> None:
        """Move nothing yet.

        At most `items_per_second` are noted, or moved. REQUIRES: `settle_seconds` is longer than any read or change of
        the table takes.
        """
        self._send = call
        self._form = form
        self._clock = clock
        self._pause_seconds = 1 / items_per_second
        self._settle_seconds = settle_seconds
        self._run = f"{clock.now_ms()}-{clock.random():.12f}"

    def fold(self, collection: str, *, shard_count: int, progress: Progress = lambda _: None) -> Folded:
        """Move a collection's items to its base key. Repeating it is safe, and goes on where it was interrupted.

        Args:
            collection: whose items.
            shard_count: how many shards may hold items.
            progress: called with the number of items moved.

        Raises:
            InvalidRequestError: it is a counter.
            RetryLaterError: DynamoDB refused for a minute.
        """
        moved = left = 0
        for _ in range(MAX_PASSES):
            found = self._find(collection, shard_count)
            pass_found = pass_moved = 0
            while chunk := list(islice(found, CHUNK_ITEMS)):
                noted = [entry for item in chunk if (entry := self._note(item)) is not None]
                self._clock.sleep(self._settle_seconds)
                for entry in noted:
                    pass_moved += self._move(collection, entry)
                    progress(moved + pass_moved)
                pass_found += len(chunk)
            moved, left = moved + pass_moved, pass_found - pass_moved
            if not pass_found:
                break
        return Folded(moved, left)

    def _find(self, collection: str, shard_count: int) -> Iterator[Item]:
        """List the items on the shards: of each its keys, and how often it was changed."""
        form = self._form
        names = {"#p": form.partition_key, "#s": form.sort_key, "#c": form.changes, "#a": AMOUNT}
        for index in range(shard_count):
            request: dict[str, Any] = {
                "TableName": form.table_name,
                "KeyConditionExpression": "#p = :p",
                "ProjectionExpression": "#p, #s, #c, #a",
                "ExpressionAttributeNames": names,
                "ExpressionAttributeValues": {":p": {"S": form.keys.shard_key(collection, index)}},
                "Limit": PAGE_ITEMS,
                "ConsistentRead": True,
            }
            while True:
                response = self._call("Query", request)
                yield from response["Items"]
                if not (start := response.get("LastEvaluatedKey")):
                    break
                request["ExclusiveStartKey"] = start

    def _note(self, item: Item) -> _Noted | None:
        """Note an item; None: it has changed since it was found."""
        form = self._form
        if AMOUNT in item and item[form.sort_key].get("S", "").startswith("c#"):
            raise InvalidRequestError.of("key", "is a counter: what its shards counted is summed, and never moved")
        key, changes = self._key_of(item), self._changes_of(item)
        guard = self._guard(key, changes)
        names = {**guard["ExpressionAttributeNames"], "#n": form.noted}
        values = {**guard.get("ExpressionAttributeValues", {}), ":run": {"S": self._run}}
        note = {
            "UpdateExpression": "SET #n = :run",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        self._clock.sleep(self._pause_seconds)
        try:
            self._call("UpdateItem", {**guard, **note})
        except ConditionFailedError:
            return None
        return _Noted(key, changes)

    def _move(self, collection: str, noted: _Noted) -> bool:
        """Move an item, if it is unchanged since it was noted; say whether that was done."""
        form = self._form
        self._clock.sleep(self._pause_seconds)
        original = self._get(noted.key)
        if original is None or self._changes_of(original) != noted.changes:
            return False
        base_key = {**noted.key, form.partition_key: {"S": collection}}
        there = self._get(base_key)
        delete = self._guard(noted.key, noted.changes)
        delete["ConditionExpression"] += " AND #n = :run"
        delete["ExpressionAttributeNames"]["#n"] = form.noted
        delete.setdefault("ExpressionAttributeValues", {})[":run"] = {"S": self._run}
        actions: list[Any] = [{"Delete": delete}]
        if there is not None and self._changes_of(there) >= noted.changes:
            actions.append({"ConditionCheck": self._guard(base_key, self._changes_of(there))})
        else:
            guard = {
                "ConditionExpression": "attribute_not_exists(#p)",
                "ExpressionAttributeNames": {"#p": form.partition_key},
            }
            if there is not None:
                guard = self._guard(base_key, self._changes_of(there))
                del guard["Key"]
            moved = self._at_base(original, collection)
            actions.append({"Put": {**guard, "TableName": form.table_name, "Item": moved}})
        try:
            self._call("TransactWriteItems", {"TransactItems": actions})
        except ConditionFailedError:
            return False
        return True

    def _at_base(self, item: Item, collection: str) -> Item:
        """Build an item as it lies at the base key; indexes whose keys name its shard find it there as well."""
        form = self._form
        _, shard = form.keys.parse(item[form.partition_key]["S"])
        moved = {name: value for name, value in item.items() if name not in {*form.dropped, form.noted}}
        moved[form.partition_key] = {"S": collection}
        for name in form.index_keys:
            base, index = form.keys.parse(item.get(name, {}).get("S", ""))
            if index is not None and index == shard and base.startswith(f"{collection}#"):
                moved[name] = {"S": base}
        return moved

    def _guard(self, key: Mapping[str, AttributeValue], changes: int) -> dict[str, Any]:
        """Build the condition that an item is there, and was changed `changes` times."""
        form = self._form
        guard: dict[str, Any] = {"TableName": form.table_name, "Key": key}
        if changes:
            condition, names = "#c = :c", {"#c": form.changes}
            guard["ExpressionAttributeValues"] = {":c": {"N": str(changes)}}
        else:
            condition = "attribute_exists(#p) AND attribute_not_exists(#c)"
            names = {"#p": form.partition_key, "#c": form.changes}
        return {**guard, "ConditionExpression": condition, "ExpressionAttributeNames": names}

    def _changes_of(self, item: Item) -> int:
        return int(item.get(self._form.changes, {}).get("N", 0))

    def _key_of(self, item: Item) -> dict[str, AttributeValue]:
        return {name: item[name] for name in (self._form.partition_key, self._form.sort_key)}

    def _get(self, key: Mapping[str, AttributeValue]) -> Item | None:
        request = {"TableName": self._form.table_name, "Key": key, "ConsistentRead": True}
        item: Item | None = self._call("GetItem", request).get("Item")
        return item

    def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        return try_for(self._clock, CALL_BUDGET_MS, lambda: self._send(operation, request))
