"""The calls about one item: put, update, delete and get. An item is created once, and never moves.

    only one place can hold it ─────────────────────────> change or create it there, as boto3 alone would
    locate (strongly, everywhere it can be) ── found ──> change it there, on condition that it still exists
                                            └─ nothing ─> create it where the route says, if it is not there by then

If one of these conditions fails because of a faster call, this starts anew. `hp_changes` counts an item's changes.
Should there be two copies, the one that was changed more often is the item; a change removes the other one first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from hotpartition.core.backoff import try_for
from hotpartition.core.capacity import write_units
from hotpartition.core.errors import InvalidRequestError, ThrottledError
from hotpartition.core.ports import JournalEntry
from hotpartition.dynamodb.item_store import BATCH_GET_KEYS
from hotpartition.dynamodb.python_values import Attributes, load, with_placeholders, write_conditions
from hotpartition.engine.changing import RaceLostError, at_most, change_located
from hotpartition.engine.gatherer import Gatherer
from hotpartition.table.cached_reads import subject_of
from hotpartition.table.expressions import (
    ADD,
    REMOVE,
    SET,
    SET_ONLY_NEW,
    add_clause,
    compares,
    find_update,
    guard,
    has_texts,
    names_in,
    only_condition,
    project_also,
    refuse_parameters,
)
from hotpartition.table.requests import Requests, as_boto3_raises, as_engine_raises, without
from hotpartition.table.schema import CHANGES, Place, is_text_of
from hotpartition.table.sharding import Sharding, Target
from hotpartition.table.table_store import StoredItem, TableStore, attributes_of_ours, locate, open_locator

CONDITION_FAILED = "ConditionalCheckFailedException"
MAX_RACES = 20
"""How often a change begins anew because the item came or went meanwhile, before it fails."""
ITEMS_AT_ONCE = BATCH_GET_KEYS // 2
"""How many items one request of `get_items` looks for, where each can be at its base key and on one shard."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an item, as its owner asked for it: `operation` is DynamoDB's name for it."""

    operation: str
    target: Target
    key: Attributes
    """The item's key, the owner's."""
    request: Attributes
    """The parameters, without the key or the item."""
    item: Attributes | None = None
    """The new item of a put."""

    @property
    def is_conditional(self) -> bool:
        """Say whether the owner gave a condition."""
        return bool(self.request.get("ConditionExpression"))


