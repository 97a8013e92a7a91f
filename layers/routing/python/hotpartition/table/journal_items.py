"""The routing items of a table as boto3's `Table` gives them: where they lie, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boto3.dynamodb.types import TypeSerializer

from hotpartition.dynamodb import stored_route
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.ports import JournalEntry
from hotpartition.table.schema import Attributes

GENERATIONS = "generations"
"""The attribute of a routing item that holds the route."""

_serialize = TypeSerializer().serialize


def key_of_journal(place: JournalPlace, collection: str) -> Attributes:
    """Build the key of a collection's routing item."""
    return {name: value["S"] for name, value in place.key_of(collection).items()}


def read_entries(routing_items: Mapping[str, Attributes], collections: Iterable[str]) -> dict[str, JournalEntry]:
    """Read the routing items of collections; those that have none have the empty route.

    Raises:
        MalformedGenerationError: one cannot be read; it names the collection.
    """
    stored = {
        collection: {name: _serialize(value) for name, value in item.items()}
        for collection, item in routing_items.items()
    }
    return stored_route.read_entries(stored, collections)
