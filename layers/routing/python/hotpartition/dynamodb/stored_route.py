"""The item that stores a collection's route in DynamoDB: its form, and how it is read.

Routing item (journal); `table.JournalPlace` says where it lies:

| attribute | type | content |
|---|---|---|
| generations | SS | one member per generation, `<shard count>@<since, Unix ms>`, and per step of a close, \
`closing@<time, Unix ms>` and `closed@<time, Unix ms>`; only ever added to |
| raises | SS | for operators: one member per raise (`core/route_history.py`); nothing on the request path reads it |
| updated_at | S | when it last grew, RFC 3339 |
| reason | S | why it last grew (`core/route_history.py`) |
| routing_partition | S | "00" to "15", the sparse index's partition key |

Written by the consumer and by operators, both through `engine/raising.py`; read by readers, writers and the consumer.
If it vanished, items on shards could not be found: the table is retained and has point-in-time recovery.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime

from hotpartition.core.capacity import Item
from hotpartition.core.errors import MalformedGenerationError
from hotpartition.core.ports import JournalEntry, RoutingItem
from hotpartition.core.route import Route
from hotpartition.core.route_history import decode_raises
from hotpartition.dynamodb.table import JournalPlace

ROUTING_ATTRIBUTES = ("generations", "raises", "reason", "routing_partition", "updated_at")
"""Every attribute of a routing item but its key, as described above; no others may be touched."""

ROUTING_PARTITIONS = 16


def routing_partition_of(collection: str) -> str:
    """Choose the sparse index's partition key: 16 values, so that no one of them takes all raises."""
    digest = hashlib.blake2b(collection.encode(), digest_size=8).digest()
    return f"{int.from_bytes(digest) % ROUTING_PARTITIONS:02d}"


def read_entry(item: Item | None) -> JournalEntry:
    """Read a routing item; operators write them as well, so nothing about it is certain.

    Raises:
        MalformedGenerationError: its generations cannot be read. When it last grew is not worth failing for.
    """
    if item is None:
        return JournalEntry()
    generations = item.get("generations", {}).get("SS")
    if not generations:
        raise MalformedGenerationError("the routing item has no string set `generations`")
    updated_at_ms = _read_time_ms(item.get("updated_at", {}).get("S", ""))
    return JournalEntry(Route.decode(generations), updated_at_ms)


def read_entries(routing_items: Mapping[str, Item], collections: Iterable[str]) -> dict[str, JournalEntry]:
    """Read the routing items of collections; those that have none have the empty route.

    Raises:
        MalformedGenerationError: one cannot be read; it names the collection.
    """
    entries: dict[str, JournalEntry] = {}
    for collection in collections:
        try:
            entries[collection] = read_entry(routing_items.get(collection))
        except MalformedGenerationError as error:
            error.collection = collection
            raise
    return entries


def read_routing_item(item: Item, place: JournalPlace) -> RoutingItem:
    """Read all that a routing item says to operators; nothing about it is certain."""
    return RoutingItem(
        collection=item[place.partition_key]["S"],
        route=_readable_route(item),
        members=tuple(sorted(item.get("generations", {}).get("SS", ()))),
        updated_at_ms=_read_time_ms(item.get("updated_at", {}).get("S", "")),
        reason=item.get("reason", {}).get("S"),
        raises=decode_raises(item.get("raises", {}).get("SS", ())),
    )


def _readable_route(item: Item) -> Route | None:
    try:
        return read_entry(item).route
    except MalformedGenerationError:
        return None


def _read_time_ms(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