class Destination(NamedTuple):
    """Where a change is sent, on condition that the item exists there, or does not.

    `exists` None: no other place can hold the item, so whether it is there need not be known. `marks` are the added
    attributes that it has from then on.
    """

    partition_key: str
    exists: bool | None
    marks: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change, ready to send: on condition that the item exists at its place (`exists`), or does not."""

    request: Attributes
    exists: bool


class Changer:
    """Makes the changes of one call, through its `requests`."""

    def __init__(self, sharding: Sharding, requests: Requests) -> None:
        self.requests = requests
        self._sharding = sharding
        self._schema = sharding.schema
        self._routes = sharding.routes

    def change(self, change: Change) -> Attributes:
        """Make a change where the item is, or where it shall be.

        Raises:
            ClientError: as boto3's, the failure of the owner's condition among them.
            ThrottledError: DynamoDB refused for the whole budget; its cause is boto3's error.
        """
        target = change.target
        if self._sharding.append_only and change.item is not None and not change.is_conditional:
            return self._shown(self._create(change, None))
        if (place := self._sharding.sole_place_of(target)) is not None:
            return self._shown(self._change_at(change, self._new_at(place, target, exists=None)))
        locator = open_locator(self._sharding, self.requests)
        response = self._change_cold(locator, change)
        if response is None:
            response = change_located(
                lambda: locate(locator, [target])[0],
                lambda found: partial(self._change_found, change, *found),
                may_repeat=at_most(MAX_RACES),
            )
        return self._shown(response)

    def create(self, item: Attributes, target: Target) -> Attributes | None:
        """Create an item at its choices unless it is there; return the one that is there, None if it was created.

        Raises:
            ClientError: as boto3's.
            RetryLaterError: it may have been created, or DynamoDB refused for the whole budget; its cause is boto3's.
        """
        key = self._sharding.key_of_new(target, must_meet=True)
        store = TableStore(self._sharding, self.requests, {})
        change = Change("PutItem", target, self._schema.key_of(item), {}, item)

        def put(partition_key: str) -> Attributes | None:
            with as_engine_raises():
                try:
                    self._send(change, self._new_at(partition_key, target, exists=False), is_counted=False)
                except RaceLostError as lost:
                    refused: Any = lost.reason
                    return load(refused.response["Item"])
            return None

        def find(partition_keys: Sequence[str]) -> Attributes | None:
            places = [(partition_key, target.sort_key) for partition_key in partition_keys]
            with as_engine_raises():
                copies = [copy.item for copy in store.get(places, is_strong=True).copies]
            return min(copies, key=lambda copy: copy.rank).attributes if copies else None

        size_bytes = self._routes.size_of(item)
        found = self._routes.engine.writer.write(key, put=put, find=find, size_bytes=size_bytes, may_be_stored=True)
        return None if found is None else self._schema.show(found)

    def prepare(self, changes: Sequence[Change]) -> list[Prepared]:
        """Build requests that change items where they are, or create them where every other call would.

        Raises:
            InvalidRequestError: an item does not exist, and nothing says where to create it.
            RaceLostError: a second copy was changed while it was to be removed.
        """
        located = locate(open_locator(self._sharding, self.requests), [change.target for change in changes])
        prepared = []
        for change, (copies, confirmed) in zip(changes, located, strict=True):
            destination = self._find_valid(copies)
            if destination is None:
                key = self._sharding.key_of_new(change.target, must_meet=True)
                place = self._routes.engine.writer.meet(key, confirmed).partition_key
                destination = self._new_at(place, change.target, exists=False)
            prepared.append(Prepared(self._build(change, destination), bool(copies)))
        return prepared

    def _new_at(self, partition_key: str, target: Target, *, exists: bool | None) -> Destination:
        """Return the destination of an item that may be created there."""
        is_on_shard = partition_key != target.collection
        return Destination(partition_key, exists, self._routes.marks_of(target.position) if is_on_shard else {})

    def _find_valid(self, copies: Sequence[StoredItem]) -> Destination | None:
        """Return where the valid copy of an item lies, the only one from now on; None: there is no copy.

        Raises:
            RaceLostError: another copy was changed while it was to be removed.
        """
        if not copies:
            return None
        if len(copies) > 1:
            self._remove_others(copies)
        return Destination(copies[0].partition_key, True, self._schema.marks_of_change(copies[0].attributes))

    def _change_found(self, change: Change, copies: Sequence[StoredItem], confirmed: JournalEntry) -> Attributes:
        """Make a change where the item was found, or create it where the journal's route says.

        Raises:
            RaceLostError: it came or went meanwhile.
        """
        destination = self._find_valid(copies)
        if destination is None and change.operation == "DeleteItem":
            destination = Destination(change.target.collection, False)
        return self._create(change, confirmed) if destination is None else self._change_at(change, destination)

    def _change_cold(self, locator: Gatherer[Place, StoredItem], change: Change) -> Attributes | None:
        """Make a change in a collection that was never raised, as boto3 alone would.

        The journal confirms that. There is one place only, so nothing need be known of the item.

        Returns:
            None when the collection was raised, or may be by now, since DynamoDB refuses.
        """
        collection = change.target.collection
        if self._routes.journal is None or self._routes.get(collection) or locator.confirm(collection):
            return None
        try:
            response = self._send(change, Destination(collection, None))
        except ThrottledError:
            return None
        self.count(change, self.requests.last_units)
        return response

    def _change_at(self, change: Change, destination: Destination) -> Attributes:
        """Make a change where its item lies, or where it does not; with waits, since there is no other place."""

        def send() -> Attributes:
            try:
                return self._send(change, destination)
            except ThrottledError:
                self._routes.engine.writer.refused(destination.partition_key)
                raise

        try:
            response = try_for(self._sharding.table.clock, self._sharding.table.budget_ms, send)
        except ThrottledError:
            self.count(change, 1)
            raise
        self.count(change, self.requests.last_units)
        return response

    def count(self, change: Change, units: float, *, factor: int = 1) -> None:
        """Count a change that is made where its item lies: the units DynamoDB reported, at least the new item's size.

        `factor` is how many times its units it costs: 2 in a transaction.
        """
        if self._routes.is_counted:
            least = 0 if change.item is None else write_units(self._routes.size_of(change.item))
            self._routes.engine.writer.count(change.target, max(units, factor * least))

    def note_refused(self, prepared: Prepared) -> None:
        """Take in that DynamoDB refused a change for a limit."""
        stored = prepared.request.get("Item") or prepared.request["Key"]
        self._routes.engine.writer.refused(stored[self._schema.partition])

    def _create(self, change: Change, confirmed: JournalEntry | None) -> Attributes:
        """Create the item at its first choice that does not refuse; by an update, or on condition, at its first only.

        Two creations on condition that there is no such item must meet at one place, to see each other; and two updates
        that add to it. So the route is at least what the journal has just confirmed; None: they need not meet.

        Raises:
            RetryLaterError: nothing says where they meet.
        """
        target, exists = change.target, None if confirmed is None else False
        try:
            key = self._sharding.key_of_new(target, must_meet=confirmed is not None)
        except InvalidRequestError:
            if change.is_conditional:
                # Where its condition does not hold, nothing is created, and the place does not matter.
                condition = Change("DeleteItem", target, change.key, only_condition(change.request))
                self._change_at(condition, Destination(target.collection, False))
            raise
        responses: list[Attributes] = []

        def put(partition_key: str) -> None:
            destination = self._new_at(partition_key, target, exists=exists)
            responses.append(self._send(change, destination, is_counted=False))

        self._routes.engine.writer.write(
            key,
            put=put,
            find=lambda _: None,
            size_bytes=self._routes.size_of(change.item or change.key),
            may_be_stored=False,
            confirmed=confirmed,
            choices=1 if change.is_conditional or change.operation == "UpdateItem" else None,
        )
        return responses[-1]

    def _send(self, change: Change, destination: Destination, *, is_counted: bool = True) -> Attributes:
        """Send the change to one place, on the destination's condition.

        Raises:
            RaceLostError: that condition failed.
            ClientError: the owner's condition failed, or DynamoDB refused for another reason.
        """
        exists = destination.exists
        physical = self._build(change, destination)
        try:
            # A call that names another table is refused by the second TableName.
            response = self.requests.send_many(
                change.operation, is_counted=is_counted, TableName=self.requests.table_name, **physical
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != CONDITION_FAILED:
                raise
            refusal: Any = error.response
            if exists is not None and bool(refusal.get("Item")) != exists:
                raise RaceLostError(error) from error
            self.show_in_error(refusal, change)
            raise
        if self.requests.was_retried:
            # The client's own retries hide what DynamoDB refused.
            writer = self._routes.engine.writer
            writer.refused(destination.partition_key)
            writer.routes.refused(self._schema.collection_of(destination.partition_key))
        return response

    def _build(self, change: Change, destination: Destination) -> Attributes:
        partition_key, exists, marks = destination
        request = dict(change.request)
        if change.item is not None:
            keys = self._sharding.index_keys(partition_key, change.item)
            request["Item"] = {**change.item, self._schema.partition: partition_key, **keys, **marks}
        else:
            request["Key"] = {**change.key, self._schema.partition: partition_key}
        if change.operation == "UpdateItem":
            added = {CHANGES: 1, **(marks if exists is False else {})}
            of_new = marks if exists is None else {}
            changes = self._sharding.index_changes(partition_key, change.key, change.request)
            request = add_clause(request, ADD, added, added.values())
            request = add_clause(request, SET, changes.sets, changes.sets.values())
            request = add_clause(request, REMOVE, changes.removes)
            request = add_clause(request, SET_ONLY_NEW, of_new, of_new.values())
        if exists is not None:
            function = "attribute_exists" if exists else "attribute_not_exists"
            request = guard(request, f"{function}(#hpp)", {"#hpp": self._schema.partition})
        return request

    def _remove_others(self, copies: Sequence[StoredItem]) -> None:
        """Remove all copies but the valid one, if none of them was changed since they were read.

        Raises:
            RaceLostError: one was.
        """
        valid, *others = copies
        actions: list[Attributes] = [{"ConditionCheck": self._if_unchanged(valid)}]
        actions += [{"Delete": self._if_unchanged(other)} for other in others]
        try:
            self.requests.send_patiently("TransactWriteItems", TransactItems=actions)
        except ClientError as error:
            if error.response["Error"]["Code"] != "TransactionCanceledException":
                raise
            raise RaceLostError(error) from error

    def _if_unchanged(self, copy: StoredItem) -> Attributes:
        action = {"TableName": self.requests.table_name, "Key": self._schema.key_of(copy.attributes)}
        if copy.changes:
            action["ConditionExpression"] = "#hpc = :hpc"
            return with_placeholders(action, {"#hpc": CHANGES}, {":hpc": copy.changes})
        action["ConditionExpression"] = "attribute_exists(#hpp) AND attribute_not_exists(#hpc)"
        return with_placeholders(action, {"#hpp": self._schema.partition, "#hpc": CHANGES})

    def _shown(self, response: Attributes) -> Attributes:
        """Turn a response into the owner's."""
        if "Attributes" in response:
            response["Attributes"] = self._schema.show(response["Attributes"])
            if not response["Attributes"]:
                del response["Attributes"]
        metrics = response.get("ItemCollectionMetrics", {}).get("ItemCollectionKey")
        if metrics:
            metrics[self._schema.partition] = self._schema.collection_of(metrics[self._schema.partition])
        return response

    def show_in_error(self, refusal: Attributes, change: Change) -> None:
        """Leave in an error what its owner asked for: the item, in DynamoDB's form, as boto3 gives it there."""
        item = refusal.pop("Item", None)
        if item and change.request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
            shown = {name: value for name, value in item.items() if name not in self._schema.reserved}
            partition_key = item[self._schema.partition]["S"]
            refusal["Item"] = {**shown, self._schema.partition: {"S": self._schema.collection_of(partition_key)}}


