"""The items of a table through boto3, as one call of a `ShardedTable` asks for them: the engine's `ItemStore`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from boto3.dynamodb.types import Binary

from hotpartition.core.errors import RetryLaterError, ThrottledError
from hotpartition.core.merge import NO_LIMIT, KeyQuery, QueryResponse
from hotpartition.core.ports import Copy, Fetched, Got, JournalEntry
from hotpartition.dynamodb import stored_route
from hotpartition.dynamodb.calls import Call
from hotpartition.dynamodb.item_store import BatchGet, read_round
from hotpartition.dynamodb.python_values import Attributes, dump, load
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.gatherer import Gatherer
from hotpartition.table.expressions import Comparison, KeyCondition, with_key_condition
from hotpartition.table.requests import Requests
from hotpartition.table.schema import CHANGES, SHARDS, Index, Place, Schema, attributes_size_bytes, order_of
from hotpartition.table.sharding import Sharding, Target, routing_value_of

GENERATIONS = "generations"
"""The attribute of a routing item that holds the route."""
GREW_AT = "updated_at"
"""The attribute of a routing item that says when that last grew."""


class StoredItem(NamedTuple):
    """One stored copy of an item: its place in the collection's order, and how often it was changed."""

    sort_key: Place
    partition_key: str
    changes: int
    attributes: Attributes

    @classmethod
    def of(cls, item: Attributes, place: Place, schema: Schema) -> StoredItem:
        """Read a copy that was stored at a place."""
        return cls(place, item[schema.partition], int(item.get(CHANGES, 0)), item)

    @property
    def rank(self) -> tuple[int, int, str]:
        """Implement `MergeItem.rank`, the valid one first: the most changed, and always the same one of equals."""
        return -self.changes, len(self.partition_key), self.partition_key


class Ties:
    """The order of an index whose range keys need not differ: as its shards return equal ones, the shards by turns.

    It holds for one call. Which order DynamoDB gives equal range keys is not documented, so it is never computed.
    """

    def __init__(self, names: Index, table: Schema, *, newest_first: bool) -> None:
        """Begin with nothing read; `names` are the index's keys, `table` the table's."""
        named = (names.partition, names.sort, table.partition, table.sort)
        self.names = [name for name in dict.fromkeys(named) if name is not None]
        self.starts: dict[str, Attributes] = {}
        """How far each shard was read by earlier pages: the key of an item."""
        self._partition, self._sort = names.partition, names.sort
        self._sign = -1 if newest_first else 1
        self._shards: dict[str, dict[Any, Place]] = {}
        self._keys: dict[Place, Attributes] = {}

    def place_of(self, item: Mapping[str, Any]) -> Place:
        """Return an item's place. REQUIRES: the items of a shard are asked for in the order in which they came."""
        shard = item[self._partition]
        seen = self._shards.setdefault(shard, {})
        key = {name: item[name] for name in self.names}
        identity = tuple([repr(order_of(value)) for value in key.values()])
        if identity not in seen:
            of_range = None if self._sort is None else order_of(item[self._sort])
            place = (of_range is not None and of_range, self._sign * len(seen), shard)
            seen[identity], self._keys[place] = place, key
        return seen[identity]

    def key_at(self, place: Place) -> Attributes:
        """Return the key of an item that was at a place."""
        return self._keys[place]

    def starts_behind(self, end: Place) -> dict[str, Attributes]:
        """Return how far each shard was read when a page ended at a place."""
        starts = dict(self.starts)
        for shard, seen in self._shards.items():
            passed = [place for place in seen.values() if (place >= end if self._sign < 0 else place <= end)]
            if passed:
                starts[shard] = self._keys[min(passed) if self._sign < 0 else max(passed)]
        return starts


