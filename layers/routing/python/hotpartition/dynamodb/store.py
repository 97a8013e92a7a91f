"""DynamoDB: the message store and the journal, over a client (`dynamodb_calls.py`).

Routing item (journal), at `pk` = base key, `sk` = `r#`:

| attribute | type | content |
|---|---|---|
| generations | SS | one member per generation, `<shard count>@<since, Unix ms>`; only ever added to |
| raises | SS | for operators: one member per raise, as in `raises.py`; nothing on the request path reads it |
| updated_at | S | when it last grew, RFC 3339 |
| reason | S | why it last grew, as in `raises.py` |
| routing_partition | S | "00" to "15", the sparse index's partition key |

Written by the consumer (raises), by readers (what only Redis knew) and by operators; read by readers, writers and the
consumer. If it vanished, messages on shards could not be found: the table is retained and has point-in-time recovery.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, AttributeValue, Item, item_size_bytes
from hotpartition.core.keys import MESSAGE_PREFIX, ROUTING_SORT_KEY, SEPARATOR, build_message_sort_key
from hotpartition.core.merge import ItemT, KeyQuery
from hotpartition.core.message_ids import MAX_MESSAGE_ID, MIN_MESSAGE_ID
from hotpartition.core.route import Generation, Route
from hotpartition.core.route_history import decode_raises, encode_raises
from hotpartition.core.timestamps import format_time
from hotpartition.dynamodb.calls import Answer, Call, DynamoDBCalls, Round
from hotpartition.errors import (
    ConditionFailedError,
    InvalidRequestError,
    MalformedGenerationError,
    MessageTooLargeError,
    RetryLaterError,
    StoreRefusedError,
    ThrottledError,
)
from hotpartition.ports import Fetched, JournalEntry, QueryAnswer, RoutingItem

ROUTING_ATTRIBUTES = ("pk", "sk", "generations", "raises", "reason", "routing_partition", "updated_at")
"""Every attribute of a routing item, as described above: what may be touched of it, and no more."""

ROUTING_PARTITIONS = 16
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
            calls.append(_build_get(self._table_name, journal_of, is_strong=is_strong))
        # What was never hot costs what it costs without us: only a sharded conversation's reads are asked for twice.
        outcomes, hedged = self._run(calls, is_hedged=any(SEPARATOR in query.partition_key for query in queries))
        journal: JournalEntry | RetryLaterError | None = None
        if journal_of is not None and carrier is None:
            outcome = outcomes.pop()
            journal = outcome if isinstance(outcome, RetryLaterError) else _read_entry(outcome.get("Item"))
        answers: list[QueryAnswer[ItemT] | RetryLaterError] = []
        for query, outcome in zip(queries, outcomes, strict=True):
            if isinstance(outcome, RetryLaterError):
                answers.append(outcome)
                journal = outcome if query is carrier else journal
                continue
            answer, entry = self._read_answer(query, outcome, with_journal=query is carrier)
            answers.append(answer)
            journal = entry if query is carrier else journal
        return Fetched(tuple(answers), journal, hedged)

    def get(
        self, partition_keys: Sequence[str], message_id: str, *, is_strong: bool, journal_of: str | None = None
    ) -> tuple[tuple[ItemT, ...], JournalEntry | None]:
        """See `MessageStore.get`."""
        sort_key = build_message_sort_key(message_id)
        keys = [_key(partition_key, sort_key) for partition_key in partition_keys]
        if journal_of is not None:
            keys.append(_key(journal_of, ROUTING_SORT_KEY))
        items = self._batch_get(keys, is_strong=is_strong)
        messages = tuple(self._decode(item) for item in items if item["sk"]["S"] == sort_key)
        if journal_of is None:
            return messages, None
        routing = next((item for item in items if item["sk"]["S"] == ROUTING_SORT_KEY), None)
        return messages, _read_entry(routing)

    def _run(self, calls: list[Call], *, is_hedged: bool) -> Round:
        """Run calls at the same time, each to its first items or its end."""
        outcomes, hedged = self._calls.call_many(calls, is_hedged=is_hedged)
        while unfinished := [index for index, outcome in enumerate(outcomes) if _is_empty_part(outcome)]:
            # Allowed, if never seen without a filter: an answer without items that is not the end.
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

    def _read_answer(
        self, query: KeyQuery, answer: Answer, *, with_journal: bool
    ) -> tuple[QueryAnswer[ItemT], JournalEntry | None]:
        items = answer["Items"]
        entry = None
        if with_journal:
            has_route = bool(items) and items[0]["sk"]["S"] == ROUTING_SORT_KEY
            entry = _read_entry(items[0] if has_route else None)
            items = items[has_route:]
        messages = tuple([self._decode(item) for item in items[: query.limit]])
        is_exhausted = "LastEvaluatedKey" not in answer and len(messages) == len(items)
        return QueryAnswer(messages, is_exhausted), entry

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


class DynamoDBJournal:
    """`Journal` on the same table."""

    def __init__(self, calls: DynamoDBCalls, table_name: str, index_name: str) -> None:
        self._calls = calls
        self._table_name = table_name
        self._index_name = index_name

    def get(self, conversation_id: str, *, is_strong: bool) -> JournalEntry:
        """See `Journal.get`."""
        operation, request = _build_get(self._table_name, conversation_id, is_strong=is_strong)
        return _read_entry(self._calls.call(operation, request).get("Item"))

    def add(self, conversation_id: str, generations: Iterable[Generation], *, reason: str, now_ms: int) -> JournalEntry:
        """See `Journal.add`."""
        added = sorted(set(generations))
        # ADD on a set is idempotent and commutative: no condition, no version, no order of raises.
        adds = {"generations": [generation.encode() for generation in added]}
        history = {"raises": encode_raises(added, reason=reason, now_ms=now_ms)}
        sets = {
            "updated_at": format_time(now_ms),
            "reason": reason,
            "routing_partition": routing_partition_of(conversation_id),
        }
        try:
            attributes = self._update(conversation_id, {**adds, **history}, sets)
        except StoreRefusedError as error:
            if not _is_type_mismatch(error):
                raise
            # Somebody gave `raises` another type by hand: what explains a raise must not keep it from being made.
            attributes = self._update(conversation_id, adds, sets)
        return _read_entry(attributes)

    def _update(self, conversation_id: str, adds: Mapping[str, list[str]], sets: Mapping[str, str]) -> Item:
        """Add members to string sets and set texts, each by its attribute's name; return all attributes."""
        request = {
            "TableName": self._table_name,
            "Key": _key(conversation_id, ROUTING_SORT_KEY),
            "UpdateExpression": f"ADD {', '.join(f'{name} :{name}' for name in adds)}"
            f" SET {', '.join(f'{name} = :{name}' for name in sets)}",
            "ExpressionAttributeValues": {
                **{f":{name}": {"SS": members} for name, members in adds.items()},
                **{f":{name}": {"S": text} for name, text in sets.items()},
            },
            "ReturnValues": "ALL_NEW",
        }
        attributes: Item = self._calls.call("UpdateItem", request)["Attributes"]
        return attributes