Request = Mapping[str, Any]

_OPERATIONS = {"put_item": "PutItem", "update_item": "UpdateItem", "delete_item": "DeleteItem"}


class ItemCalls:
    """The calls about items of one table. Safe under threads."""

    def __init__(self, sharding: Sharding) -> None:
        self.sharding = sharding
        self._table = sharding.table
        self._schema = sharding.schema
        self.key = sharding.schema.key

    def changer(self, request: Request) -> Changer:
        """Begin a call that changes items."""
        return Changer(self.sharding, self._table.requests(request))

    def change(self, method: str, request: Request) -> Any:
        """Carry out `put_item`, `update_item` or `delete_item`."""
        change = self.read_change(method, _OPERATIONS[method], without(request, "ReturnConsumedCapacity"))
        if change is None:
            return self._table.let_refuse(method, request)
        changer = self.changer(request)
        with as_boto3_raises():
            return changer.requests.finish(changer.change(change))

    def read_change(self, method: str, operation: str, request: Request) -> Change | None:
        """Read which item a call changes, and how; None: DynamoDB itself refuses it best.

        Raises:
            NotImplementedError: naming what cannot be honoured.
            InvalidRequestError: it names a reserved attribute, or would move the item.
        """
        refuse_parameters(method, request)
        item: Any = request.get("Item")
        key: Any = request.get("Key")
        is_put, written = operation == "PutItem", write_conditions(request)
        if not (self._schema.has_key(item) if is_put else self._schema.is_key(key)) or not has_texts(written):
            return None
        self.sharding.refuse_reserved(item if is_put else key)
        self._refuse_expressions(method, written)
        if is_put:
            target, key = self.sharding.target_of_item(item), self._schema.key_of(item)
            return Change(operation, target, key, without(request, "Item"), dict(item))
        target = self.sharding.target_of_key(key, request.get("Hashed"))
        self._refuse_move(request, target)
        if operation == "UpdateItem":
            self.sharding.index_changes(target.collection, key, request)
        return Change(operation, target, dict(key), without(request, "Key", "Hashed"))

    def create(self, item: Attributes) -> Attributes | None:
        """Carry out `create_item`.

        Raises:
            InvalidRequestError: the item cannot be stored.
        """
        if not self._schema.has_key(item):
            raise InvalidRequestError.of("Item", f"should have a value for {' and '.join(sorted(self._schema.key))}")
        self.sharding.refuse_reserved(item)
        with as_boto3_raises():
            return self.changer({}).create(dict(item), self.sharding.target_of_item(item))

    def get(self, request: Request, *, cache: bool = False) -> Any:
        """Carry out `get_item`; with `cache`, the item may be a cached one."""
        refuse_parameters("get_item", request)
        key: Any = request.get("Key")
        if key is None or not self._schema.is_key(key):
            return self._table.let_refuse("get_item", request)
        collection = key[self._schema.partition]

        def read() -> tuple[Attributes, float]:
            self.sharding.refuse_reserved(key)
            requests = self._table.requests(request)
            target = self.sharding.target_of_key(key, request.get("Hashed"))
            (item,) = self._read(requests, [target], without(request, "Key", "Hashed"))
            found = {} if item is None else {"Item": item}
            return requests.finish({**found, "ResponseMetadata": requests.metadata}), requests.units

        with as_boto3_raises():
            if cache and self.sharding.cached is not None:
                return self.sharding.cached.read(collection, self.subject_of(key), request, read)
            response, units = read()
        self.sharding.routes.engine.count_read(collection, units)
        return response

    def subject_of(self, key: Request) -> str:
        """Name the item that has a key, for the cache."""
        return subject_of(key[self._schema.partition], key[self._schema.sort])

    def show_stored(self, stored: Request) -> Attributes | None:
        """Carry out `logical_item`."""
        return self.sharding.show_stored(stored)

    def get_items(self, keys: Sequence[Any], request: Request, *, cache: bool = False) -> list[Attributes | None]:
        """Carry out `get_items`: a few keys a request, several requests at the same time."""
        refuse_parameters("get_items", request)
        for key in keys:
            if not self._schema.is_key(key):
                self._table.let_refuse("get_item", {**request, "Key": key})
        requests, cached = self._table.requests(request), self.sharding.cached
        if not cache or cached is None:
            return self._read_counted(requests, keys, request)

        def read(places: Sequence[int]) -> tuple[list[Attributes | None], float]:
            return self._read_all(requests, [keys[place] for place in places], request), requests.units

        asked = [(key[self._schema.partition], self.subject_of(key)) for key in keys]
        with as_boto3_raises():
            return cached.read_items(asked, request, read)

    def batch_get(self, name: str, request: Request) -> Attributes:
        """Carry out this table's part of the client's `batch_get_item`, where it has this name."""
        refuse_parameters("batch_get_item", request)
        keys = request.get("Keys") or ()
        named = {self._schema.identify(key) for key in keys if self._schema.is_key(key)}
        requests = self._table.requests(request)
        if not keys or len(named) < len(keys):
            wanted = {name: without(request, "ReturnConsumedCapacity")}
            requests.client.batch_get_item(RequestItems=wanted)
            raise NotImplementedError("batch_get_item(): this call is not understood: a key is missing, or there twice")
        items = self._read_counted(requests, keys, without(request, "Keys"))
        found = [item for item in items if item is not None]
        response = {"Responses": {name: found}, "ResponseMetadata": requests.metadata}
        return response | ({"ConsumedCapacity": requests.consumed} if requests.consumed else {})

    def _read_counted(
        self, requests: Requests, keys: Sequence[Attributes], request: Request
    ) -> list[Attributes | None]:
        """Read any number of items, and count an equal share of the units for each."""
        with as_boto3_raises():
            items = self._read_all(requests, keys, request)
        for key in keys:
            self.sharding.routes.engine.count_read(key[self._schema.partition], requests.units / len(keys))
        return items

    def _read_all(self, requests: Requests, keys: Sequence[Attributes], request: Request) -> list[Attributes | None]:
        """Read any number of items, in the order of their keys."""
        for key in keys:
            self.sharding.refuse_reserved(key)
        targets = [self.sharding.target_of_key(key, None) for key in keys]
        asked = list(dict.fromkeys(targets))
        parts = [asked[start : start + ITEMS_AT_ONCE] for start in range(0, len(asked), ITEMS_AT_ONCE)]
        reading = [self.sharding.executor.submit(self._read, requests, part, request) for part in parts]
        read = [item for future in reading for item in future.result()]
        items = dict(zip(asked, read, strict=True))
        return [items[target] for target in targets]

    def _read(self, requests: Requests, targets: Sequence[Target], request: Request) -> list[Attributes | None]:
        """Read items."""
        asked = without(request, "ReturnConsumedCapacity")
        options, hidden = project_also(asked, attributes_of_ours(self.sharding))
        store = TableStore(self.sharding, requests, options)
        located = locate(self.sharding.gatherer(store), targets, is_strong=bool(request.get("ConsistentRead")))
        return [self._schema.show(copies[0].attributes, hidden) if copies else None for copies, _ in located]

    def _refuse_expressions(self, method: str, request: Request) -> None:
        """Refuse a change whose expressions look at the partition key's value, or name reserved attributes."""
        partition = self._schema.partition
        for parameter in ("ConditionExpression", "UpdateExpression"):
            if compares(request, parameter, partition):
                raise NotImplementedError(
                    f"{method}({parameter}=…): it looks at the value of {partition}, which differs on shards. "
                    f"The item is the one that has this key anyway: leave it out, or use attribute_exists({partition})"
                )
        for name in sorted(self._schema.reserved & names_in(request, "UpdateExpression")):
            raise InvalidRequestError.of(name, "is reserved for ShardedTable. Call the attribute something else")

    def _refuse_move(self, request: Request, target: Target) -> None:
        """Refuse an update of the attribute that shards are chosen by, except to the value that the caller names."""
        attribute = self.sharding.hashing.attribute
        if attribute is None or (update := find_update(request, attribute)) is None:
            return
        if not update.is_plain or target.hashed is None or not is_text_of(update.value, target.hashed):
            raise InvalidRequestError.of(
                attribute,
                "is what the shard is chosen by, and is not changed. Pass a new item's value as well (Hashed=…);"
                " for another value delete the item, and put it anew",
            )
