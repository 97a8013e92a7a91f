"""Moves the items of one collection from its shards to its base key, while they are read and written.

    mark the collection ─> note what lies on its shards ─> wait ─> move each item that is unchanged ─> wait ─> unmark

One transaction moves an item: it puts the copy and deletes the original, so a change meets one of them and never
brings back the other. A read in parts might meet neither: the base key's response before the move, the shard's after
it. So the mark (`folding` in the routing item) makes each read ask the base key last. Both waits are longer than any
call takes. So reads that began before the mark end before the first move, and so do writes that looked for an item
before it was there, and would create it on a shard; reads after the mark is gone begin after the last move.

Nothing is kept between runs. Items on shards are still to be moved, so a run that was killed is started again. The
mark names its run, and each transaction checks it: of two runs, the later one goes on.

Where items are deleted for good, each gets an attribute when it is noted (`hp_noted`: the run). Otherwise an item that
was deleted and created anew meanwhile would pass for the one that was noted.
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
from hotpartition.core.route import Generation
from hotpartition.dynamodb.calls import DynamoDBCalls, Response
from hotpartition.dynamodb.stored_route import FOLDING, read_entry
from hotpartition.dynamodb.table import NOTED, JournalPlace

CHUNK_ITEMS = 5_000
"""How many items are noted before they are moved: each chunk waits once."""
PAGE_ITEMS = 200
MAX_PASSES = 3
"""How often the shards are looked through: new items may come there as fast as they leave."""
CALL_BUDGET_MS = 60_000.0

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class FoldForm:
    """The properties of a table whose items are moved.

    Attributes:
        table_name: its name.
        partition_key: the name of that key attribute.
        sort_key: the name of that key attribute.
        keys: how partition keys are built.
        journal: where routing items lie; None: the table has no routing items, and all readers ask the base key last.
        changes: the attribute that counts an item's changes.
        tombstone: the attribute that a deleted item has, which stays; empty: items are deleted for good.
        dropped: attributes that only an item on a shard has.
        index_keys: attributes that may name the shard as the partition key does: hash keys of indexes.
    """

    table_name: str
    partition_key: str
    sort_key: str
    keys: KeyForm
    journal: JournalPlace | None
    changes: str
    tombstone: str = ""
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
        self, calls: DynamoDBCalls, form: FoldForm, clock: Clock, *, items_per_second: float, settle_seconds: float
    ) -> None:
        """Move nothing yet.

        At most `items_per_second` are noted, or moved. REQUIRES: `settle_seconds` is longer than any read or change of
        the table takes.
        """
        self._calls = calls
        self._form = form
        self._clock = clock
        self._pause_seconds = 1 / items_per_second
        self._settle_seconds = settle_seconds
        self._run = f"{clock.now_ms()}-{clock.random():.12f}"

    def fold(self, collection: str, *, shard_count: int | None = None, progress: Progress = lambda _: None) -> Folded:
        """Move a collection's items to its base key. Repeating it is safe, and goes on where it was interrupted.

        Args:
            collection: whose items.
            shard_count: how many shards may hold items, for a table without routing items.
            progress: called with the number of items moved.

        Raises:
            InvalidRequestError: it has no route, it is a counter, or another run has taken over.
            RetryLaterError: DynamoDB refused for a minute.
        """
        count = self._mark(collection) if self._form.journal is not None else shard_count
        if not count:
            raise InvalidRequestError.of("key", "should be one that has shards: this one has no route")
        moved = left = 0
        for _ in range(MAX_PASSES):
            found = self._find(collection, count)
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
        self._clock.sleep(self._settle_seconds)
        self._unmark(collection)
        return Folded(moved, left)

    def _mark(self, collection: str) -> int:
        """Have all reads ask the base key last; return how many shards there are."""
        values = {":run": {"S": self._run}}
        try:
            item = self._update_journal(collection, f"SET {FOLDING} = :run", "attribute_exists(generations)", values)
        except ConditionFailedError:
            return 0
        generations: frozenset[Generation] = read_entry(item).route.generations
        return max((generation.shard_count for generation in generations), default=0)

    def _unmark(self, collection: str) -> None:
        if self._form.journal is None:
            return
        try:
            self._update_journal(collection, f"REMOVE {FOLDING}", f"{FOLDING} = :run", {":run": {"S": self._run}})
        except ConditionFailedError:
            return  # another run goes on

    def _update_journal(self, collection: str, update: str, condition: str, values: Mapping[str, Any]) -> Item:
        place = self._form.journal
        assert place is not None  # noqa: S101  without one, there is nothing to mark
        request = {
            "TableName": place.table_name,
            "Key": place.key_of(collection),
            "UpdateExpression": update,
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "ReturnValues": "ALL_NEW",
        }
        attributes: Item = self._call("UpdateItem", request)["Attributes"]
        return attributes

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
        if form.tombstone:
            return _Noted(key, changes)
        guard = self._guard(key, changes)
        names = {**guard["ExpressionAttributeNames"], "#n": NOTED}
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
        """Move an item, if it is unchanged since it was noted; say whether that was done.

        Raises:
            InvalidRequestError: another run has taken over.
        """
        form = self._form
        self._clock.sleep(self._pause_seconds)
        original = self._get(noted.key)
        if original is None or self._changes_of(original) != noted.changes:
            return False
        base_key = {**noted.key, form.partition_key: {"S": collection}}
        there = self._get(base_key)
        delete = self._guard(noted.key, noted.changes)
        if not form.tombstone:
            delete["ConditionExpression"] += " AND #n = :run"
            delete["ExpressionAttributeNames"]["#n"] = NOTED
            delete.setdefault("ExpressionAttributeValues", {})[":run"] = {"S": self._run}
        actions: list[Any] = [{"Delete": delete}]
        if there is not None and self._rank(there) >= self._rank(original):
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
        if form.journal is not None:
            check = {
                "TableName": form.journal.table_name,
                "Key": form.journal.key_of(collection),
                "ConditionExpression": f"{FOLDING} = :run",
                "ExpressionAttributeValues": {":run": {"S": self._run}},
            }
            actions.append({"ConditionCheck": check})
        try:
            self._call("TransactWriteItems", {"TransactItems": actions})
        except ConditionFailedError:
            self._check_mark(collection)
            return False
        return True

    def _check_mark(self, collection: str) -> None:
        place = self._form.journal
        if place is None:
            return
        operation, request = place.build_get(collection, is_strong=True)
        item = self._call(operation, request).get("Item", {})
        if item.get(FOLDING) != {"S": self._run}:
            raise InvalidRequestError.of("key", "is being folded by another run, which goes on")

    def _at_base(self, item: Item, collection: str) -> Item:
        """Build an item as it lies at the base key; indexes whose keys name its shard find it there as well."""
        form = self._form
        _, shard = form.keys.parse(item[form.partition_key]["S"])
        moved = {name: value for name, value in item.items() if name not in {*form.dropped, NOTED}}
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

    def _rank(self, item: Item) -> tuple[bool, int]:
        """Rank a copy as readers do: a deleted one first, else the one that was changed most."""
        return bool(self._form.tombstone) and self._form.tombstone in item, self._changes_of(item)

    def _changes_of(self, item: Item) -> int:
        return int(item.get(self._form.changes, {}).get("N", 0))

    def _key_of(self, item: Item) -> dict[str, AttributeValue]:
        return {name: item[name] for name in (self._form.partition_key, self._form.sort_key)}

    def _get(self, key: Mapping[str, AttributeValue]) -> Item | None:
        request = {"TableName": self._form.table_name, "Key": key, "ConsistentRead": True}
        item: Item | None = self._call("GetItem", request).get("Item")
        return item

    def _call(self, operation: str, request: Mapping[str, Any]) -> Response:
        return try_for(self._clock, CALL_BUDGET_MS, lambda: self._calls.call(operation, request))
