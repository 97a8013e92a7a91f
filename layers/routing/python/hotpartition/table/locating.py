"""Reads the copies of items from every place where they can be, and the routing items that say where that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.ports import JournalEntry
from hotpartition.table.consumed import Requests
from hotpartition.table.copies import Copy, copy_of, sort_copies
from hotpartition.table.journal_items import GENERATIONS, is_journal, key_of_journal
from hotpartition.table.patience import Patience, naming_throttles
from hotpartition.table.schema import CHANGES, SHARDS, Attributes, order_of
from hotpartition.table.sharding import Sharding, Target

BATCH_GET_KEYS = 100
"""BatchGetItem takes no more keys at once."""


class Located(NamedTuple):
    """The copies of an item, the valid one first, and the route that new ones are placed by."""

    copies: list[Copy]
    confirmed: Route
    """What the journal shows, read strongly consistent; empty without one."""


@dataclass(slots=True)
class _Search:
    """One item that is looked for."""

    target: Target
    hint: Route
    route: Route
    confirmed: Route = EMPTY_ROUTE
    asked: set[str] = field(default_factory=set)
    copies: list[Copy] = field(default_factory=list)


class Locator:
    """Reads items by their keys. Safe under threads."""

    def __init__(self, sharding: Sharding, patience: Patience) -> None:
        self._sharding = sharding
        self._schema = sharding.schema
        self._routes = sharding.routes
        self._patience = patience

    @property
    def attributes_of_ours(self) -> frozenset[str]:
        """The attributes that a read must get beside what its owner asked for."""
        journal = self._routes.journal
        generations = {GENERATIONS} if journal is not None and not journal.is_apart else set()
        return frozenset({self._schema.partition, self._schema.sort, CHANGES, SHARDS, *generations})

    def locate(self, requests: Requests, targets: Sequence[Target]) -> list[Located]:
        """Find all copies of items, strongly consistent: of each its key, and how often it was changed."""
        names = {f"#hp{position}": name for position, name in enumerate(sorted(self.attributes_of_ours))}
        keys_only = {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
        options = {"ConsistentRead": True, **keys_only}
        return [found for found, _ in self._search(requests, targets, options)]

    def read(self, requests: Requests, target: Target, options: Mapping[str, Any]) -> tuple[Located, Attributes]:
        """Read one item, with options as BatchGetItem takes them for a table.

        Returns:
            What was found, and the last response's metadata.
        """
        ((found, metadata),) = self._search(requests, [target], options)
        return found, metadata

    def verify(self, requests: Requests, collection: str) -> Route:
        """Return a collection's route as reads must use it, strongly consistent, without reading any item."""
        hint = self._routes.get(collection)
        if self._routes.journal is None:
            return hint
        _, entries, _ = self._read(requests, [], [collection], {"ConsistentRead": True})
        return hint.union(self._routes.verify(collection, hint, entries[collection], is_strong=True))

    def _search(
        self, requests: Requests, targets: Sequence[Target], options: Mapping[str, Any]
    ) -> Iterator[tuple[Located, Attributes]]:
        searches = [self._begin(target) for target in targets]
        unverified = {target.collection for target in targets} if self._routes.journal is not None else set()
        metadata: Attributes = {}
        while places := self._next_places(searches):
            copies, entries, metadata = self._read(requests, places, sorted(unverified), options)
            by_item: dict[Any, list[Copy]] = {}
            for copy in copies:
                item = self._schema.collection_of(copy.partition_key), order_of(copy.item[self._schema.sort])
                by_item.setdefault(item, []).append(copy)
            for search in searches:
                collection, sort_value, *_ = search.target
                search.copies += by_item.get((collection, order_of(sort_value)), ())
                if collection in entries:
                    is_strong = bool(options.get("ConsistentRead"))
                    shown = self._routes.verify(collection, search.hint, entries[collection], is_strong=is_strong)
                    search.route = search.route.union(shown)
                    search.confirmed = shown if is_strong else EMPTY_ROUTE
            unverified = set()
        for search in searches:
            yield Located(sort_copies(search.copies), search.confirmed), metadata

    def _begin(self, target: Target) -> _Search:
        hint = self._routes.get(target.collection)
        return _Search(target, hint, hint)

    def _next_places(self, searches: Sequence[_Search]) -> list[tuple[str, Any]]:
        """List the places to read next, each once, and take them for asked."""
        places: dict[Any, tuple[str, Any]] = {}
        for search in searches:
            keys = self._sharding.next_places(search.route, search.target, asked=search.asked)
            search.asked.update(keys)
            sort_value = search.target.sort_value
            places |= {(key, order_of(sort_value)): (key, sort_value) for key in keys}
        return list(places.values())

    def _read(
        self,
        requests: Requests,
        places: Iterable[tuple[str, Any]],
        journals_of: Iterable[str],
        options: Mapping[str, Any],
    ) -> tuple[list[Copy], dict[str, JournalEntry], Attributes]:
        """Read what lies at some places, and the routing items of some collections."""
        journal = self._routes.journal
        keys = [(requests.table_name, {self._schema.partition: pk, self._schema.sort: sk}) for pk, sk in places]
        if journal is not None:
            keys += [(journal.table_name, key_of_journal(journal, collection)) for collection in journals_of]
        strong = {"ConsistentRead": options.get("ConsistentRead", False)}
        items: list[Attributes] = []
        routing: dict[str, Attributes] = {}
        metadata: Attributes = {}
        for start in range(0, len(keys), BATCH_GET_KEYS):
            wanted: dict[str, Any] = {}
            for table_name, key in keys[start : start + BATCH_GET_KEYS]:
                of_table = wanted.setdefault(table_name, {"Keys": [], **strong})
                of_table["Keys"].append(key)
            if requests.table_name in wanted:
                wanted[requests.table_name] |= options
            found, metadata = self._read_part(requests, wanted)
            for table_name, item in found:
                if journal is not None and table_name != requests.table_name:
                    routing[item[journal.partition_key]] = item
                elif is_journal(journal, self._schema, item):
                    routing[item[self._schema.partition]] = item
                else:
                    items.append(item)
        self._routes.meet(items)
        entries = {name: self._sharding.read_entry(name, routing.get(name)) for name in journals_of}
        return [copy_of(self._schema, item) for item in items], entries, metadata

    def _read_part(
        self, requests: Requests, wanted: Mapping[str, Any]
    ) -> tuple[list[tuple[str, Attributes]], Attributes]:
        items: list[tuple[str, Attributes]] = []
        budget = self._patience.begin()
        while True:
            response = self._patience.send(partial(requests.send_many, "BatchGetItem", RequestItems=wanted))
            items += [(name, item) for name, found in response["Responses"].items() for item in found]
            wanted = response.get("UnprocessedKeys") or {}
            if not wanted:
                return items, response.get("ResponseMetadata", {})
            if not budget.wait():
                with naming_throttles():
                    raise _unprocessed(requests.client)


def _unprocessed(client: Any) -> ClientError:
    """Build boto3's error for keys that DynamoDB left unprocessed for as long as we asked."""
    code = "ProvisionedThroughputExceededException"
    error: ClientError = client.exceptions.ProvisionedThroughputExceededException(
        {"Error": {"Code": code, "Message": "DynamoDB left keys unprocessed"}}, "BatchGetItem"
    )
    return error
