"""The items of a table in DynamoDB: `ItemStore` over a client (`calls.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, AttributeValue, Item, item_size_bytes, read_units
from hotpartition.core.errors import (
    ConditionFailedError,
    ItemTooLargeError,
    RetryLaterError,
    StoreRefusedError,
    ThrottledError,
)
from hotpartition.core.items import KeyT
from hotpartition.core.merge import ItemT, KeyQuery, QueryResponse
from hotpartition.core.ports import Copy, Fetched, Got, JournalEntry
from hotpartition.dynamodb.calls import Call, DynamoDBCalls, Outcome, Response, Round, date_of
from hotpartition.dynamodb.stored_route import read_entries, read_entry
from hotpartition.dynamodb.table import TableForm

BATCH_GET_KEYS = 100
"""BatchGetItem takes no more keys at once."""
MAX_BATCH_ROUNDS = 5
"""How often unprocessed keys are asked for before the whole call counts as throttled."""


class BatchGet:
    """Items that are read by their keys, in batches; each attempt goes on where DynamoDB stopped."""

    def __init__(self, keys: Sequence[tuple[str, Any]], options: Mapping[str, Mapping[str, Any]]) -> None:
        """Ask for nothing yet: `keys` come with the names of their tables, `options` are those of each table."""
        self.left: list[dict[str, Any]] = []
        """What DynamoDB has not given a response to in full, of each request."""
        self._responses: list[Response] = []
        for start in range(0, len(keys), BATCH_GET_KEYS):
            batch: dict[str, Any] = {}
            for table_name, key in keys[start : start + BATCH_GET_KEYS]:
                batch.setdefault(table_name, {**options[table_name], "Keys": []})["Keys"].append(key)
            self.left.append(batch)

    def send_next(self, send: Callable[[dict[str, Any]], Response]) -> bool:
        """Send the first batch that is left; say whether its response has no unprocessed keys, which stay."""
        response = send(self.left[0])
        self._responses.append(response)
        unprocessed = response.get("UnprocessedKeys")
        self.left[:1] = [unprocessed] if unprocessed else []
        return not unprocessed

    @property
    def found(self) -> list[tuple[str, dict[str, Any]]]:
        """The items so far, with the names of their tables."""
        parts = [part for response in self._responses for part in response["Responses"].items()]
        return [(table_name, item) for table_name, items in parts for item in items]

    @property
    def date_ms(self) -> int | None:
        """The first `Date` of its responses, if all have one: which of them showed an item is not known."""
        dates = [date_of(response) for response in self._responses]
        known = [date for date in dates if date is not None]
        return min(known) if known and len(known) == len(dates) else None


def read_round(
    queries: Sequence[KeyQuery[KeyT]],
    outcomes: Sequence[Outcome],
    carrier: KeyQuery[KeyT] | None,
    read: Callable[
        [KeyQuery[KeyT], Response],
        tuple[QueryResponse[KeyT, ItemT] | RetryLaterError, JournalEntry | RetryLaterError | None],
    ],
    read_journal: Callable[[Response], JournalEntry],
) -> tuple[tuple[QueryResponse[KeyT, ItemT] | RetryLaterError, ...], JournalEntry | RetryLaterError | None]:
    """Read the outcomes of a round of queries; errors stand in their places.

    The journal's entry is read by the `carrier`, the query whose response shows it; or by a call of its own behind the
    queries'. Where neither is there, it was not asked for.
    """
    own = outcomes[len(queries) :]
    journal: JournalEntry | RetryLaterError | None = None
    for outcome in own:
        journal = outcome if isinstance(outcome, RetryLaterError) else read_journal(outcome)
    responses: list[QueryResponse[KeyT, ItemT] | RetryLaterError] = []
    for query, outcome in zip(queries, outcomes[: len(queries)], strict=True):
        response, shown = (outcome, outcome) if isinstance(outcome, RetryLaterError) else read(query, outcome)
        responses.append(response)
        journal = shown if query is carrier else journal
    return tuple(responses), journal


class Replacement(NamedTuple):
    """An item that takes the place of a stored one, if that still has `expected`: None stands for no such attribute.

    Without `expected`, it goes where nothing is stored.
    """

    item: Item
    expected: Mapping[str, AttributeValue | None] | None


class DynamoDBItemStore(Generic[ItemT]):
    """`ItemStore` on one table. `decode` turns a stored item into its owner's."""

    def __init__(self, calls: DynamoDBCalls, table: TableForm, decode: Callable[[Item], ItemT]) -> None:
        self._calls = calls
        self._table = table
        self._decode = decode

    def create(self, item: Mapping[str, AttributeValue]) -> ItemT | None:
        """Store an item unless its key is taken: one attempt.

        Returns:
            None when stored; else the item that is already there, unchanged.

        Raises:
            ThrottledError: DynamoDB refused for a limit.
            StoreUnavailableError: it may have been stored, or not.
            ItemTooLargeError: it passes DynamoDB's limit.
        """
        put = self._build_replacement(Replacement(item, None))
        try:
            self._send("PutItem", {**put, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}, [item])
        except ConditionFailedError as error:
            if error.item is None:
                raise
            return self._decode(error.item)
        return None

    def replace(self, replacements: Sequence[Replacement]) -> bool:
        """Replace stored items, all of them or none: one attempt. Several are one transaction, at twice the units.

        Returns:
            Whether they were replaced; False when one of the stored items is another by now, or gone.

        Raises:
            ThrottledError: DynamoDB refused for a limit.
            StoreUnavailableError: they may have been replaced, or not.
            ItemTooLargeError: one passes DynamoDB's limit.
        """
        puts = [self._build_replacement(replacement) for replacement in replacements]
        items = [replacement.item for replacement in replacements]
        try:
            if len(puts) == 1:
                self._send("PutItem", puts[0], items)
            else:
                self._send("TransactWriteItems", {"TransactItems": [{"Put": put} for put in puts]}, items)
        except ConditionFailedError:
            return False
        return True

    def _send(self, operation: str, request: Mapping[str, Any], items: Sequence[Item]) -> None:
        try:
            self._calls.call(operation, request)
        except StoreRefusedError as error:
            if error.code == "ValidationException" and "maximum allowed size" in error.explanation:
                # Our own count, which estimates the size of numbers, was a little below DynamoDB's.
                raise ItemTooLargeError(max(map(item_size_bytes, items)), ITEM_LIMIT_BYTES) from error
            raise

    def _build_replacement(self, replacement: Replacement) -> dict[str, Any]:
        is_new = replacement.expected is None
        conditions = [f"attribute_{'not_' if is_new else ''}exists({self._table.partition_key})"]
        names: dict[str, str] = {}
        values: dict[str, AttributeValue] = {}
        for index, (name, value) in enumerate((replacement.expected or {}).items()):
            names[f"#n{index}"] = name
            if value is None:
                conditions.append(f"attribute_not_exists(#n{index})")
            else:
                conditions.append(f"#n{index} = :v{index}")
                values[f":v{index}"] = value
        request: dict[str, Any] = {
            "TableName": self._table.name,
            "Item": replacement.item,
            "ConditionExpression": " AND ".join(conditions),
        }
        if names:
            request["ExpressionAttributeNames"] = names
        if values:
            request["ExpressionAttributeValues"] = values
        return request

    def fetch(
        self, queries: Sequence[KeyQuery[str]], *, is_strong: bool, journal_of: str | None = None
    ) -> Fetched[str, ItemT]:
        """Implement `ItemStore.fetch`."""
        carrier = next((q for q in queries if self._passes_routing_item(q, journal_of)), None)
        calls = [self._build_query(query, is_strong=is_strong, with_journal=query is carrier) for query in queries]
        if journal_of is not None and carrier is None:
            calls.append(self._table.journal.build_get(journal_of, is_strong=is_strong))
        # A collection that was never hot costs nothing more: only a sharded one's reads are sent twice.
        parse = self._table.keys.parse
        outcomes, hedged = self._run(calls, is_hedged=any(parse(q.partition_key)[1] is not None for q in queries))
        least = read_units(0, is_strong=is_strong)
        units = sum([_units_of(outcome, least) for outcome in outcomes])
        responses, journal = read_round(
            queries,
            outcomes,
            carrier,
            lambda query, response: self._read_response(query, response, with_journal=query is carrier),
            lambda response: read_entry(response.get("Item")),
        )
        return Fetched(responses, journal, hedged, units, _size_of_one(outcomes))

    def get(self, places: Sequence[tuple[str, str]], *, is_strong: bool, journals_of: Sequence[str] = ()) -> Got[ItemT]:
        """Implement `ItemStore.get`."""
        table, place = self._table, self._table.journal
        keys = [(table.name, table.key_of(*each)) for each in places]
        keys += [(place.table_name, place.key_of(collection)) for collection in journals_of]
        options = {"ConsistentRead": is_strong}
        batches = BatchGet(keys, {table.name: options, place.table_name: options})
        refusals = 0
        while batches.left:
            refusals += not batches.send_next(lambda batch: self._calls.call("BatchGetItem", {"RequestItems": batch}))
            if refusals == MAX_BATCH_ROUNDS:
                raise ThrottledError
        routing: dict[str, Item] = {}
        copies: list[Copy[ItemT]] = []
        for table_name, item in batches.found:
            if table_name != table.name or item.get(place.sort_key) == {"S": place.routing_sort_key}:
                routing[item[place.partition_key]["S"]] = item
            else:
                copies.append(Copy(item[table.partition_key]["S"], self._decode(item)))
        return Got(tuple(copies), read_entries(routing, journals_of))

    def _run(self, calls: list[Call], *, is_hedged: bool) -> Round:
        """Run calls at the same time, each to its first items or its end."""
        outcomes, hedged = self._calls.call_many(calls, is_hedged=is_hedged)
        while unfinished := [index for index, outcome in enumerate(outcomes) if _is_empty_part(outcome)]:
            # Allowed, if never seen without a filter: a response without items that is not the end.
            for index in unfinished:
                start = {"ExclusiveStartKey": outcomes[index]["LastEvaluatedKey"]}  # type: ignore[index]
                calls[index] = Call("Query", {**calls[index].request, **start})
            found = self._calls.call_many([calls[index] for index in unfinished], is_hedged=is_hedged)
            hedged += found.hedged
            for index, outcome in zip(unfinished, found.outcomes, strict=True):
                outcomes[index] = outcome
        return Round(outcomes, hedged)

    def _build_query(self, query: KeyQuery[str], *, is_strong: bool, with_journal: bool) -> Call:
        """Build a query; the routing item, where it is asked for, comes first (its sort key is above all items')."""
        table = self._table
        low = query.first or table.first_sort_key
        high = table.journal.routing_sort_key if with_journal else query.last or table.last_sort_key
        request: dict[str, Any] = {
            "TableName": table.name,
            "KeyConditionExpression": f"{table.partition_key} = :pk AND {table.sort_key} BETWEEN :low AND :high",
            "ExpressionAttributeValues": {":pk": {"S": query.partition_key}, ":low": {"S": low}, ":high": {"S": high}},
            "ScanIndexForward": not query.newest_first,
            "Limit": query.limit + with_journal,
            "ConsistentRead": is_strong,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if query.after is not None:
            request["ExclusiveStartKey"] = table.key_of(query.partition_key, query.after)
        return Call("Query", request)

    def _passes_routing_item(self, query: KeyQuery[str], collection: str | None) -> bool:
        is_from_the_top = query.newest_first and query.last is None and query.after is None
        return query.partition_key == collection and is_from_the_top and not self._table.journal.is_apart

    def _read_response(
        self, query: KeyQuery[str], response: Response, *, with_journal: bool
    ) -> tuple[QueryResponse[str, ItemT], JournalEntry | None]:
        found = response["Items"]
        entry = None
        if with_journal:
            has_route = bool(found) and found[0][self._table.sort_key]["S"] == self._table.journal.routing_sort_key
            entry = read_entry(found[0] if has_route else None)
            found = found[has_route:]
        items = tuple([self._decode(item) for item in found[: query.limit]])
        is_exhausted = "LastEvaluatedKey" not in response and len(items) == len(found)
        return QueryResponse(items, is_exhausted), entry


def _is_empty_part(outcome: Outcome) -> bool:
    return not isinstance(outcome, RetryLaterError) and outcome.get("Items") == [] and "LastEvaluatedKey" in outcome


def _size_of_one(outcomes: Sequence[Outcome]) -> int:
    """Return the size of one of the items in bytes; 0 where there is none."""
    for outcome in outcomes:
        if not isinstance(outcome, RetryLaterError) and outcome.get("Items"):
            return item_size_bytes(outcome["Items"][-1])
    return 0


def _units_of(outcome: Outcome, least: float) -> float:
    """Return the RCU that a call took; `least` where its response does not say, as for the journal."""
    if isinstance(outcome, RetryLaterError):
        return 0.0
    units: float = outcome.get("ConsumedCapacity", {}).get("CapacityUnits", least)
    return units