@dataclass(frozen=True, slots=True)
class Query:
    """A query of one collection, as its owner asked for it."""

    collection: str
    condition: Comparison | None
    """The part of its key condition that is about the sort key."""
    names: Index
    """The queried keys: the table's, or those of an index with the table's partition key."""
    request: Attributes
    """All other parameters, without the key condition."""
    limit: int | None
    newest_first: bool
    start: Attributes | None = None
    """Its `ExclusiveStartKey`."""
    hashed: str | None = None
    """The text that chose the shards of all wanted items, where that is known."""
    others: tuple[Comparison, ...] = ()
    """The parts of its key condition that are about an index's other keys."""
    bucket: Callable[[str], Attributes] | None = None
    """For an index by time: builds its hash key for a place. It is sorted by the table's sort key."""
    ties: Ties | None = None
    """For an index with shards of its own: the order of its items, and where to begin."""
    hidden: frozenset[str] = frozenset()
    """The attributes that its owner did not ask for."""

    @property
    def is_strong(self) -> bool:
        """Whether it is strongly consistent."""
        return bool(self.request.get("ConsistentRead"))

    @property
    def is_sorted_otherwise(self) -> bool:
        """Whether the query is sorted by another attribute than the one that gives positions."""
        return "IndexName" in self.request and self.bucket is None

    def sorted_by(self, schema: Schema) -> list[str]:
        """List the attributes that the query is sorted by; with ties, those that name an item."""
        if self.ties is not None:
            return self.ties.names
        names = (self.names.sort, *self.names.also_sorted, schema.sort)
        return list(dict.fromkeys(name for name in names if name is not None))

    @property
    def demanded(self) -> Attributes:
        """Its values for an index's other hash keys: cursors have them."""
        return {part.attribute: part.operands[0] for part in self.others if part.attribute in self.names.also_hashed}

    def may_pass_journal(self, journal: JournalPlace | None) -> bool:
        """Say whether the base key's query, from its start, would meet the routing item behind all items."""
        return (
            journal is not None
            and not journal.is_apart
            and self.newest_first
            and self.start is None
            and self.condition is None
            and not {"FilterExpression", "IndexName"} & self.request.keys()
        )


