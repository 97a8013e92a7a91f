"""The routing items of a table as boto3's `Table` gives them: where they lie, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotpartition.core.route import Route
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.errors import MalformedGenerationError
from hotpartition.ports import JournalEntry
from hotpartition.table.schema import Attributes, Schema

GENERATIONS = "generations"
"""The attribute of a routing item that holds the route."""


def key_of_journal(place: JournalPlace, collection: str) -> Attributes:
    """Build the key of a collection's routing item."""
    return {name: value["S"] for name, value in place.key_of(collection).items()}


def is_journal(place: JournalPlace | None, schema: Schema, item: Mapping[str, Any]) -> bool:
    """Say whether an item of the table, or its key, is a routing item."""
    return place is not None and not place.is_apart and item.get(schema.sort) == place.routing_sort_key


def read_entry(item: Mapping[str, Any] | None) -> JournalEntry:
    """Read a routing item; None where there is none.

    Raises:
        MalformedGenerationError: its generations cannot be read.
    """
    if item is None:
        return JournalEntry()
    generations = item.get(GENERATIONS)
    if not isinstance(generations, set) or not all(isinstance(member, str) for member in generations):
        raise MalformedGenerationError(f"the routing item has no string set `{GENERATIONS}`")
    return JournalEntry(Route.decode(generations))
