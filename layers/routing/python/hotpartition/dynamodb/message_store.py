"""The messages in DynamoDB: `MessageStore` over a client (`calls.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, AttributeValue, Item, item_size_bytes
from hotpartition.core.keys import MESSAGE_PREFIX, ROUTING_SORT_KEY, SEPARATOR, build_message_sort_key
from hotpartition.core.merge import ItemT, KeyQuery
from hotpartition.core.message_ids import MAX_MESSAGE_ID, MIN_MESSAGE_ID
from hotpartition.dynamodb.calls import Call, DynamoDBCalls, Outcome, Response, Round
from hotpartition.dynamodb.stored_route import build_get, build_key, read_entry
from hotpartition.errors import (
    ConditionFailedError,
    MessageTooLargeError,
    RetryLaterError,
    StoreRefusedError,
    ThrottledError,
)
from hotpartition.ports import Fetched, JournalEntry, QueryResponse

BATCH_GET_KEYS = 100
"""BatchGetItem takes no more keys at once."""
MAX_BATCH_ROUNDS = 5
"""How often unprocessed keys of a batch are asked for again before the whole call counts as throttled."""


class DynamoDBMessageStore(Generic[ItemT]):
    """`MessageStore` on one table. `decode` makes of a stored item what its owner knows it as."""

    def __init__(self, calls: DynamoDBCalls, table_name: str, decode: Callable[[Item], ItemT]) -> None:
        self._calls = calls
        self._table_name = table_name
        self._decode = decode

    def put(self, item: Mapping[str, AttributeValue]) -> ItemT | None:
        """See `MessageStore.put`."""
        request = {
            "TableName": self._table_name,
            "Item": item,
            # Never overwrite: the key holds the message id, so whatever is there is this message or its rival.
            "ConditionExpression": "attribute_not_exists(pk)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            self._calls.call("PutItem", request)
        except ConditionFailedError as error:
            if error.item is None:
                raise
            return self._decode(error.item)
        except StoreRefusedError as error:
            if _is_size_refusal(error):
                # Our own count, which estimates the size of numbers, was a little below DynamoDB's.
                raise MessageTooLargeError(item_size_bytes(item), ITEM_LIMIT_BYTES) from error
            raise
        return None

    def fetch(self, queries: Sequence[KeyQuery], *, is_strong: bool, journal_of: str | None = None) -> Fetched[ItemT]:
        """See `MessageStore.fetch`."""
        carrier = next((q for q in queries if _passes_routing_item(q, journal_of)), None)
        calls = [self._build_query(query, is_strong=is_strong, with_journal=query is carrier) for query in queries]
        if journal_of is not None and carrier is None:
            calls.append(build_get(self._table_name, journal_of, is_strong=is_strong))
        # What was never hot costs what it costs without us: only a sharded collection's reads are asked for twice.
        outcomes, hedged = self._run(calls, is_hedged=any(SEPARATOR in query.partition_key for query in queries))
        journal: JournalEntry | RetryLaterError | None = None
        if journal_of is not None and carrier is None:
            outcome = outcomes.pop()
            journal = outcome if isinstance(outcome, RetryLaterError) else read_entry(outcome.get("Item"))
        responses: list[QueryResponse[ItemT] | RetryLaterError] = []
        for query, outcome in zip(queries, outcomes, strict=True):
            if isinstance(outcome, RetryLaterError):
                responses.append(outcome)
                journal = outcome if query is carrier else journal
                continue
            response, entry = self._read_response(query, outcome, with_journal=query is carrier)
            responses.append(response)
            journal = entry if query is carrier else journal
        return Fetched(tuple(responses), journal, hedged)

    def get(
        self, partition_keys: Sequence[str], message_id: str, *, is_strong: bool, journal_of: str | None = None
    ) -> tuple[tuple[ItemT, ...], JournalEntry | None]:
        """See `MessageStore.get`."""
        sort_key = build_message_sort_key(message_id)
        keys = [build_key(partition_key, sort_key) for partition_key in partition_keys]
        if journal_of is not None:
            keys.append(build_key(journal_of, ROUTING_SORT_KEY))
        items = self._batch_get(keys, is_strong=is_strong)
        messages = tuple(self._decode(item) for item in items if item["sk"]["S"] == sort_key)
        if journal_of is None:
            return messages, None
        routing = next((item for item in items if item["sk"]["S"] == ROUTING_SORT_KEY), None)
        return messages, read_entry(routing)

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

    def _build_query(self, query: KeyQuery, *, is_strong: bool, with_journal: bool) -> Call:
        """Build a query; the routing item, where it is asked for, comes first (its sort key is above all messages')."""
        low = MESSAGE_PREFIX + (query.first_id or MIN_MESSAGE_ID)
        high = ROUTING_SORT_KEY if with_journal else MESSAGE_PREFIX + (query.last_id or MAX_MESSAGE_ID)
        request = {
            "TableName": self._table_name,
            "KeyConditionExpression": "pk = :pk AND sk BETWEEN :low AND :high",
            "ExpressionAttributeValues": {":pk": {"S": query.partition_key}, ":low": {"S": low}, ":high": {"S": high}},
            "ScanIndexForward": not query.newest_first,
            "Limit": query.limit + with_journal,
            "ConsistentRead": is_strong,
        }
        return Call("Query", request)

    def _read_response(
        self, query: KeyQuery, response: Response, *, with_journal: bool
    ) -> tuple[QueryResponse[ItemT], JournalEntry | None]:
        items = response["Items"]
        entry = None
        if with_journal:
            has_route = bool(items) and items[0]["sk"]["S"] == ROUTING_SORT_KEY
            entry = read_entry(items[0] if has_route else None)
            items = items[has_route:]
        messages = tuple([self._decode(item) for item in items[: query.limit]])
        is_exhausted = "LastEvaluatedKey" not in response and len(messages) == len(items)
        return QueryResponse(messages, is_exhausted), entry

    def _batch_get(self, keys: list[dict[str, AttributeValue]], *, is_strong: bool) -> list[Item]:
        """Read items by their keys, in parts of as many as one request takes."""
        parts = (keys[start : start + BATCH_GET_KEYS] for start in range(0, len(keys), BATCH_GET_KEYS))
        return [item for part in parts for item in self._batch_get_part(part, is_strong=is_strong)]

    def _batch_get_part(self, keys: list[dict[str, AttributeValue]], *, is_strong: bool) -> list[Item]:
        items: list[Item] = []
        request: Any = {self._table_name: {"Keys": keys, "ConsistentRead": is_strong}}
        for _ in range(MAX_BATCH_ROUNDS):
            response = self._calls.call("BatchGetItem", {"RequestItems": request})
            items.extend(response["Responses"].get(self._table_name, []))
            request = response.get("UnprocessedKeys")
            if not request:
                return items
        raise ThrottledError


def _passes_routing_item(query: KeyQuery, collection: str | None) -> bool:
    return query.partition_key == collection and query.newest_first and query.last_id is None


def _is_empty_part(outcome: Outcome) -> bool:
    return not isinstance(outcome, RetryLaterError) and outcome.get("Items") == [] and "LastEvaluatedKey" in outcome


def _is_size_refusal(error: StoreRefusedError) -> bool:
    return error.code == "ValidationException" and "maximum allowed size" in error.explanation