class TableStore:
    """`ItemStore` of one call. Safe under threads as far as `fetch` runs its requests on some.

    What DynamoDB refuses for another reason than a limit is raised as boto3's own error.
    """

    def __init__(
        self,
        sharding: Sharding,
        requests: Requests,
        options: Attributes,
        *,
        query: Query | None = None,
        is_raised: bool = False,
    ) -> None:
        """Read nothing yet.

        `options` are the parameters of each query; or those of BatchGetItem for the table, without a query. `is_raised`
        says whether a route is known of what the owner asks for.
        """
        self._sharding = sharding
        self._schema = sharding.schema
        self._journal = sharding.routes.journal
        self._requests = requests
        self._options = options
        self._query = query
        self._is_raised = is_raised
        self._sorted_by = [self._schema.sort] if query is None else query.sorted_by(self._schema)
        self._ties = None if query is None else query.ties
        self.scanned = 0
        """How many items all queries looked at."""
        self._batches: BatchGet | None = None
        """Those of a `get` that was refused."""

    def fetch(
        self, queries: Sequence[KeyQuery[Place]], *, is_strong: bool, journal_of: str | None = None
    ) -> Fetched[Place, StoredItem]:
        """Implement `ItemStore.fetch`.

        Where the base key's query would pass the routing item, it is not asked for again, unless that query ends
        before its place. The limit stays the owner's where no route is known: a key never raised costs no more than
        without shards. Otherwise there is room for the routing item as well; the item whose place it took is asked for.
        """
        carrier = next((query for query in queries if self._passes_journal(query, journal_of)), None)
        calls = [self._build_query(query) for query in queries]
        if journal_of is not None and carrier is None:
            calls.append(self._build_journal_read(journal_of, is_strong=is_strong))
        collection = journal_of or ""

        def read(query: KeyQuery[Place], outcome: Attributes) -> tuple[Any, JournalEntry | RetryLaterError | None]:
            response, routing_item = self._read_response(query, outcome)
            shown: JournalEntry | RetryLaterError | None = None
            if query is carrier:
                shown = self._find_journal(collection, response, routing_item, is_strong=is_strong)
            filled = response if routing_item is None else self._fill_place(query, response)
            return filled, filled if isinstance(filled, RetryLaterError) else shown

        outcomes = self._requests.run(calls, self._sharding.executor)
        responses, journal = read_round(
            queries, outcomes, carrier, read, lambda outcome: _read_entry(collection, outcome.get("Item"))
        )
        item = next((each.items[-1] for each in responses if isinstance(each, QueryResponse) and each.items), None)
        size = 0 if item is None else attributes_size_bytes(item.attributes)
        return Fetched(responses, journal, item_bytes=size)

    def get(
        self, places: Sequence[tuple[str, Place]], *, is_strong: bool, journals_of: Sequence[str] = ()
    ) -> Got[StoredItem]:
        """Implement `ItemStore.get`.

        Called again after a refusal, for the same places, it goes on where DynamoDB stopped.
        """
        batches = self._batches or self._build_batches(places, is_strong=is_strong, journals_of=journals_of)
        self._batches = batches
        while batches.left:
            if not batches.send_next(self._send_batch):
                raise ThrottledError from self._requests.unprocessed()
        self._batches = None
        journal = self._journal
        items: list[Attributes] = []
        routing: dict[str, Attributes] = {}
        for table_name, item in batches.found:
            if journal is not None and table_name != self._requests.table_name:
                routing[item[journal.partition_key]] = item
            elif self._sharding.is_journal(item):
                routing[item[self._schema.partition]] = item
            else:
                items.append(item)
        found = [Copy(item.partition_key, item) for item in self._read_items(items)]
        entries, date_ms = read_entries(routing, journals_of), batches.date_ms
        return Got(tuple(found), {name: replace(entry, date_ms=date_ms) for name, entry in entries.items()})

    def _build_batches(
        self, places: Sequence[tuple[str, Place]], *, is_strong: bool, journals_of: Sequence[str]
    ) -> BatchGet:
        journal, name = self._journal, self._requests.table_name
        keys = [(name, {self._schema.partition: pk, self._schema.sort: place[0]}) for pk, place in places]
        options = {name: {"ConsistentRead": is_strong, **self._options}}
        if journal is not None:
            keys += [(journal.table_name, key_of_journal(journal, collection)) for collection in journals_of]
            options.setdefault(journal.table_name, {"ConsistentRead": is_strong})
        return BatchGet(keys, options)

    def _send_batch(self, batch: Attributes) -> Attributes:
        return self._requests.send_many("BatchGetItem", RequestItems=batch)

    def _fill_place(
        self, query: KeyQuery[Place], response: QueryResponse[Place, StoredItem]
    ) -> QueryResponse[Place, StoredItem] | RetryLaterError:
        """Complete a response whose limit counted the routing item, whose key is never shown."""
        left = query.limit - len(response.items)
        if response.reached is None or response.is_cut:
            return response
        if left <= 0:
            return replace(response, reached=response.items[-1].sort_key)
        (outcome,) = self._requests.run([self._build_query(replace(query, limit=left, after=response.reached))], None)
        if isinstance(outcome, RetryLaterError):
            return outcome
        more, _ = self._read_response(replace(query, limit=left), outcome)
        return replace(more, items=response.items + more.items)

    def _build_query(self, query: KeyQuery[Place]) -> Call:
        asked = self._query
        assert asked is not None  # noqa: S101  what fetches has one
        bucket = asked.bucket(query.partition_key) if asked.bucket else {}
        names = (asked.names.partition, asked.names.sort or "")
        condition = KeyCondition(bucket.get(names[0], query.partition_key), asked.condition, asked.others)
        request = with_key_condition(self._options, names, condition)
        if query.after is not None:
            request["ExclusiveStartKey"] = {**self.key_at(query.after, query.partition_key), **bucket}
        elif asked.ties is not None and query.partition_key in asked.ties.starts:
            request["ExclusiveStartKey"] = asked.ties.starts[query.partition_key]
        if query.limit != NO_LIMIT:
            request["Limit"] = query.limit + self._room(query)
        return Call("Query", {"TableName": self._requests.table_name, **request})

    def _build_journal_read(self, collection: str, *, is_strong: bool) -> Call:
        journal = self._journal
        assert journal is not None  # noqa: S101  what has none is not asked for it
        key = key_of_journal(journal, collection)
        return Call("GetItem", {"TableName": journal.table_name, "Key": key, "ConsistentRead": is_strong})

    def _find_journal(
        self,
        collection: str,
        response: QueryResponse[Place, StoredItem],
        routing_item: Attributes | None,
        *,
        is_strong: bool,
    ) -> JournalEntry | ThrottledError:
        """Read the routing item that was on the way; one that the page ended before is asked for."""
        journal = self._journal
        assert journal is not None  # noqa: S101  it was on the way
        is_passed = response.reached is None or response.reached[0] <= order_of(routing_value_of(journal))
        if routing_item is None and not is_passed:
            (outcome,) = self._requests.run([self._build_journal_read(collection, is_strong=is_strong)], None)
            if isinstance(outcome, ThrottledError):
                return outcome
            routing_item = outcome.get("Item")
        return _read_entry(collection, routing_item)

    def _room(self, query: KeyQuery[Place]) -> int:
        """Say how many items beside the owner's a query is sure to meet."""
        asked = self._query
        is_met = self._is_raised and query.limit != NO_LIMIT
        return int(is_met and self._passes_journal(query, None if asked is None else asked.collection))

    def _passes_journal(self, query: KeyQuery[Place], collection: str | None) -> bool:
        is_from_the_top = query.partition_key == collection and query.after is None
        return is_from_the_top and self._query is not None and self._query.may_pass_journal(self._journal)

    def _read_response(
        self, query: KeyQuery[Place], response: Attributes
    ) -> tuple[QueryResponse[Place, StoredItem], Attributes | None]:
        """Read one place's response, and the routing item if that is in it."""
        self.scanned += response["ScannedCount"]
        items, routing_item = [], None
        for item in response["Items"]:
            if self._sharding.is_journal(item):
                routing_item = item
            else:
                items.append(item)
        found = self._read_items(items)
        last = response.get("LastEvaluatedKey")
        reached = None if last is None else self.place_of(last)
        is_cut = reached is not None and response["ScannedCount"] < query.limit + self._room(query)
        return QueryResponse(found, reached is None, reached, is_cut), routing_item

    def _read_items(self, items: Sequence[Attributes]) -> tuple[StoredItem, ...]:
        self._sharding.routes.meet(items)
        return tuple([StoredItem.of(item, self.place_of(item), self._schema) for item in items])

    def place_of(self, item: Mapping[str, Any]) -> Place:
        """Return where an item, or a key of the query, lies in the order."""
        if self._ties is not None:
            return self._ties.place_of(item)
        return tuple([order_of(item[name]) for name in self._sorted_by])

    def key_at(self, place: Place, partition_key: str) -> Attributes:
        """Build the key of a place, as boto3 gives it."""
        if self._ties is not None:
            return self._ties.key_at(place)
        values = (Binary(value) if isinstance(value, bytes) else value for value in place)
        demanded = {} if self._query is None else self._query.demanded
        return {self._schema.partition: partition_key, **demanded, **dict(zip(self._sorted_by, values, strict=True))}