class DynamoDBRoutingItems:
    """`RoutingItems` on the same table and its sparse index."""

    def __init__(self, calls: DynamoDBCalls, table_name: str, index_name: str) -> None:
        self._calls = calls
        self._table_name = table_name
        self._index_name = index_name

    def read(self, conversation_id: str) -> RoutingItem | None:
        """See `RoutingItems.read`."""
        operation, request = _build_get(self._table_name, conversation_id, is_strong=True)
        item = self._calls.call(operation, request).get("Item")
        return None if item is None else _read_routing_item(item)

    def page(self, cursor: str | None, limit: int) -> tuple[Sequence[RoutingItem], str | None]:
        """See `RoutingItems.page`. A cursor is a partition of the index, and the keys of the last item there."""
        partition, start = _parse_cursor(cursor)
        items: list[RoutingItem] = []
        while True:
            found, last = self._query(partition, limit - len(items), start=start)
            items.extend(_read_routing_item(item) for item in found)
            start = last
            if start is None:
                partition += 1
            if partition == ROUTING_PARTITIONS:
                return items, None
            if len(items) >= limit:
                return items, _build_cursor(partition, start)

    def newest(self, limit: int) -> Sequence[RoutingItem]:
        """See `RoutingItems.newest`."""
        found = [
            item for p in range(ROUTING_PARTITIONS) for item in self._query(p, limit, start=None, newest_first=True)[0]
        ]
        found.sort(key=lambda item: (item["updated_at"]["S"], item["pk"]["S"]), reverse=True)
        return [_read_routing_item(item) for item in found[:limit]]

    def _query(
        self, partition: int, limit: int, *, start: Item | None, newest_first: bool = False
    ) -> tuple[Sequence[Item], Item | None]:
        """Read routing items of one partition of the sparse index; return them, and where to go on."""
        request = {
            "TableName": self._table_name,
            "IndexName": self._index_name,
            "KeyConditionExpression": "routing_partition = :p",
            "ExpressionAttributeValues": {":p": {"S": f"{partition:02d}"}},
            "Limit": limit,
            "ScanIndexForward": not newest_first,
            **({} if start is None else {"ExclusiveStartKey": start}),
        }
        response = self._calls.call("Query", request)
        return response["Items"], response.get("LastEvaluatedKey")