def attributes_of_ours(sharding: Sharding) -> frozenset[str]:
    """Name the attributes that a point read must get beside what its owner asked for."""
    journal = sharding.routes.journal
    generations = {GENERATIONS} if journal is not None and not journal.is_apart else set()
    return frozenset({*sharding.schema.key, CHANGES, SHARDS, *generations})


def open_locator(sharding: Sharding, requests: Requests) -> Gatherer[Place, StoredItem]:
    """Open the search for copies of items for one call: of each its key, and how often it was changed."""
    ours = {*attributes_of_ours(sharding), GREW_AT}
    names = {f"#hp{position}": name for position, name in enumerate(sorted(ours))}
    keys_only = {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
    return sharding.gatherer(TableStore(sharding, requests, keys_only))


def locate(
    locator: Gatherer[Place, StoredItem], targets: Sequence[Target], *, is_strong: bool = True
) -> list[tuple[list[StoredItem], JournalEntry]]:
    """Find all copies of items: of each its copies, the valid one first, and what the journal showed, if read strongly.

    All choices of an item are asked, found or not: a late copy at one may be older than the item at another.
    """
    located = locator.locate_all(targets, is_strong=is_strong, everywhere=True)
    return [
        (sorted([copy.item for copy in found.copies], key=lambda item: item.rank), found.confirmed) for found in located
    ]


def key_of_journal(place: JournalPlace, collection: str) -> Attributes:
    """Build the key of a collection's routing item."""
    return load(place.key_of(collection))


def _read_entry(collection: str, routing_item: Attributes | None) -> JournalEntry:
    return read_entries({} if routing_item is None else {collection: routing_item}, [collection])[collection]


def read_entries(routing_items: Mapping[str, Attributes], collections: Iterable[str]) -> dict[str, JournalEntry]:
    """Read the routing items of collections; those that have none have the empty route.

    Raises:
        MalformedGenerationError: one cannot be read; it names the collection.
    """
    stored = {collection: dump(item) for collection, item in routing_items.items()}
    return stored_route.read_entries(stored, collections)