def _build_cursor(partition: int, start: Item | None) -> str:
    last = () if start is None else (start["pk"]["S"], start["updated_at"]["S"])
    return json.dumps([partition, *last])


def _parse_cursor(cursor: str | None) -> tuple[int, Item | None]:
    """Read a place in the index.

    Raises:
        InvalidRequestError: it is none that `page` gave.
    """
    if cursor is None:
        return 0, None
    with suppress(ValueError):
        match json.loads(cursor):
            case [int(partition)] if 0 <= partition < ROUTING_PARTITIONS:
                return partition, None
            case [int(partition), str(key), str(updated_at)] if 0 <= partition < ROUTING_PARTITIONS:
                start = {"routing_partition": {"S": f"{partition:02d}"}, "updated_at": {"S": updated_at}}
                return partition, {**_key(key, ROUTING_SORT_KEY), **start}
    raise InvalidRequestError.of("cursor", "should be the cursor of the last answer")


def _readable_route(item: Item) -> Route | None:
    try:
        return _read_entry(item).route
    except MalformedGenerationError:
        return None


def routing_partition_of(conversation_id: str) -> str:
    """Choose the sparse index's partition key: 16 values, so that no one of them takes all raises."""
    digest = hashlib.blake2b(conversation_id.encode(), digest_size=8).digest()
    return f"{int.from_bytes(digest) % ROUTING_PARTITIONS:02d}"


def _passes_routing_item(query: KeyQuery, conversation_id: str | None) -> bool:
    return query.partition_key == conversation_id and query.newest_first and query.last_id is None


def _build_get(table_name: str, conversation_id: str, *, is_strong: bool) -> Call:
    key = _key(conversation_id, ROUTING_SORT_KEY)
    return Call("GetItem", {"TableName": table_name, "Key": key, "ConsistentRead": is_strong})


def _is_empty_part(outcome: Answer | RetryLaterError) -> bool:
    return not isinstance(outcome, RetryLaterError) and outcome.get("Items") == [] and "LastEvaluatedKey" in outcome


def _read_entry(item: Item | None) -> JournalEntry:
    """Read a routing item; operators write them as well, so nothing about it is certain.

    Raises:
        MalformedGenerationError: its generations cannot be read. When it last grew is not worth failing for.
    """
    if item is None:
        return JournalEntry()
    generations = item.get("generations", {}).get("SS")
    if not generations:
        raise MalformedGenerationError("the routing item has no string set `generations`")
    return JournalEntry(Route.decode(generations), _read_time_ms(item.get("updated_at", {}).get("S", "")))


def _read_routing_item(item: Item) -> RoutingItem:
    """Read all that a routing item says to operators; nothing about it is certain."""
    return RoutingItem(
        conversation_id=item["pk"]["S"],
        route=_readable_route(item),
        members=tuple(sorted(item.get("generations", {}).get("SS", ()))),
        updated_at_ms=_read_time_ms(item.get("updated_at", {}).get("S", "")),
        reason=item.get("reason", {}).get("S"),
        raises=decode_raises(item.get("raises", {}).get("SS", ())),
    )


def _read_time_ms(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


def _key(partition_key: str, sort_key: str) -> dict[str, AttributeValue]:
    return {"pk": {"S": partition_key}, "sk": {"S": sort_key}}


def _is_type_mismatch(error: StoreRefusedError) -> bool:
    return error.code == "ValidationException" and "incorrect data type" in error.explanation


def _is_size_refusal(error: StoreRefusedError) -> bool:
    return error.code == "ValidationException" and "maximum allowed size" in error.explanation
